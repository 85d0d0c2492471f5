package sandboxtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// AttackEnv makes a test binary act as the attack tool: its arguments are an operation and its parameters. It
// exits 0 when the operation succeeded. With the error on standard output it exits 1 when it was refused, and 2 when
// it failed in another way, as a call with bad parameters does that nobody refused.
const AttackEnv = "SANDBOX_ATTACK"

// Attack runs an operation when this process was started as the attack tool, and returns otherwise.
func Attack() {
	if os.Getenv(AttackEnv) == "" || len(os.Args) < 2 {
		return
	}
	op := attacks[os.Args[1]]
	for _, more := range []map[string]func([]string) error{proxyAttacks, reachAttacks} {
		if op == nil {
			op = more[os.Args[1]]
		}
	}
	if op == nil {
		fmt.Fprintln(os.Stdout, "no such operation")
		os.Exit(3)
	}
	runtime.LockOSThread()
	if err := op(os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stdout, err)
		if !isRefusal(err) {
			os.Exit(2)
		}
		os.Exit(1)
	}
	os.Exit(0)
}

// isRefusal tells an answer of who decides from one about the parameters.
func isRefusal(err error) bool {
	for _, e := range []error{unix.EPERM, unix.EACCES, unix.ENOSYS, unix.EROFS, unix.EAFNOSUPPORT, unix.ESOCKTNOSUPPORT, unix.ENETUNREACH, unix.EADDRNOTAVAIL} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func call(nr uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	_, _, errno := unix.Syscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return errno
	}
	return nil
}

