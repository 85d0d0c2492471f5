//go:build failpoint

// Package failpoint lets tests end the process at named places and make its
// store fail. It does nothing unless the program is built with the tag
// "failpoint".
package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Env names the points that end the process, separated by commas. With ":N"
// behind its name a point ends it at the N-th time that it is reached. "@FILE"
// reads them from a file when the process starts.
const Env = "HEDDLE_FAILPOINTS"

// StoreEnv asks for faults of the store's commits; see faultstore.FromSetting.
const StoreEnv = "HEDDLE_STORE_FAULTS"

// LogEnv names a file to which each point that ends a process adds its name.
const LogEnv = "HEDDLE_FAILPOINTS_LOG"

// Enabled tells whether points do anything in this build.
const Enabled = true

// Setting is the value of one of the variables, or the first line of the file
// that "@FILE" names.
func Setting(name string) string {
	v := os.Getenv(name)
	if path, ok := strings.CutPrefix(v, "@"); ok {
		data, err := os.ReadFile(path)
		if err != nil {
			return ""
		}
		v, _, _ = strings.Cut(string(data), "\n")
	}
	return v
}

// points counts down to the end, for each enabled point.
var points = sync.OnceValue(func() map[string]*atomic.Int64 {
	all := map[string]*atomic.Int64{}
	for point := range strings.SplitSeq(Setting(Env), ",") {
		name, count, _ := strings.Cut(point, ":")
		n, err := strconv.ParseInt(count, 10, 64)
		if err != nil {
			n = 1
		}
		all[name] = &atomic.Int64{}
		all[name].Store(max(n, 1))
	}
	return all
})

// Hit ends the process as kill -9 would, if the point is enabled and due.
func Hit(name string) {
	left := points()[name]
	if left == nil || left.Add(-1) != 0 {
		return
	}
	if log, err := os.OpenFile(os.Getenv(LogEnv), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600); err == nil {
		_, _ = log.WriteString("ended at " + name + "\n")
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way
}
