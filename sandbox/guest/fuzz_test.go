package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Whatever a path says, nothing outside of the place is opened or made: links
// out of it are all over the tree.
func FuzzPlace(f *testing.F) {
	dir, err := filepath.EvalSymlinks(f.TempDir())
	if err != nil {
		f.Fatal(err)
	}
	root, outside := filepath.Join(dir, "root"), filepath.Join(dir, "outside")
	for _, d := range []string{filepath.Join(root, "a/b"), filepath.Join(outside, "b")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			f.Fatal(err)
		}
	}
	for name, to := range map[string]string{
		"up": "..", "abs": outside, "rel": "../outside", "a/deep": "../../outside", "loop": "loop", "in": "a/b", "a/b/root": root, "proc": "/proc/self/root",
	} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			f.Fatal(err)
		}
	}
	p, err := openPlace(root)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(p.close)
	for _, path := range []string{"a/b", "up/outside/b", "abs/b", "a/deep/../x", "in/../../outside", "proc/etc", "a//b/./..", "..", "a/b/root/a", "a\x00b"} {
		f.Add(path)
	}
	inside := func(t *testing.T, what, path string, fd int) {
		t.Helper()
		real, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if err != nil || real != root && !strings.HasPrefix(real, root+"/") {
			t.Errorf("%s of %q leads to %q, %v", what, path, real, err)
		}
		unix.Close(fd)
	}
	f.Fuzz(func(t *testing.T, name string) {
		path := root + "/" + name
		if fd, err := p.open(path, unix.O_PATH); err == nil {
			inside(t, "open", path, fd)
		}
		if fd, _, err := p.parent(path); err == nil {
			inside(t, "parent", path, fd)
		}
		if r, err := p.rel(path); err == nil && len(name) < 200 && strings.Count(name, "/") < 8 {
			if p.mkdirAll(r, 0o700) == nil {
				if fd, err := p.open(path, unix.O_PATH|unix.O_DIRECTORY); err == nil {
					inside(t, "folder", path, fd)
				}
			}
		}
		left, err := os.ReadDir(outside)
		if err != nil || len(left) != 1 {
			t.Fatalf("%q changed what is outside: %v, %v", path, left, err)
		}
	})
}
