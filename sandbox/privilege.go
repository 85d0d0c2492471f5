package sandbox

import (
	"os"
	"strconv"
	"strings"
	"sync"
)

// rootCaps are the capabilities with which a sandbox is made as root: chown, dac_override, setgid, setuid, sys_admin.
const rootCaps = 1<<0 | 1<<1 | 1<<6 | 1<<7 | 1<<21

// privileged reports whether this process is root with root's rights. A root without them, as in most containers,
// makes its sandboxes as an ordinary user does.
var privileged = sync.OnceValue(func() bool {
	if os.Geteuid() != 0 {
		return false
	}
	caps := uint64(0)
	_ = eachLine("/proc/self/status", func(l string) {
		if v, ok := strings.CutPrefix(l, "CapEff:"); ok {
			caps, _ = strconv.ParseUint(strings.TrimSpace(v), 16, 64)
		}
	})
	return caps&rootCaps == rootCaps
})
