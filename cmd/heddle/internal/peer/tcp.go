package peer

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// CheckTCP fails when the client of an accepted connection is a process in a
// nested pid namespace of this host, as every process of a contained sandbox
// is, also one with the host's network. local and remote are the addresses as
// the server sees them.
//
// The client's end is looked up in the kernel's socket table. A connection that
// is not in it comes from another host and passes. Processes of our own pid
// namespace are not examined: they may be unreadable on purpose. A process of a
// nested namespace whose descriptors cannot be read counts as the peer when it
// runs as the socket's user.
func CheckTCP(local, remote netip.AddrPort) error {
	inode, uid, found, err := findSocket(remote, local)
	if err != nil {
		return fmt.Errorf("%w: socket table cannot be read: %w", ErrRefused, err)
	}
	if !found {
		return nil
	}
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		if nested, err := inNestedPidNamespace(pid); err != nil || !nested {
			continue // gone meanwhile, or not in a sandbox
		}
		holds, err := holdsSocket(pid, inode)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && ownedBy(pid, uid) {
			return fmt.Errorf("%w: process %d in a nested namespace cannot be examined: %w", ErrRefused, pid, err)
		}
		if holds {
			return fmt.Errorf("%w: process %d runs inside a sandbox", ErrRefused, pid)
		}
	}
	return nil
}

// findSocket looks for the connection whose own end is local and whose far end
// is remote.
func findSocket(local, remote netip.AddrPort) (inode string, uid int, found bool, err error) {
	read := 0
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, openErr := os.Open(name)
		if openErr != nil {
			err = openErr
			continue
		}
		read++
		sc := bufio.NewScanner(f)
		for sc.Scan() {
			fields := strings.Fields(sc.Text())
			if len(fields) < 10 || !sameAddr(fields[1], local) || !sameAddr(fields[2], remote) {
				continue
			}
			inode, found = fields[9], true
			uid, _ = strconv.Atoi(fields[7])
		}
		_ = f.Close()
		if found {
			return inode, uid, true, nil
		}
	}
	if read > 0 {
		err = nil
	}
	return "", 0, false, err
}

// sameAddr compares "0100007F:1F90" of the socket table, whose address words
// are in host order, with an address.
func sameAddr(entry string, want netip.AddrPort) bool {
	host, port, ok := strings.Cut(entry, ":")
	if !ok {
		return false
	}
	p, err := strconv.ParseUint(port, 16, 16)
	if err != nil || uint16(p) != want.Port() {
		return false
	}
	raw, err := hex.DecodeString(host)
	if err != nil || len(raw)%4 != 0 {
		return false
	}
	for i := 0; i < len(raw); i += 4 {
		word := binary.BigEndian.Uint32(raw[i:])
		binary.NativeEndian.PutUint32(raw[i:], word)
	}
	addr, ok := netip.AddrFromSlice(raw)
	return ok && addr.Unmap() == want.Addr().Unmap().WithZone("")
}

func holdsSocket(pid int, inode string) (bool, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	fds, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	want := "socket:[" + inode + "]"
	for _, fd := range fds {
		if target, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && target == want {
			return true, nil
		}
	}
	return false, nil
}

func ownedBy(pid, uid int) bool {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "Uid:"); ok {
			fields := strings.Fields(rest)
			return len(fields) > 0 && fields[0] == strconv.Itoa(uid)
		}
	}
	return false
}
