package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// Pin says where a path led when it was given to a policy. A command of another sandbox can change a link or a folder
// on the way to it, and would choose so what this one may write; only the real path counts then.
type Pin struct {
	Path string // as the policy names it
	Real string // with symbolic links resolved
}

// Place is where a path leads now.
type Place struct {
	// Real is the path with symbolic links resolved; of one that does not exist, the part that does.
	Real string
	// Device and Inode are of what is there, 0 when nothing is.
	Device, Inode uint64
}

// Locate follows a path. The error is about one that cannot be followed, such as a loop of links.
func Locate(path string) (Place, error) {
	if !filepath.IsAbs(path) {
		return Place{}, fmt.Errorf("locate %q: not an absolute path", path)
	}
	rest := ""
	for p := filepath.Clean(path); ; p = filepath.Dir(p) {
		r, err := resolve(p)
		if err == nil {
			id := identify(r.real)
			if rest == "" {
				return Place{Real: r.real, Device: id.dev, Inode: id.ino}, nil
			}
			return Place{Real: filepath.Join(r.real, rest)}, nil
		}
		if !errors.Is(err, fs.ErrNotExist) || p == "/" {
			return Place{}, fmt.Errorf("locate %s: %w", path, err)
		}
		rest = filepath.Join(filepath.Base(p), rest)
	}
}

// MovedError says that a path of the policy leads elsewhere than its pin says. Nothing was run.
type MovedError struct {
	Path     string
	Was, Now string
}

func (e *MovedError) Error() string { return e.Reason() + "; " + e.Fix() }

// Reason is the error without the fix.
func (e *MovedError) Reason() string {
	return fmt.Sprintf("%s leads to %s now, and led to %s when it was given", e.Path, e.Now, e.Was)
}

// Fix says what to do about it.
func (e *MovedError) Fix() string {
	return fmt.Sprintf("put back what leads there, or name %s itself as the folder if that is meant", e.Now)
}

// pinned checks where a path of the policy leads.
func (p Policy) pinned(path, real string) error {
	for _, pin := range p.Pins {
		if pin.Path == path && pin.Real != real {
			return &MovedError{Path: path, Was: pin.Real, Now: real}
		}
	}
	return nil
}

// pinnedDir returns the real folder of the policy that a working directory lies in, and the directory by its name
// below that. Without a pin it returns the empty folder.
func (p Policy) pinnedDir(dir string) (folder, below string) {
	dir = filepath.Clean(dir)
	best := -1
	for _, pin := range p.Pins {
		for _, at := range []string{pin.Path, pin.Real} {
			if within(dir, at) && len(at) > best {
				best, folder, below = len(at), pin.Real, filepath.Join(pin.Real, strings.TrimPrefix(dir, at))
			}
		}
	}
	return folder, below
}

func (p *Policy) normalizePins() error {
	pins := slices.Clone(p.Pins)
	for i, pin := range pins {
		if !filepath.IsAbs(pin.Path) || !filepath.IsAbs(pin.Real) {
			return fmt.Errorf("sandbox policy: pin of %q to %q: not an absolute path", pin.Path, pin.Real)
		}
		pins[i] = Pin{filepath.Clean(pin.Path), filepath.Clean(pin.Real)}
	}
	slices.SortFunc(pins, func(a, b Pin) int { return strings.Compare(a.Path+"\x00"+a.Real, b.Path+"\x00"+b.Real) })
	p.Pins = slices.Compact(pins)
	return nil
}
