package sandbox

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLinksThatLeadOut(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, d := range []string{"ws/sub/deep", "other"} {
		if err := os.MkdirAll(at(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"alias": "ws", "ws/in": "sub", "ws/out": at("other"), "ws/up": "../other", "ws/loop": "loop", "far": "ws/out"} {
		if err := os.Symlink(to, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	ws, err := resolve(at("ws"))
	if err != nil {
		t.Fatal(err)
	}
	for path, out := range map[string]bool{"ws/sub": false, "alias": false, "alias/sub": false, "ws/in/deep": false, "other": false,
		"ws/out": true, "alias/up": true, "far": true, "ws/sub/../out": true} {
		r, err := resolve(at(path))
		if err != nil {
			t.Fatal(err)
		}
		if real, err := filepath.EvalSymlinks(at(path)); err != nil || real != r.real {
			t.Errorf("%s is %s, want %s", path, r.real, real)
		}
		if err := checkRoots([]root{ws, r}); (err != nil) != out {
			t.Errorf("%s: %v, want out %v", path, err, out)
		}
	}
	for _, path := range []string{"ws/loop", "ws/none/x"} {
		if _, err := resolve(at(path)); err == nil {
			t.Errorf("%s was resolved", path)
		}
	}
}

func TestNormalizedLimits(t *testing.T) {
	p, err := Policy{Level: ReadOnly, Limits: Limits{MinFreeBytes: -1}}.normalized()
	if err != nil || p.Limits.Pids != 4096 || p.Limits.TmpBytes != 1<<30 || p.Limits.MinFreeBytes != -1 {
		t.Errorf("%+v, %v", p.Limits, err)
	}
	again, err := p.normalized()
	if err != nil || again.Key() != p.Key() {
		t.Errorf("normalizing twice changes the policy: %v", err)
	}
	if p, _ := (Policy{Level: FullAccess}).normalized(); p.Limits.Pids != 0 {
		t.Errorf("full access: %+v", p.Limits)
	}
}
