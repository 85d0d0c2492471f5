package sandbox

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pass is one look.
type pass struct {
	*scanner
	now   moment     // when it began
	queue []scanStep // directories that were never read: broad before deep, so that the bounds fall on the deepest
	out   []Violation
	shut  bool // something of ours could not be read
}

// look compares everything with the last look. The caller holds the turn.
func (sc *scanner) look() []Violation { return sc.newPass().run() }

func (sc *scanner) newPass() *pass {
	sc.looked = time.Now()
	return &pass{scanner: sc, now: sc.stamper.now()}
}

func (p *pass) run() []Violation {
	for _, r := range p.roots {
		p.visit(r, r.name, 0)
	}
	for len(p.queue) > 0 {
		q := p.queue[0]
		p.queue = p.queue[1:]
		p.visit(q.dir, q.path, q.depth)
	}
	for path := range p.gits {
		p.found(path, true)
	}
	p.expose()
	for path := range p.exposed {
		if st, ok := lstat(path); ok && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			p.found(path, true)
		} else if ok && p.pointers[path] == nil {
			p.pointers[path] = &pointer{}
		}
	}
	for path, ptr := range p.pointers {
		p.pointer(path, ptr)
	}
	for more := true; more; { // one may lead to others
		more = false
		for path, r := range p.repos {
			if r.looked != p.looked {
				r.looked, more = p.looked, true
				p.check(path, r)
			}
		}
	}
	p.sawAll(!p.shut)
	p.size.Store(int64(p.dirs + 8*len(p.repos)))
	return p.out
}

// kind tells who stamps the files of a device.
func (p *pass) kind(dev uint64, path string) stampKind {
	k := p.kinds[dev]
	if k == 0 {
		k = stampKindOf(path)
		p.kinds[dev] = k
		if k == stampRemote {
			p.remote.Store(true)
		}
	}
	return k
}

// users reports whether a change with this stamp, of something that was read already, is the user's for certain.
func (p *pass) users(k stampKind, ctime int64) bool {
	since, ran := p.ran()
	return !ran || k.before(ctime, since.today())
}

// unsettled reports whether something that was read in this look may change again without another stamp. Memory that
// a running command has mapped changes so, but only after a first change that is stamped.
func (p *pass) unsettled(k stampKind, ctime int64) bool {
	at := p.now
	if since, ran := p.ran(); ran {
		at = since
	}
	return !k.before(ctime, at.today())
}

// closed notes something that could not be read since commands ran. What belongs to others is not theirs to open again.
func (p *pass) closed(err error, st unix.Stat_t, path string) {
	if errors.Is(err, unix.EACCES) && int(st.Uid) == os.Geteuid() && !p.users(p.kind(st.Dev, path), st.Ctim.Nano()) {
		p.shut = true
	}
}

// inside reports whether path lies in a root or a repository that is writable.
func (p *pass) inside(path string) bool {
	for _, r := range p.roots {
		if within(path, r.name) {
			return true
		}
	}
	for g := range p.gits {
		if within(path, g) {
			return true
		}
	}
	return false
}

func lstat(path string) (st unix.Stat_t, ok bool) { return st, unix.Lstat(path, &st) == nil }

type fileID struct{ dev, ino uint64 }
