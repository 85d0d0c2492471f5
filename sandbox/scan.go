package sandbox

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxDirs and maxRepos bound what one sandbox watches, breadth of the top levels first.
	maxDirs  = 32768
	maxRepos = 1024
	maxDepth = 64
	// clockTick is the coarsest step of file times; a change within one of the last look may not show.
	clockTick = 11 * time.Millisecond
	// inlineDirs is up to how many directories the look after a command is part of its end at once.
	inlineDirs = 256
	// minLook is how long a command's end waits for its look at least: a result that came earlier would leave a
	// moment in which what was planted is there. Only enormous trees take longer; they get a share of the
	// command's time, and what is found later is told by the next result.
	minLook = 250 * time.Millisecond
	// settleLook is when file actions are followed by a look if no command was before.
	settleLook = 200 * time.Millisecond
)

// scanner finds repositories below the writable roots and what commands put into them that git would run later:
// no mount can prevent that, because names may appear anywhere. It compares directories by their change times, which
// cannot be set, so an unchanged tree costs one stat per directory. What changed before any command of this sandbox
// ran is the user's own and becomes known; what changed since is moved away or defused, and told.
type scanner struct {
	log        *slog.Logger
	quarantine string
	turn       chan struct{} // held by who looks; guards the fields below
	roots      []*scanDir
	skip       map[string]bool   // read-only inside
	gits       map[string]bool   // repositories with mounts of their own
	frozen     map[string]bool   // parts of those that are read-only
	guard      map[string]fileID // protected .git of the newest instance
	exposed    map[string]bool   // those that the host replaced: a mount may not have held
	repos      map[string]*repo
	moved      map[fileID]known // what was known of repositories, for when they are renamed
	pointers   map[string]*pointer
	dirs       int
	looked     int64 // when the last look began

	size    atomic.Int64
	started atomic.Bool // a command has run
	dirty   atomic.Bool // a file action was not followed by a look yet
	wg      sync.WaitGroup

	mu      sync.Mutex
	running int
	since   int64 // changes from here on may be those of commands; 0: nothing has run
	late    []Violation
}

type fileID struct{ dev, ino uint64 }

// scanDir is one directory that was looked at.
type scanDir struct {
	name  string
	id    fileID
	ctime int64
	again bool // changed too short before it was read, or never read
	git   bool // a repository: only its submodules are of interest
	kids  []*scanDir
}

// pointer is a .git file or link.
type pointer struct {
	id    fileID
	ctime int64
	again bool
	known string // what it led to when it was the user's
}

func newScanner(log *slog.Logger, quarantine string) *scanner {
	return &scanner{log: log, quarantine: quarantine, turn: make(chan struct{}, 1), repos: map[string]*repo{},
		moved: map[fileID]known{}, pointers: map[string]*pointer{}, exposed: map[string]bool{}}
}

// update takes over what a new instance mounts. The caller holds the turn.
func (sc *scanner) update(pl *plan) {
	set := func(list []string) map[string]bool {
		m := map[string]bool{}
		for _, s := range list {
			m[s] = true
		}
		return m
	}
	sc.gits, sc.frozen, sc.skip = set(pl.gitDirs), set(pl.frozen), map[string]bool{}
	for _, x := range pl.expect {
		if x.readOnly {
			sc.skip[x.path] = true
		}
	}
	sc.expose()
	sc.guard = map[string]fileID{}
	for _, id := range pl.guarded {
		if filepath.Base(id.path) == gitName {
			sc.guard[id.path] = fileID{id.dev, id.ino}
		}
	}
	old := sc.roots
	sc.roots = nil
	for _, r := range pl.roots {
		if slices.ContainsFunc(pl.roots, func(o string) bool { return o != r && within(r, o) }) {
			continue // looked at with the one around it
		}
		i := slices.IndexFunc(old, func(d *scanDir) bool { return d.name == r })
		if i < 0 {
			sc.roots = append(sc.roots, &scanDir{name: r, again: true})
		} else {
			sc.roots = append(sc.roots, old[i])
		}
	}
}

// expose finds protected repositories that the host replaced. A command that ran meanwhile could write the new one.
func (sc *scanner) expose() {
	for path, id := range sc.guard {
		if st, ok := lstat(path); ok && id != (fileID{st.Dev, st.Ino}) {
			sc.exposed[path] = true
		}
	}
}

