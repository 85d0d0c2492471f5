package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// heddleBin is the program under test, with its sandbox helper beside it.
var heddleBin string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	if code, done := tap(); done {
		return code
	}
	dir, err := os.MkdirTemp("", "heddle-e2e-bin-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	heddleBin = os.Getenv("HEDDLE_BIN")
	if heddleBin == "" {
		if err := build(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		heddleBin = filepath.Join(dir, "heddle")
	}
	return m.Run()
}

// build makes both programs from the sources that are tested.
func build(dir string) error {
	root, err := filepath.Abs("../../../..")
	if err != nil {
		return err
	}
	for _, b := range []struct {
		cgo  string
		args []string
	}{
		{"0", []string{"build", "-o", filepath.Join(dir, "heddle"), "./cmd/heddle"}},
		{"1", []string{"build", "-tags", "runc_nocriu netgo osusergo", "-ldflags", "-s -w -extldflags -static", "-o", filepath.Join(dir, "heddle-guest"), "./cmd/heddle-guest"}},
	} {
		cmd := exec.Command("go", b.args...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+b.cgo)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go %v: %w\n%s", b.args, err, out)
		}
	}
	return nil
}
