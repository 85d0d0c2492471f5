package sandbox

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// stamper tells changes before a moment from those after it, by the clock that the kernel stamps files with. That
// clock stands still between ticks, and for longer on a machine that is short of processors, so that no margin
// around the time of day would do. A moment is therefore read from that clock itself: what is changed after it has
// no older stamp, and what was changed before it has an older one, except within the same tick where the kernel
// stamps by ticks only.
type stamper struct {
	mu   sync.Mutex
	file *os.File // in memory, for its change time only; nil where it could not be made
	flip uint32
}

// moment is a point in the order of changes.
type moment struct {
	fine   int64         // the stamp of a file system with stamps between ticks, nanoseconds
	coarse int64         // the last tick
	boot   time.Duration // on the clock that nobody sets
}

func newStamper() *stamper {
	s := &stamper{}
	if fd, err := unix.MemfdCreate("heddle-stamp", unix.MFD_CLOEXEC); err == nil {
		s.file = os.NewFile(uintptr(fd), "heddle-stamp")
	}
	return s
}

func (s *stamper) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}

// now returns the present moment. A file that was looked at since its last change gets a stamp between ticks from
// kernels that have those (6.13), and no file gets an older one afterwards.
func (s *stamper) now() moment {
	m := moment{coarse: int64(clock(unix.CLOCK_REALTIME_COARSE))}
	m.fine = m.coarse
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil {
		var st unix.Stat_t
		err := error(nil)
		for i := 0; i < 2 && err == nil; i++ { // the first may still get the tick's
			s.flip ^= 0o100
			if err = unix.Fchmod(int(s.file.Fd()), 0o600|s.flip); err == nil {
				err = unix.Fstat(int(s.file.Fd()), &st)
			}
		}
		if err == nil {
			m.fine = st.Ctim.Nano()
		}
	}
	m.boot = clock(unix.CLOCK_BOOTTIME)
	return m
}

// today returns the moment in the present time of day: when that was set back since, later changes may have stamps
// that are older than the moment's.
func (m moment) today() moment {
	const quick = 50 * time.Microsecond
	for range 8 {
		before := clock(unix.CLOCK_BOOTTIME)
		day := clock(unix.CLOCK_REALTIME)
		if clock(unix.CLOCK_BOOTTIME)-before > quick {
			continue // interrupted in between
		}
		if again := int64(day - (before - m.boot)); again < m.coarse {
			m.fine, m.coarse = again-int64(quick), again-int64(quick)
		}
		break
	}
	return m
}

func clock(id int32) time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(id, &t) != nil { // only for an unknown clock
		return 0
	}
	return time.Duration(t.Nano())
}

// stampKind is who stamps the files of a file system.
type stampKind uint8

const (
	stampRemote stampKind = iota + 1 // another machine or program: nothing can be told from it
	stampCoarse                      // this kernel, by ticks
	stampFine                        // this kernel, between ticks where it can
)

// stampKindOf tells it of the file system at path.
func stampKindOf(path string) stampKind {
	const zfs, bcachefs = 0x2fc12fc1, 0xca451a4e
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil {
		return stampRemote
	}
	switch uint32(st.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC:
		return stampFine
	case unix.F2FS_SUPER_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, zfs, bcachefs:
		return stampCoarse
	}
	return stampRemote
}

// before reports whether a change with this stamp came certainly before m.
func (k stampKind) before(ctime int64, m moment) bool {
	at := m.coarse
	switch k {
	case stampRemote:
		return false
	case stampFine:
		at = m.fine
	}
	if ctime%int64(time.Second) == 0 { // a file system that keeps whole seconds
		at -= int64(time.Second)
	}
	return ctime < at
}