// begin tells that a command or file action starts.
func (sc *scanner) begin() {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.started.Store(true)
	if sc.since == 0 {
		sc.since = time.Now().Add(-clockTick).UnixNano()
	}
	sc.running++
}

// leave tells that what began has ended and was looked at.
func (sc *scanner) leave() {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.running--; sc.running == 0 && !sc.dirty.Load() {
		sc.since = 0
	}
}

// end looks at what a command that took d left, and returns that with what was found late of earlier ones.
func (sc *scanner) end(d time.Duration) []Violation {
	ended := time.Now().UnixNano()
	if sc.size.Load() <= inlineDirs {
		select {
		case sc.turn <- struct{}{}:
			v := sc.look(false)
			<-sc.turn
			sc.leave()
			return append(sc.takeLate(), v...)
		default:
		}
	}
	found := make(chan []Violation)
	given := make(chan struct{})
	sc.wg.Go(func() {
		v := sc.lookAfter(ended)
		sc.leave()
		select {
		case found <- v:
		case <-given:
			sc.addLate(v)
		}
	})
	t := time.NewTimer(max(minLook, d/8))
	defer t.Stop()
	select {
	case v := <-found:
		return append(sc.takeLate(), v...)
	case <-t.C:
		close(given)
		return sc.takeLate()
	}
}

// lookAfter looks unless somebody else began to do so after the time given.
func (sc *scanner) lookAfter(t int64) []Violation {
	sc.turn <- struct{}{}
	defer func() { <-sc.turn }()
	if sc.looked > t {
		return nil
	}
	return sc.look(false)
}

// touched is told of a file action that has ended; it is followed by a look soon, or at the end of a command.
func (sc *scanner) touched() {
	if !sc.dirty.Swap(true) {
		ended := time.Now().UnixNano()
		sc.wg.Add(1)
		time.AfterFunc(settleLook, func() {
			defer sc.wg.Done()
			sc.dirty.Store(false)
			sc.begin()
			sc.addLate(sc.lookAfter(ended + int64(settleLook)/2))
			sc.leave()
		})
	}
	sc.leave()
}

func (sc *scanner) addLate(v []Violation) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.late = append(sc.late, v...)
}

func (sc *scanner) takeLate() []Violation {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	v := sc.late
	sc.late = nil
	return v
}

// close waits for looks that are under way and logs what nobody was told of.
func (sc *scanner) close() {
	sc.wg.Wait()
	for _, v := range sc.takeLate() {
		sc.log.Warn("found after the last command of a sandbox", "path", v.Path, "what", v.What, "moved to", v.Quarantine)
	}
}

// trust says what a repository that was not known before is held to be.
type trust uint8

const (
	trustNone trust = iota // commands made it
	trustOld               // what in it is older than any command is the user's
	trustAll               // the user made it
)

// pass is one look.
type pass struct {
	*scanner
	now, since int64
	first      bool
	queue      []scanStep // directories that were never read: broad before deep, so that the bounds fall on the deepest
	out        []Violation
}

type scanStep struct {
	dir   *scanDir
	path  string
	depth int
}

// look compares everything with the last look. The caller holds the turn.
func (sc *scanner) look(first bool) []Violation {
	now := time.Now()
	sc.mu.Lock()
	p := &pass{scanner: sc, now: now.UnixNano(), since: sc.since, first: first}
	sc.mu.Unlock()
	sc.looked = p.now
	for _, r := range sc.roots {
		p.visit(r, r.name, 0)
	}
	for len(p.queue) > 0 {
		q := p.queue[0]
		p.queue = p.queue[1:]
		p.visit(q.dir, q.path, q.depth)
	}
	for path := range sc.gits {
		p.found(path, trustOld)
	}
	sc.expose()
	for path := range sc.exposed {
		if st, ok := lstat(path); ok && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			p.found(path, trustOld)
		} else if ok && p.pointers[path] == nil {
			p.pointers[path] = &pointer{}
		}
	}
	for path, ptr := range sc.pointers {
		p.pointer(path, ptr)
	}
	for path, r := range sc.repos {
		p.check(path, r)
	}
	sc.size.Store(int64(sc.dirs + 8*len(sc.repos)))
	return p.out
}

