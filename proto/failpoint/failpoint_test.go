package failpoint

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// The test runs itself as the process that is to end. In a build without the
// tag the process must survive.
func TestHit(t *testing.T) {
	if os.Getenv("FAILPOINT_CHILD") != "" {
		Hit("other")
		Hit("here")
		Hit("here")
		if Enabled {
			os.Exit(3) // one time too many
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestHit$")
	cmd.Env = append(os.Environ(), "FAILPOINT_CHILD=1", Env+"=somewhere,here:2")
	err := cmd.Run()
	var exit *exec.ExitError
	killed := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
	if killed != Enabled {
		t.Fatalf("enabled %v, ended by %v", Enabled, err)
	}
}