func socket(family, kind, proto int) error {
	fd, err := unix.Socket(family, kind, proto)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

func dial(network, addr string) error {
	c, err := net.DialTimeout(network, addr, 2*time.Second)
	if err == nil {
		c.Close()
	}
	return err
}

// attacks are single system calls and small sequences that no shell can do.
var attacks = map[string]func(args []string) error{
	"mount":       func(a []string) error { return unix.Mount("x", a[0], "tmpfs", 0, "") },
	"remount-rw":  func(a []string) error { return unix.Mount("", a[0], "", unix.MS_REMOUNT|unix.MS_BIND, "") },
	"umount":      func(a []string) error { return unix.Unmount(a[0], unix.MNT_DETACH) },
	"fsopen":      func([]string) error { _, err := unix.Fsopen("tmpfs", 0); return err },
	"open_tree":   func(a []string) error { _, err := unix.OpenTree(unix.AT_FDCWD, a[0], unix.OPEN_TREE_CLONE); return err },
	"chroot":      func(a []string) error { return unix.Chroot(a[0]) },
	"pivot_root":  func(a []string) error { return unix.PivotRoot(a[0], a[0]) },
	"unshare-ns":  func([]string) error { return unix.Unshare(unix.CLONE_NEWNS) },
	"clone3-user": clone3User,
	"setns-1": func([]string) error {
		f, err := os.Open("/proc/1/ns/mnt")
		if err != nil {
			return err
		}
		return unix.Setns(int(f.Fd()), unix.CLONE_NEWNS)
	},
	"setns-self": func([]string) error { // where nobody refuses, its own user namespace is a bad parameter
		f, err := os.Open("/proc/self/ns/user")
		if err != nil {
			return err
		}
		return unix.Setns(int(f.Fd()), unix.CLONE_NEWUSER)
	},
	"handle": func(a []string) error {
		h, m, err := unix.NameToHandleAt(unix.AT_FDCWD, a[0], 0)
		if err != nil {
			return err
		}
		_ = m
		_, err = unix.OpenByHandleAt(unix.AT_FDCWD, h, unix.O_RDONLY)
		return err
	},
	"ptrace-1": func([]string) error { return unix.PtraceAttach(1) },
	"vm-read-1": func([]string) error {
		b := make([]byte, 8)
		_, err := unix.ProcessVMReadv(1, []unix.Iovec{{Base: &b[0], Len: 8}}, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
		return err
	},
	"ptrace-child": ptraceChild,
	"self-mem": func([]string) error {
		f, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
		if err != nil {
			return err
		}
		x, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return err
		}
		if _, err := f.WriteAt([]byte("z"), int64(uintptr(unsafe.Pointer(&x[0])))); err != nil {
			return err
		}
		if x[0] != 'z' {
			return fmt.Errorf("not written")
		}
		return nil
	},
	"open-rw": func(a []string) error { _, err := os.OpenFile(a[0], os.O_WRONLY, 0); return err },
	"open-r":  func(a []string) error { f, err := os.Open(a[0]); f.Close(); return err },
	"mknod":   func(a []string) error { return unix.Mknod(a[0], unix.S_IFBLK|0o600, int(unix.Mkdev(254, 0))) },
	"io_uring": func([]string) error {
		p := make([]byte, 256)
		return call(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&p[0])))
	},
	"bpf": func([]string) error {
		p := make([]byte, 128)
		p[0], p[4], p[8], p[12] = 2, 4, 4, 1 // an array of one entry, in the order of x86-64 and arm64
		return call(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&p[0])), 128)
	},
	"perf": func([]string) error {
		_, err := unix.PerfEventOpen(&unix.PerfEventAttr{Type: 1, Size: 112, Bits: 1 << 5}, 0, -1, -1, 0)
		return err
	},
	"userfaultfd": func([]string) error { return call(unix.SYS_USERFAULTFD, 1) },
	"keyctl": func([]string) error {
		_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_SESSION_KEYRING, true)
		return err
	},
	"add_key": func([]string) error {
		_, err := unix.AddKey("user", "x", []byte("y"), unix.KEY_SPEC_PROCESS_KEYRING)
		return err
	},
	"syslog":        func([]string) error { _, err := unix.Klogctl(3, make([]byte, 64)); return err },
	"clock_settime": func([]string) error { return unix.ClockSettime(unix.CLOCK_REALTIME, &unix.Timespec{Sec: -1}) },
	"init_module":   func([]string) error { return unix.InitModule([]byte{0}, "") },
	"sched-fifo": func([]string) error {
		p := int32(1)
		return call(unix.SYS_SCHED_SETSCHEDULER, 0, 1, uintptr(unsafe.Pointer(&p)))
	},
	"sethostname": func(a []string) error { return unix.Sethostname([]byte("owned")) },
	"tiocsti": func([]string) error {
		c := byte('x')
		return call(unix.SYS_IOCTL, 0, unix.TIOCSTI, uintptr(unsafe.Pointer(&c)))
	},
	"tiocsti-high": func([]string) error {
		c := byte('x')
		return call(unix.SYS_IOCTL, 0, unix.TIOCSTI|1<<32, uintptr(unsafe.Pointer(&c)))
	},
	"tioclinux": func([]string) error {
		c := byte(2) // what is selected
		return call(unix.SYS_IOCTL, 0, 0x541c, uintptr(unsafe.Pointer(&c)))
	},
	"x32":       func([]string) error { return call(0x40000000 + unix.SYS_GETPID) },
	"raw":       func([]string) error { return socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP) },
	"packet":    func([]string) error { return socket(unix.AF_PACKET, unix.SOCK_RAW, 0) },
	"vsock":     func([]string) error { return socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0) },
	"alg":       func([]string) error { return socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0) },
	"netlink":   func([]string) error { return socket(unix.AF_NETLINK, unix.SOCK_RAW, 0) },
	"dial":      func(a []string) error { return dial(a[0], a[1]) },
	"dial-race": func(a []string) error { return dialRace(a[0]) },
	"send-unixgram": func(a []string) error {
		c, err := net.Dial("unixgram", a[0])
		if err == nil {
			_, err = c.Write([]byte("x"))
			c.Close()
		}
		if err == nil {
			return nil
		}
		// Another way to the same kind of socket.
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		return unix.Sendto(p[0], []byte("x"), 0, &unix.SockaddrUnix{Name: a[0]})
	},
	"loopback": loopback,
	"own-unix": func(a []string) error {
		l, err := net.Listen("unix", a[0])
		if err != nil {
			return err
		}
		defer l.Close()
		return dial("unix", a[0])
	},
	"chown":       func(a []string) error { return os.Chown(a[0], os.Getuid(), os.Getgid()) },
	"setxattr":    func(a []string) error { return unix.Setxattr(a[0], "user.x", []byte("y"), 0) },
	"setuid-0":    func([]string) error { return unix.Setresuid(0, 0, 0) },
	"exchange":    func(a []string) error { return exchange(a[0], a[1]) },
	"setuid-file": setuidFile,
	"bind-unix": func(a []string) error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrUnix{Name: a[0]})
	},
	"kill":           func(a []string) error { pid, _ := strconv.Atoi(a[0]); return unix.Kill(pid, unix.SIGKILL) },
	"fds":            openFDs,
	"core-limit":     coreLimit,
	"replace-proc-1": func([]string) error { _, err := os.OpenFile("/proc/1/exe", os.O_WRONLY, 0); return err },
	"fill": func(a []string) error {
		f, err := os.Create(a[0])
		if err != nil {
			return err
		}
		defer os.Remove(a[0])
		n, _ := strconv.ParseInt(a[1], 10, 64)
		return unix.Fallocate(int(f.Fd()), 0, 0, n)
	},
}

