package sandbox

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// pointer is a .git file or link.
type pointer struct {
	id    fileID
	ctime int64
	again bool
	known string // what it led to when it was the user's
}

// pointer looks at a .git that is a file or a link. What it leads to is a repository, wherever it lies.
func (p *pass) pointer(path string, ptr *pointer) {
	st, ok := lstat(path)
	if !ok || st.Mode&unix.S_IFMT == unix.S_IFDIR {
		delete(p.pointers, path)
		return
	}
	id, ctime := fileID{st.Dev, st.Ino}, st.Ctim.Nano()
	if ptr.id == id && ptr.ctime == ctime && !ptr.again {
		return
	}
	kind := p.kind(st.Dev, path)
	to := ""
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		to, _ = os.Readlink(path)
	} else if line, err := readLine(path); err == nil {
		if dir, ok := strings.CutPrefix(line, "gitdir:"); ok {
			to = strings.TrimSpace(dir)
		}
	}
	ptr.id, ptr.ctime, ptr.again = id, ctime, p.unsettled(kind, ctime)
	if to == "" {
		return // git does not take it for a repository
	}
	mine := false
	if now, ok := lstat(path); ok && id == (fileID{now.Dev, now.Ino}) { // it may have changed before it was read
		mine = p.users(kind, now.Ctim.Nano())
	}
	to = absolute(to, filepath.Dir(path))
	real, err := filepath.EvalSymlinks(to)
	if err != nil {
		ptr.again, real = true, to // what is missing may appear
	}
	if !p.inside(real) {
		if mine || ptr.known == real {
			ptr.known = real
			return
		}
		p.out = append(p.out, remove(path, p.quarantine, "a command made this lead git to "+real+", outside the writable folders"))
		ptr.again = true
		return
	}
	if err == nil {
		p.found(real, mine)
	}
}
