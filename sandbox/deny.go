package sandbox

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// Bounds of what patterns of denied paths may match and look through. Past them a sandbox is not made: a path that
// was not looked at could be read.
const (
	maxMatches   = 20000
	maxMatchDirs = 100000
	maxPinned    = 512
)

// isPattern reports whether a denied path is a pattern.
func isPattern(path string) bool { return strings.ContainsAny(path, "*?[") }

// denial is a pattern below a folder: names of folders on the way, with * ? [...] for parts of one and ** for any
// number of folders.
type denial struct {
	base string
	rest []string
}

// denials makes absolute what a policy denies. Relative ones hold below the workspace and each root, patterns and
// plain paths alike; ~ is the home folder.
func denials(p Policy, roots []string, home string) (plain []string, patterns []denial, err error) {
	for _, d := range p.DenyRead {
		if rest, ok := strings.CutPrefix(d, "~/"); ok || d == "~" {
			if home == "" {
				return nil, nil, fmt.Errorf("sandbox policy: denied path %q: there is no home folder", d)
			}
			d = filepath.Join(home, rest)
		}
		bases := []string{"/"}
		if !filepath.IsAbs(d) {
			bases = roots
		}
		for _, base := range bases {
			if !isPattern(d) {
				plain = append(plain, filepath.Join(base, d))
				continue
			}
			at := denial{base: base}
			for _, name := range strings.Split(strings.Trim(d, "/"), "/") {
				if !isPattern(name) && len(at.rest) == 0 {
					at.base = filepath.Join(at.base, name)
				} else {
					at.rest = append(at.rest, name)
				}
			}
			if at.rest[len(at.rest)-1] == "**" {
				at.rest = append(at.rest, "*")
			}
			if real, err := filepath.EvalSymlinks(at.base); err == nil {
				at.base = real
			}
			patterns = append(patterns, at)
		}
	}
	return plain, patterns, nil
}

// checkDenied refuses patterns that could never match as they are written.
func checkDenied(list []string) error {
	for _, d := range list {
		if d == "" || strings.ContainsRune(d, 0) {
			return fmt.Errorf("sandbox policy: denied path %q is no path", d)
		}
		for _, name := range strings.Split(d, "/") {
			if _, err := path.Match(name, ""); err != nil || name == ".." || strings.Contains(name, "**") && name != "**" {
				return fmt.Errorf("sandbox policy: denied path %q: %q cannot be part of it", d, name)
			}
		}
	}
	return nil
}

// denyTree knows what the patterns match, and looks only at folders that have changed.
type denyTree struct {
	stamper *stamper
	tops    []*denyDir
	kinds   map[uint64]stampKind
	dirs    int
	hits    int
	found   map[string]denied // by path
	changed bool              // since found was collected
	fine    bool              // the covers hide all that was found
}

// denied is one match.
type denied struct {
	id  fileID
	dir bool
}

type denyDir struct {
	path  string
	rest  [][]string // of the patterns that may match in it
	id    fileID
	ctime int64
	again bool
	kids  []*denyDir
	match map[string]denied
}

func newDenyTree(patterns []denial, s *stamper) *denyTree {
	t := &denyTree{stamper: s, kinds: map[uint64]stampKind{}}
	for _, d := range patterns {
		i := slices.IndexFunc(t.tops, func(o *denyDir) bool { return o.path == d.base })
		if i < 0 {
			i = len(t.tops)
			t.tops = append(t.tops, &denyDir{path: d.base})
		}
		t.tops[i].rest = append(t.tops[i].rest, d.rest)
	}
	return t
}

// look finds what matches now.
func (t *denyTree) look() error {
	t.dirs, t.hits = 0, 0
	t.changed = t.changed || t.found == nil
	now := t.stamper.now()
	for _, d := range t.tops {
		if err := t.visit(d, now); err != nil {
			return err
		}
	}
	if t.changed {
		t.found, t.changed, t.fine = make(map[string]denied, t.hits), false, false
		for _, d := range t.tops {
			t.collect(d)
		}
	}
	return nil
}

