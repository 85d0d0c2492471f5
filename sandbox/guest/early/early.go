// Package early holds the parts of the helper that must run before the Go runtime has started threads: entering
// a user namespace of its own, and the subreaper that ends everything a command started on hosts without a
// usable cgroup hierarchy. Importing it is enough; it acts only in processes started for these purposes.
package early

// ShimArg0 is the first argument of a subreaper. The others are: flags ("t" for a terminal, "s" to confine
// signals, "l" with it below rules for files, or "-"), the grace for leftovers in milliseconds, the program's path, and its argument vector. It
// reports on descriptor ShimFD.
const (
	ShimArg0 = "heddle-shim"
	ShimFD   = 3
)

// TimerSlack is the kernel's default for how late a timer may fire, in nanoseconds. The guest gives itself more;
// commands get this.
const TimerSlack = 50000

// NestEnv, when set to "uid:gid", makes PID 1 move into a user namespace in which it has these ids.
const NestEnv = "HEDDLE_NEST"

// LandlockEnv, when set, makes a guest enter the Landlock rules on descriptor LandlockFD, without capabilities.
const (
	LandlockEnv = "HEDDLE_LANDLOCK"
	LandlockFD  = 5
)

// Report records of a subreaper, fixed size, host byte order: int32 kind, int32 value, int64 user and system
// microseconds, int32 leftovers, int32 unused.
const (
	ReportLen     = 32
	ReportStarted = 1 // value is the pid
	ReportFailed  = 2 // value is the errno of exec
	ReportEnded   = 3 // value is the wait status
)

// CoverEnv, when set, makes the process hide paths in the sandbox whose user and mount namespaces are its
// descriptors 3 and 4, and exit. The list on descriptor 5 holds zero-terminated the path of an empty directory and
// of an empty file that are mounted in the sandbox, then each path to hide after "d" or "f".
const CoverEnv = "HEDDLE_COVER"
