package guest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// guarded refuses a file action that would change a protected name, where no mount does.
func (s *server) guarded(p place, f guestproto.File) error {
	if len(s.setup.Guarded) == 0 || !f.Op.Changes() {
		return nil
	}
	for _, path := range []string{f.Path, f.To} {
		if path == "" {
			continue
		}
		real, err := p.real(path)
		if err != nil {
			return err
		}
		for _, g := range s.setup.Guarded {
			if real == g || strings.HasPrefix(real, g+"/") {
				return unix.EROFS
			}
		}
	}
	return nil
}

// real is a path with the links of the part that exists resolved, but for the last name.
func (p place) real(path string) (string, error) {
	rest := filepath.Base(path)
	for dir := filepath.Dir(filepath.Clean(path)); ; dir = filepath.Dir(dir) {
		fd, err := p.open(dir, unix.O_PATH)
		if err == nil {
			at, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
			unix.Close(fd)
			return filepath.Join(at, rest), err
		}
		if dir == filepath.Dir(dir) {
			return "", err
		}
		rest = filepath.Join(filepath.Base(dir), rest)
	}
}