// collect takes what matched in a folder and below it.
func (t *denyTree) collect(d *denyDir) {
	for at, m := range d.match {
		t.found[at] = m
	}
	for _, k := range d.kids {
		t.collect(k)
	}
}

func (t *denyTree) visit(d *denyDir, now moment) error {
	if t.dirs++; t.dirs > maxMatchDirs {
		return fmt.Errorf("denied paths: more than %d folders to look through below %s; name a folder nearer to them", maxMatchDirs, t.tops[0].path)
	}
	st, ok := lstat(d.path)
	if !ok || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		t.changed = t.changed || d.ctime != 0
		d.ctime, d.kids, d.match = 0, nil, nil
		return nil
	}
	id, ctime := fileID{st.Dev, st.Ino}, st.Ctim.Nano()
	if d.id != id || d.ctime != ctime || d.again {
		kind := t.kinds[st.Dev]
		if kind == 0 {
			kind = stampKindOf(d.path)
			t.kinds[st.Dev] = kind
		}
		t.changed = true
		d.id, d.ctime, d.again = id, ctime, !kind.before(ctime, now.today())
		if err := d.read(); err != nil {
			return fmt.Errorf("denied paths: %w", err)
		}
	}
	if t.hits += len(d.match); t.hits > maxMatches {
		return fmt.Errorf("denied paths: more than %d match; deny a folder that holds them", maxMatches)
	}
	for _, k := range d.kids {
		if err := t.visit(k, now); err != nil {
			return err
		}
	}
	return nil
}

// read lists a folder again. What commands cannot read either is left out.
func (d *denyDir) read() error {
	old := map[string]*denyDir{}
	for _, k := range d.kids {
		old[k.path] = k
	}
	d.kids, d.match = nil, map[string]denied{}
	fd, err := unix.Open(d.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: d.path, Err: err}
	}
	defer unix.Close(fd)
	return eachEntry(fd, func(name string, ino uint64, typ uint8) {
		hit, rest := step(d.rest, name)
		if !hit && (len(rest) == 0 || typ != unix.DT_DIR && typ != unix.DT_UNKNOWN) {
			return
		}
		at := d.path + "/" + name
		switch {
		case hit:
			d.hit(at, ino, typ)
		case old[at] != nil:
			d.kids = append(d.kids, old[at])
		default:
			d.kids = append(d.kids, &denyDir{path: at, rest: rest})
		}
	})
}

// hit notes a match, a link by what it leads to.
func (d *denyDir) hit(at string, ino uint64, typ uint8) {
	switch typ {
	case unix.DT_REG, unix.DT_DIR: // most, and without a further call
		d.match[at] = denied{fileID{d.id.dev, ino}, typ == unix.DT_DIR}
		return
	case unix.DT_LNK, unix.DT_UNKNOWN:
	default:
		return
	}
	real, err := filepath.EvalSymlinks(at)
	if err != nil || real == "/" {
		return
	}
	if st, ok := lstat(real); ok && (st.Mode&unix.S_IFMT == unix.S_IFDIR || st.Mode&unix.S_IFMT == unix.S_IFREG) {
		d.match[real] = denied{fileID{st.Dev, st.Ino}, st.Mode&unix.S_IFMT == unix.S_IFDIR}
	}
}

// eachEntry calls f for each name in an open directory, with what the directory itself says of it.
func eachEntry(fd int, f func(name string, ino uint64, typ uint8)) error {
	const head = 19 // of struct linux_dirent64 before the name
	buf := make([]byte, 32<<10)
	for {
		n, err := unix.Getdents(fd, buf)
		if err != nil {
			return fmt.Errorf("read directory: %w", err)
		}
		if n <= 0 {
			return nil
		}
		for b := buf[:n]; len(b) > head; {
			size := int(binary.NativeEndian.Uint16(b[16:]))
			if size <= head || size > len(b) {
				return errors.New("read directory: malformed entry")
			}
			name, _, _ := bytes.Cut(b[head:size], []byte{0})
			if s := string(name); s != "." && s != ".." {
				f(s, binary.NativeEndian.Uint64(b), b[18])
			}
			b = b[size:]
		}
	}
}

