package e2e

import (
	"flag"
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
	// Parallel tests of this package wait for most of their time: for a fence, for
	// silence, for nothing to happen. -parallel on the command line is stronger.
	if err := flag.Set("test.parallel", "16"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	flag.Parse()
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
	if err := buildHeddle(filepath.Join(dir, "heddle")); err != nil {
		return err
	}
	return goBuild("1", "-tags", "runc_nocriu netgo osusergo", "-ldflags", "-s -w -extldflags -static",
		"-o", filepath.Join(dir, "heddle-guest"), "./cmd/heddle-guest")
}

// buildHeddle makes the program without a sandbox helper in it, whatever GOFLAGS says.
func buildHeddle(to string) error { return goBuild("0", "-tags=", "-o", to, "./cmd/heddle") }

func goBuild(cgo string, args ...string) error {
	root, err := filepath.Abs("../../../..")
	if err != nil {
		return err
	}
	cmd := exec.Command("go", append([]string{"build"}, args...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %v: %w\n%s", args, err, out)
	}
	return nil
}
