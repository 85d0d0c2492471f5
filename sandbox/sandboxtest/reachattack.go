package sandboxtest

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reachAttacks look at everything that can be seen inside, not at one example.
var reachAttacks = map[string]func(args []string) error{
	"reach":    reach,
	"writable": writable,
	"others":   others,
	"devices":  devices,
	"int80":    int80,
	"each": func(a []string) error {
		err := error(unix.ENETUNREACH)
		for _, addr := range a {
			if e := dial("tcp", addr); e == nil {
				err = nil
			}
			if c, e := net.Dial("udp", addr); e == nil {
				_, _ = c.Write([]byte("x"))
				c.Close()
			}
		}
		return err
	},
	"loopback6": func([]string) error {
		if err := loopbackOn("[::1]:0"); err != nil {
			return err
		}
		a, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer a.Close()
		if _, err := a.WriteTo([]byte("k"), a.LocalAddr()); err != nil {
			return err
		}
		_ = a.SetReadDeadline(time.Now().Add(2 * time.Second))
		_, _, err = a.ReadFrom(make([]byte, 1))
		return err
	},
	"swap": func(a []string) error {
		for exchange(a[0], a[1]) == nil {
			continue
		}
		return fmt.Errorf("%s and %s cannot be exchanged", a[0], a[1])
	},
	"euid": func([]string) error {
		if os.Geteuid() == os.Getuid() {
			return unix.EPERM
		}
		return nil
	},
}

// reach tries TCP and UDP to each address. Only an answer that comes at once says that there is no way: elsewhere a
// connection would wait.
func reach(addresses []string) error {
	var refusal error
	for _, addr := range addresses {
		for _, network := range []string{"tcp", "udp"} {
			c, err := net.DialTimeout(network, addr, time.Second)
			if err == nil {
				c.Close()
				return nil
			}
			if refusal = err; !isRefusal(err) {
				return err
			}
		}
	}
	return refusal
}

// writable looks for a file below the roots that can be opened for writing, but for what is about the caller's own
// processes.
func writable(roots []string) error {
	tried, found := 0, ""
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case d == nil, err != nil && !d.IsDir():
				return nil
			case err != nil:
				return fs.SkipDir
			case filepath.Dir(path) == "/proc" && (strings.HasSuffix(path, "self") || strings.Trim(d.Name(), "0123456789") == ""):
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			case !d.Type().IsRegular():
				return nil
			}
			tried++
			fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err != nil {
				return nil
			}
			var st unix.Stat_t
			if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG { // and no cover of /dev/null
				found += path + "\n"
			}
			unix.Close(fd)
			return nil
		})
		if err != nil {
			return err
		}
		if found != "" {
			fmt.Fprint(os.Stdout, found)
			return nil
		}
	}
	if tried < 20 {
		return fmt.Errorf("only %d files were there to be tried", tried)
	}
	return fmt.Errorf("none of %d files: %w", tried, unix.EROFS)
}

// devices fails when there is a device beside those that every program may use.
func devices([]string) error {
	known := []string{"null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"}
	found := error(unix.EPERM)
	err := filepath.WalkDir("/dev", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeDevice == 0 || strings.HasPrefix(path, "/dev/pts/") {
			return nil
		}
		for _, name := range known {
			if path == "/dev/"+name {
				return nil
			}
		}
		if fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
			unix.Close(fd)
			fmt.Fprintln(os.Stdout, path)
			found = nil
		}
		return nil
	})
	if err != nil {
		return err
	}
	return found
}

