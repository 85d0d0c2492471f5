package seccomp

import "golang.org/x/sys/unix"

const (
	auditArch   = unix.AUDIT_ARCH_X86_64
	foreignFrom = 0x40000000 // the x32 ABI
)

var frozenArch = []uint32{unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT}

var refusedArch = []uint32{unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_USELIB}

// sysChmod is the oldest of the calls that set a mode; 0 where there is none.
const sysChmod = unix.SYS_CHMOD
