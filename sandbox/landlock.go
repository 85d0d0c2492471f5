package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// minLandlock is the first ABI whose rules cover truncation; without it a file outside could be emptied.
	minLandlock = 3
	// maxRules bounds the rules of one sandbox: one for each name beside each denied path and its parents.
	maxRules = 8192

	accessRead  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE
	accessList  = unix.LANDLOCK_ACCESS_FS_READ_DIR
	accessNodes = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
	accessFile  = accessRead | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	accessAll   = unix.LANDLOCK_ACCESS_FS_IOCTL_DEV<<1 - 1

	landlockScopes = 1<<0 | 1<<1 // abstract unix sockets, signals
	landlockTCP    = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
)

// rules is a Landlock ruleset being made. Rules add to each other: what lies beneath a granted directory cannot be
// taken away again, so everything beside a denied path is granted by its name.
type rules struct {
	fd    int
	known uint64 // rights that this kernel can refuse
	count int
}

// landlockRules makes the rules of a plan: everything but denied paths can be read, and the roots and scratch
// written.
func landlockRules(p Policy, pl *plan, denied []string, scratch string, abi int) (*os.File, error) {
	attr := struct{ fs, net, scoped uint64 }{fs: accessAll}
	if abi < 5 {
		attr.fs &^= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= 4 {
		attr.net = landlockTCP
	}
	if abi >= landlockSignals {
		attr.scoped = landlockScopes
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return nil, fmt.Errorf("make Landlock rules: %w", errno)
	}
	f := os.NewFile(fd, "landlock-rules")
	r := &rules{fd: int(fd), known: attr.fs}
	err := r.fill(p, pl, denied, scratch)
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (r *rules) fill(p Policy, pl *plan, denied []string, scratch string) error {
	if err := r.add("/", accessList); err != nil { // names can be listed everywhere
		return err
	}
	if err := r.read("/", append(slices.Clone(denied), "/dev")); err != nil {
		return err
	}
	for _, d := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		if err := r.add("/dev/"+d, accessFile&^unix.LANDLOCK_ACCESS_FS_EXECUTE); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	writable := slices.Clone(pl.roots)
	if p.Tmp == TmpHost && p.Level == WorkspaceWrite {
		writable = append(writable, "/tmp")
	}
	for _, w := range append(writable, scratch) {
		if i := slices.IndexFunc(denied, func(d string) bool { return within(d, w) }); i >= 0 {
			return fmt.Errorf("%s cannot be kept from being read: it lies in the writable %s, and Landlock takes nothing out of that", denied[i], w)
		}
		if err := r.add(w, accessAll&^accessNodes); err != nil {
			return err
		}
	}
	return nil
}

// read grants reading of all in dir that is not denied.
func (r *rules) read(dir string, denied []string) error {
	if slices.Contains(denied, dir) {
		return nil
	}
	if !slices.ContainsFunc(denied, func(d string) bool { return within(d, dir) }) {
		return r.add(dir, accessRead|accessList)
	}
	ents, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("list what is beside denied paths: %w", err)
	}
	for _, e := range ents {
		if e.Type()&os.ModeSymlink != 0 {
			continue // what it leads to has a rule of its own
		}
		if err := r.read(filepath.Join(dir, e.Name()), denied); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) {
			return err
		}
	}
	return nil
}

// add grants rights beneath a path, as far as they are known and make sense for what it is.
func (r *rules) add(path string, access uint64) error {
	if r.count++; r.count > maxRules {
		return fmt.Errorf("more than %d names lie beside the paths that must not be read", maxRules)
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "grant access to", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "grant access to", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		access &= accessFile
	}
	var attr [12]byte // struct landlock_path_beneath_attr is packed
	*(*uint64)(unsafe.Pointer(&attr[0])) = access & r.known
	*(*int32)(unsafe.Pointer(&attr[8])) = int32(fd)
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(r.fd), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr[0])), 0, 0, 0); errno != 0 {
		return &os.PathError{Op: "grant access to", Path: path, Err: errno}
	}
	return nil
}
