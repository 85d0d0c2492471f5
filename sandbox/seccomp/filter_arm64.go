package seccomp

import "golang.org/x/sys/unix"

const (
	auditArch   = unix.AUDIT_ARCH_AARCH64
	foreignFrom = 0
)

var frozenArch []uint32

var refusedArch = []uint32{unix.SYS_KEXEC_FILE_LOAD}

// sysChmod is the oldest of the calls that set a mode; 0 where there is none.
const sysChmod = 0
