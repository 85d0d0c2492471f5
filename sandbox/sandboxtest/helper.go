// Package sandboxtest tests sandboxes by their effect, seen from outside: the attack table, and what tests of
// other packages need to run real sandboxes.
package sandboxtest

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var helper = sync.OnceValues(buildHelper)

// Helper returns the path of the helper binary: $HEDDLE_GUEST, or one built for this source tree and cached
// under the temporary directory.
func Helper(tb testing.TB) string {
	tb.Helper()
	if p := os.Getenv("HEDDLE_GUEST"); p != "" {
		return p
	}
	p, err := helper()
	if err != nil {
		tb.Fatalf("build sandbox helper: %v", err)
	}
	return p
}

func buildHelper() (string, error) {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	root := filepath.Dir(strings.TrimSpace(string(mod)))
	sum := sha256.Sum256([]byte(root))
	dir := filepath.Join(os.TempDir(), "heddle-guest-"+hex.EncodeToString(sum[:6]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	out := filepath.Join(dir, "heddle-guest")
	tmp := out + "." + hex.EncodeToString(sum[6:8]) + "-" + filepath.Base(os.Args[0])
	c := exec.Command("go", "build", "-trimpath", "-tags", "runc_nocriu netgo osusergo", "-ldflags", "-s -w -extldflags -static", "-o", tmp, "./cmd/heddle-guest")
	c.Dir = root
	c.Env = append(os.Environ(), "CGO_ENABLED=1")
	if b, err := c.CombinedOutput(); err != nil {
		os.Stderr.Write(b)
		return "", err
	}
	return out, os.Rename(tmp, out)
}
