//go:build failpoint

// Package failpoint lets tests end the process at named places. It does nothing
// unless the program is built with the tag "failpoint".
package failpoint

import (
	"os"
	"strings"
	"syscall"
)

// Env names the points that end the process, separated by commas.
const Env = "HEDDLE_FAILPOINTS"

// Enabled tells whether points do anything in this build.
const Enabled = true

// Hit ends the process as kill -9 would, if the point is enabled.
func Hit(name string) {
	for point := range strings.SplitSeq(os.Getenv(Env), ",") {
		if point == name {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal is on its way
		}
	}
}