// others tries to look into, or take over, every process but the caller.
func others([]string) error {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	seen := 0
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if cmdline, err := os.ReadFile(filepath.Join(dir, "cmdline")); pid == os.Getpid() || err != nil || len(cmdline) == 0 {
			continue // itself, gone, or the kernel's
		}
		seen++
		for what, try := range map[string]func() error{
			"environ": func() error { return openFor(filepath.Join(dir, "environ"), unix.O_RDONLY) },
			"mem":     func() error { return openFor(filepath.Join(dir, "mem"), unix.O_RDWR) },
			"maps":    func() error { return openFor(filepath.Join(dir, "maps"), unix.O_RDONLY) },
			"exe":     func() error { return openFor(filepath.Join(dir, "exe"), unix.O_RDONLY) },
			"root":    func() error { _, err := os.ReadDir(filepath.Join(dir, "root") + "/"); return err },
			"cwd":     func() error { _, err := os.ReadDir(filepath.Join(dir, "cwd") + "/"); return err },
			"fd":      func() error { _, err := os.Readlink(filepath.Join(dir, "fd", "0")); return err },
			"ptrace":  func() error { return call(unix.SYS_PTRACE, 0x4206, uintptr(pid)) }, // PTRACE_SEIZE, which does not stop it
			"vm": func() error {
				b := make([]byte, 8)
				_, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &b[0], Len: 8}}, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
				return err
			},
			"getfd": func() error {
				p, err := unix.PidfdOpen(pid, 0)
				if err != nil {
					return err
				}
				defer unix.Close(p)
				_, err = unix.PidfdGetfd(p, 0, 0)
				return err
			},
			"limits": func() error { // a guest that can open nothing starts no command any more
				var l unix.Rlimit
				if err := call(unix.SYS_PRLIMIT64, uintptr(pid), unix.RLIMIT_NOFILE, 0, uintptr(unsafe.Pointer(&l))); err != nil {
					return err
				}
				return call(unix.SYS_PRLIMIT64, uintptr(pid), unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(&l)))
			},
		} {
			if err := try(); !isRefusal(err) && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.ENOENT) {
				fmt.Fprintf(os.Stdout, "%s of process %d: %v\n", what, pid, err)
				return nil
			}
		}
	}
	if seen == 0 {
		return errors.New("no other process was seen")
	}
	return unix.EPERM
}

func openFor(path string, how int) error {
	fd, err := unix.Open(path, how|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// int80 runs a program of a few instructions: getpid by the 32-bit entry, exit 0 when it gave a number.
func int80([]string) error {
	if runtime.GOARCH != "amd64" {
		return unix.ENOSYS
	}
	code := []byte{
		0xb8, 20, 0, 0, 0, // mov eax, 20
		0xcd, 0x80, // int 0x80
		0x31, 0xff, // xor edi, edi
		0x85, 0xc0, // test eax, eax
		0x7f, 5, // jg exit
		0xbf, 1, 0, 0, 0, // mov edi, 1
		0xb8, 60, 0, 0, 0, // exit: mov eax, 60
		0x0f, 0x05, // syscall
	}
	const base, headers = 0x400000, 64 + 56
	elf := make([]byte, headers, headers+len(code))
	copy(elf, "\x7fELF\x02\x01\x01")
	put := func(at, size int, v uint64) {
		for i := range size {
			elf[at+i] = byte(v >> (8 * i))
		}
	}
	put(16, 2, 2)                          // an executable
	put(18, 2, 62)                         // for x86-64
	put(20, 4, 1)                          // version
	put(24, 8, base+headers)               // entry
	put(32, 8, 64)                         // program headers
	put(52, 2, 64)                         // size of this header
	put(54, 2, 56)                         // size of a program header
	put(56, 2, 1)                          // how many
	put(64, 4, 1)                          // to be loaded
	put(68, 4, 5)                          // readable, executable
	put(80, 8, base)                       // address
	put(88, 8, base)                       // physical address
	put(96, 8, headers+uint64(len(code)))  // size in the file
	put(104, 8, headers+uint64(len(code))) // size in memory
	put(112, 8, 0x1000)                    // alignment
	elf = append(elf, code...)
	fd, err := unix.MemfdCreate("int80", 0)
	if err != nil {
		return err
	}
	if _, err := unix.Write(fd, elf); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/fd/"+strconv.Itoa(fd), []string{"int80"}, nil)
}
