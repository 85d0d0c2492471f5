package sandbox

import (
	"os"
	"path/filepath"
	"strings"
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
	areas := []string{at("ws")}
	for path, out := range map[string]bool{"ws": false, "ws/sub": false, "alias": false, "alias/sub": false, "ws/in/deep": false, "other": false,
		"ws/none/x": false, "ws/loop": false, "ws/out": true, "alias/up": true, "far": true, "ws/sub/../out/x": true} {
		if area, target := leadsOut(at(path), areas); (area != "") != out {
			t.Errorf("%s: out of %q to %q, want %v", path, area, target, out)
		}
	}
	err = checkRoots([]string{at("ws"), at("ws/up")}, []string{at("ws"), at("other")})
	if err == nil || !strings.Contains(err.Error(), "commands can change") {
		t.Errorf("%v", err)
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