// trusts judges something new by the change time of the directory that holds its name.
func (p *pass) trusts(ctime int64) trust {
	switch {
	case p.first && !p.started.Load(), ctime < p.since, p.since == 0:
		return trustAll
	case p.first:
		return trustOld
	}
	return trustNone
}

// recent reports whether a change may be followed by another with the same time.
func (p *pass) recent(ctime int64) bool { return p.now-ctime < int64(3*clockTick) }

func lstat(path string) (st unix.Stat_t, ok bool) { return st, unix.Lstat(path, &st) == nil }

// visit looks at a directory that may have changed, and at all below it. It reports whether it is still there.
func (p *pass) visit(d *scanDir, path string, depth int) bool {
	st, ok := lstat(path)
	if !ok || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		p.forget(d)
		return false
	}
	id, ctime := fileID{st.Dev, st.Ino}, st.Ctim.Nano()
	if d.id != id || d.ctime != ctime || d.again {
		d.id, d.ctime, d.again = id, ctime, p.recent(ctime)
		p.read(d, path, depth)
	}
	if len(d.kids) == 0 {
		return true
	}
	d.kids = slices.DeleteFunc(d.kids, func(k *scanDir) bool {
		at := path + "/" + k.name // a clean path, as roots are never /
		if k.ctime == 0 {
			p.queue = append(p.queue, scanStep{k, at, depth + 1})
			return false
		}
		return !p.visit(k, at, depth+1)
	})
	return true
}

func (p *pass) forget(d *scanDir) {
	p.dirs--
	for _, k := range d.kids {
		p.forget(k)
	}
}

// read lists a directory, keeps the directories in it that are known and notes the new ones.
func (p *pass) read(d *scanDir, path string, depth int) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		d.again = true
		return
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	old := map[string]*scanDir{}
	for _, k := range d.kids {
		old[k.name] = k
	}
	d.kids = nil
	var head, objects, refs bool
	for {
		ents, err := f.ReadDir(512)
		for _, e := range ents {
			name, at := e.Name(), ""
			switch {
			case name == gitName && !d.git:
				if at = filepath.Join(path, name); p.skip[at] || p.gits[at] || p.exposed[at] {
					continue
				}
				if !e.IsDir() {
					if p.pointers[at] == nil && len(p.pointers) < maxRepos {
						p.pointers[at] = &pointer{}
					}
					continue
				}
				p.found(at, p.trusts(d.ctime))
			case name == "HEAD":
				head = true
			case !e.IsDir():
				continue
			case name == "objects":
				objects = true
			case name == "refs":
				refs = true
			case d.git && name != "modules":
				continue
			}
			if !e.IsDir() || d.git && name != "modules" {
				continue
			}
			if k := old[name]; k != nil {
				d.kids = append(d.kids, k)
				delete(old, name)
			} else if p.dirs < maxDirs && depth < maxDepth && !p.skip[filepath.Join(path, name)] {
				p.dirs++
				d.kids = append(d.kids, &scanDir{name: strings.Clone(name), again: true, git: name == gitName})
			}
		}
		if err != nil || len(ents) == 0 {
			break
		}
	}
	for _, k := range old {
		p.forget(k)
	}
	if head && objects && refs && !d.git { // git takes such a directory for a repository by its layout
		p.found(path, p.trusts(d.ctime))
		d.git = true
		d.kids = slices.DeleteFunc(d.kids, func(k *scanDir) bool {
			if k.name != "modules" {
				p.forget(k)
			}
			return k.name != "modules"
		})
	}
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
	ptr.id, ptr.ctime, ptr.again = id, ctime, p.recent(ctime)
	to := ""
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		to, _ = os.Readlink(path)
	} else if line, err := readLine(path); err == nil {
		if dir, ok := strings.CutPrefix(line, "gitdir:"); ok {
			to = strings.TrimSpace(dir)
		}
	}
	if to == "" {
		return // git does not take it for a repository
	}
	trusted := p.trusts(ctime)
	to = absolute(to, filepath.Dir(path))
	real, err := filepath.EvalSymlinks(to)
	if err != nil {
		ptr.again, real = true, to // what is missing may appear
	}
	if !p.inside(real) {
		if trusted != trustNone || ptr.known == real {
			ptr.known = real
			return
		}
		p.out = append(p.out, remove(path, p.quarantine, "a command made this lead git to "+real+", outside the writable folders"))
		ptr.again = true
		return
	}
	if err == nil {
		p.found(real, trusted)
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