// setuidFile makes a program with the set-user-id bit by one of the calls that can.
func setuidFile(a []string) error {
	how, path := a[0], a[1]
	mode := uint32(0o755)
	if how == "open" {
		mode |= unix.S_ISUID
	}
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR, mode)
	if err != nil {
		return err
	}
	if _, err := unix.Write(fd, []byte("#!/bin/sh\n")); err != nil {
		return err
	}
	switch how {
	case "chmod":
		return syscall.Chmod(path, mode|unix.S_ISUID)
	case "fchmod":
		return unix.Fchmod(fd, mode|unix.S_ISUID)
	case "fchmodat":
		return unix.Fchmodat(unix.AT_FDCWD, path, mode|unix.S_ISUID, 0)
	case "fchmodat2":
		return unix.Fchmodat(unix.AT_FDCWD, path, mode|unix.S_ISUID, unix.AT_SYMLINK_NOFOLLOW)
	}
	return nil
}

func clone3User([]string) error {
	args := struct{ flags, pidfd, childTID, parentTID, exit, stack, size, tls uint64 }{flags: unix.CLONE_NEWUSER, exit: uint64(unix.SIGCHLD)}
	r, _, errno := unix.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
	if errno == unix.ENOSPC {
		return fmt.Errorf("no user namespace is left: %w", unix.EPERM) // user.max_user_namespaces
	}
	if errno != 0 {
		return errno
	}
	if r == 0 {
		unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	return nil
}

func ptraceChild([]string) error {
	c := exec.Command("/bin/true")
	c.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := c.Start(); err != nil {
		return err
	}
	_ = c.Wait() // the stop before its first instruction
	return unix.PtraceCont(c.Process.Pid, 0)
}

// dialRace connects to a socket of its own while another thread changes the address to target and back, and the
// descriptor between two sockets.
func dialRace(target string) error {
	own := fmt.Sprintf("/tmp/race-%d", os.Getpid())
	l, err := net.Listen("unix", own)
	if err != nil {
		return err
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	var addr [128]byte
	set := func(path string) {
		copy(addr[2:], path)
		addr[2+len(path)] = 0
	}
	*(*uint16)(unsafe.Pointer(&addr[0])) = unix.AF_UNIX
	set(own)
	go func() {
		runtime.LockOSThread()
		for {
			set(target)
			set(own)
		}
	}()
	for range 3000 {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		_, _, errno := unix.Syscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&addr[0])), 110)
		if errno == 0 {
			if peer, err := unix.Getpeername(fd); err == nil && peer.(*unix.SockaddrUnix).Name == target {
				return nil
			}
		}
		unix.Close(fd)
	}
	return fmt.Errorf("not reached")
}

func loopback([]string) error { return loopbackOn("127.0.0.1:0") }

func loopbackOn(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			c.Write([]byte("k"))
			c.Close()
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return err
	}
	var b [1]byte
	_, err = c.Read(b[:])
	return err
}

func openFDs([]string) error {
	for fd := 3; fd < 256; fd++ {
		link, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
		if err != nil || strings.HasPrefix(link, "/sys/fs/cgroup/") && strings.HasPrefix(filepath.Base(link), "cpu.") || link == "anon_inode:[eventpoll]" || link == "anon_inode:[eventfd]" {
			continue // nothing, or the runtime's own
		}
		return fmt.Errorf("descriptor %d is %s", fd, link)
	}
	return nil
}

func coreLimit([]string) error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &l); err != nil {
		return err
	}
	if l.Cur != 0 || l.Max != 0 {
		return fmt.Errorf("core limit is %d/%d", l.Cur, l.Max)
	}
	return nil
}
