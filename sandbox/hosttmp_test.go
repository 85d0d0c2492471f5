package sandbox

import (
	"os"
	"path/filepath"
	"testing"
)

// A command that may write the host's /tmp can move a folder of it away and put a link there, which must not lead a
// workspace or a root below it elsewhere.
func TestLinksInHostTmpLeadNowhere(t *testing.T) {
	folder := func(at string) string {
		dir, err := os.MkdirTemp(at, "heddle-test-") //nolint:usetesting // must lie in the host's /tmp and outside of it
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		return dir
	}
	in, out := folder("/tmp"), folder("/var/tmp")
	for _, d := range []string{filepath.Join(out, "proj"), filepath.Join(in, "inside", "proj")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"a": out, "b": "inside"} {
		if err := os.Symlink(to, filepath.Join(in, link)); err != nil {
			t.Fatal(err)
		}
	}
	led, kept := filepath.Join(in, "a", "proj"), filepath.Join(in, "b", "proj")
	for name, c := range map[string]struct {
		policy  Policy
		refused bool
	}{
		"workspace":            {Policy{Workspace: led, Tmp: TmpHost}, true},
		"root":                 {Policy{Workspace: out, WritableRoots: []string{led}, Tmp: TmpHost}, true},
		"link within /tmp":     {Policy{Workspace: kept, Tmp: TmpHost}, false},
		"private /tmp":         {Policy{Workspace: led, Tmp: TmpPrivate}, false},
		"root, private /tmp":   {Policy{Workspace: in, WritableRoots: []string{led}, Tmp: TmpPrivate}, true},
		"no link, host's /tmp": {Policy{Workspace: in, Tmp: TmpHost}, false},
	} {
		c.policy.Level = WorkspaceWrite
		if err := (&plan{}).findRoots(c.policy); (err != nil) != c.refused {
			t.Errorf("%s: %v, want refused %v", name, err, c.refused)
		}
	}
}