// step applies patterns to the next name. It reports whether one ends with it, and what is left of the others.
func step(patterns [][]string, name string) (hit bool, rest [][]string) {
	for _, p := range patterns {
		for p[0] == "**" {
			rest = append(rest, p) // the name is one of any number
			p = p[1:]
		}
		if ok, _ := path.Match(p[0], name); ok {
			if len(p) == 1 {
				return true, nil
			}
			rest = append(rest, p[1:])
		}
	}
	return false, rest
}

// uncovered returns a match that the covers do not hide. Once they hide all, they do so until something changes.
func (t *denyTree) uncovered(covered map[string]denied) (string, bool) {
	if t.fine {
		return "", false
	}
	for at, m := range t.found {
		if c, ok := covered[at]; !ok || c != m {
			return at, true
		}
	}
	t.fine = true
	return "", false
}

// inMatched reports whether a path lies in a folder that is denied as a whole.
func (pl *plan) inMatched(at string) bool {
	for i := strings.LastIndexByte(at, '/'); i > 0; i = strings.LastIndexByte(at[:i], '/') {
		if pl.matched[at[:i]].dir {
			return true
		}
	}
	return false
}

// pinDenied looks for what patterns match, and keeps the folders in which denied paths lie from being renamed: under
// another name nothing would deny them to the next command.
func (pl *plan) pinDenied(binds map[string]guestproto.Mount, plain []string, patterns []denial, o *owner) error {
	if len(patterns) > 0 {
		pl.denyTree = newDenyTree(patterns, o.stamper)
		if err := pl.denyTree.look(); err != nil {
			return err
		}
		pl.matched = pl.denyTree.found
	}
	pinned := 0
	for _, d := range plain {
		if real, err := filepath.EvalSymlinks(d); err == nil {
			pinned += pl.pinAbove(binds, real)
		}
	}
	bound := slices.DeleteFunc(slices.Clone(patterns), pl.everywhere)
	if len(bound) == 0 {
		return nil
	}
	for _, at := range slices.Sorted(maps.Keys(pl.matched)) {
		if !slices.ContainsFunc(bound, func(d denial) bool { return within(at, d.base) }) {
			continue
		}
		if pinned += pl.pinAbove(binds, at); pinned > maxPinned {
			return fmt.Errorf("denied paths: what they match lies in more than %d folders; deny a folder that holds them, or a name in any folder (**/NAME)", maxPinned)
		}
	}
	return nil
}

// everywhere reports whether a pattern is about a name in any folder of the roots it can match in, so that it matches
// wherever a command moves that.
func (pl *plan) everywhere(d denial) bool {
	return len(d.rest) == 2 && d.rest[0] == "**" &&
		!slices.ContainsFunc(pl.roots, func(r string) bool { return r != d.base && within(d.base, r) })
}

// denyMatched plans to hide what patterns match.
func (pl *plan) denyMatched(o *owner) {
	if pl.denyTree == nil {
		return
	}
	dir, inside := "", false
	plain := pl.denied // not those that are added here
	// Neighbours together: each folder is walked to once.
	for _, at := range slices.Sorted(maps.Keys(pl.matched)) {
		m := pl.matched[at]
		if d := filepath.Dir(at); d != dir {
			dir, inside = d, pl.inMatched(at)
		}
		reachable := slices.ContainsFunc(pl.roots, func(r string) bool { return within(at, r) }) || within(at, pl.dir)
		switch {
		case pl.hidden(at) && !reachable, inside, slices.ContainsFunc(plain, func(d string) bool { return within(at, d) }):
		case m.dir && pl.emptyDir == "": // from which the others are made
			pl.emptyDir = at
			pl.deny(at, o)
		case !m.dir && pl.emptyFile == "":
			pl.emptyFile = at
			pl.deny(at, o)
		default:
			pl.coverList = append(pl.coverList, at)
		}
	}
}

// covering is the list of covers as the helper reads it.
func (pl *plan) covering() []byte {
	var b []byte
	for _, at := range pl.coverList {
		kind := byte('f')
		if pl.matched[at].dir {
			kind = 'd'
		}
		b = append(append(append(b, kind), at...), 0)
	}
	return b
}
