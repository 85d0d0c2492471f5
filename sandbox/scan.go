package sandbox

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/gitconf"
)

const (
	// maxDirs and maxRepos bound what one sandbox watches, breadth of the top levels first.
	maxDirs  = 32768
	maxRepos = 1024
	maxDepth = 64
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
// cannot be set, so an unchanged tree costs one stat per directory. What was read while no command ran is the user's
// own and becomes known. Of what was not, what changed before the first of the running commands began is the user's
// too; the rest is moved away or defused, and told. Which of them it is is asked after the reading, never before.
type scanner struct {
	log        *slog.Logger
	quarantine string
	turn       chan struct{} // held by who looks; guards the fields below
	roots      []*scanDir
	skip       map[string]bool   // read-only inside
	gits       map[string]bool   // repositories with mounts of their own
	frozen     map[string]bool   // parts of those that are read-only
	guard      map[string]fileID // protected .git of the newest instance
	hooks      []gitconf.Ref     // folders of hooks that the user's configuration names for every repository
	home       string
	exposed    map[string]bool // those that the host replaced: a mount may not have held
	repos      map[string]*repo
	moved      map[fileID]known // what was known of repositories, for when they are renamed
	pointers   map[string]*pointer
	kinds      map[uint64]stampKind // of devices
	dirs       int
	looked     time.Time // when the last look began

	stamper *stamper
	size    atomic.Int64
	remote  atomic.Bool // something lies where stamps tell nothing
	wg      sync.WaitGroup

	mu      sync.Mutex
	running int
	blind   moment // since when something could not be read; valid while unread
	unread  bool
	since   moment    // changes from here on may be those of commands; valid while something runs
	dirty   bool      // a file action was not followed by a look yet
	acted   time.Time // when the last file action ended
	late    []Violation
}

type fileID struct{ dev, ino uint64 }

// scanDir is one directory that was looked at.
type scanDir struct {
	name  string
	id    fileID
	ctime int64
	again bool // was never read, or may have changed again with the same stamp
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

func newScanner(log *slog.Logger, quarantine string, stamper *stamper) *scanner {
	return &scanner{log: log, quarantine: quarantine, turn: make(chan struct{}, 1), repos: map[string]*repo{}, stamper: stamper,
		moved: map[fileID]known{}, pointers: map[string]*pointer{}, exposed: map[string]bool{}, kinds: map[uint64]stampKind{}}
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
	sc.hooks, sc.home = pl.hooks, pl.home
	sc.expose()
	sc.guard = map[string]fileID{}
	for _, id := range pl.guarded {
		if filepath.Base(id.path) == gitName {
			sc.guard[id.path] = fileID{id.dev, id.ino}
			if pl.unmounted {
				sc.exposed[id.path] = true
			}
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
	if sc.remote.Load() {
		sc.lookBefore()
	}
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.running == 0 && !sc.dirty {
		sc.since = sc.stamper.now()
	}
	sc.running++
}

// lookBefore makes known what the user did, where no stamp would tell it from what commands do.
func (sc *scanner) lookBefore() {
	if _, ran := sc.ran(); ran {
		return
	}
	done := make(chan struct{})
	sc.wg.Go(func() {
		sc.turn <- struct{}{}
		sc.addLate(sc.look())
		<-sc.turn
		close(done)
	})
	t := time.NewTimer(minLook)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
	}
}

// leave tells that what began has ended and was looked at.
func (sc *scanner) leave() {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.running--
}

// ran tells from when on changes may be those of commands. While nothing has run since the last look, all are the
// user's.
func (sc *scanner) ran() (moment, bool) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	switch ran := sc.running > 0 || sc.dirty; {
	case sc.unread: // what a command made there is not known yet
		return sc.blind, true
	default:
		return sc.since, ran
	}
}

// sawAll tells whether a look could read everything that is ours. A command can take itself the right to read what
// it planted, and give it back later.
func (sc *scanner) sawAll(all bool) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if !all && !sc.unread && (sc.running > 0 || sc.dirty) {
		sc.blind, sc.unread = sc.since, true
	}
	if all {
		sc.unread = false
	}
}

// closed notes something that could not be read since commands ran. What belongs to others is not theirs to open again.
func (p *pass) closed(err error, st unix.Stat_t, path string) {
	if errors.Is(err, unix.EACCES) && int(st.Uid) == os.Geteuid() && !p.users(p.kind(st.Dev, path), st.Ctim.Nano()) {
		p.shut = true
	}
}

// end looks at what a command that took d left, and returns that with what was found late of earlier ones.
func (sc *scanner) end(d time.Duration) []Violation {
	ended := time.Now()
	if sc.size.Load() <= inlineDirs {
		select {
		case sc.turn <- struct{}{}:
			v := sc.look()
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

// lookAfter looks unless somebody else began to do so after t.
func (sc *scanner) lookAfter(t time.Time) []Violation {
	sc.turn <- struct{}{}
	defer func() { <-sc.turn }()
	if sc.looked.After(t) {
		return nil
	}
	return sc.look()
}

// touched is told of a file action that has ended; it is followed by a look soon, or at the end of a command.
func (sc *scanner) touched() {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.acted = time.Now()
	if !sc.dirty {
		sc.dirty = true
		sc.wg.Add(1)
		time.AfterFunc(settleLook, func() {
			defer sc.wg.Done()
			sc.mu.Lock()
			sc.running++ // with the moment of the first action, which dirty has kept
			sc.dirty = false
			acted := sc.acted
			sc.mu.Unlock()
			sc.addLate(sc.lookAfter(acted))
			sc.leave()
		})
	}
	sc.running--
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

// pass is one look.
type pass struct {
	*scanner
	now   moment     // when it began
	queue []scanStep // directories that were never read: broad before deep, so that the bounds fall on the deepest
	out   []Violation
	shut  bool // something of ours could not be read
}

type scanStep struct {
	dir   *scanDir
	path  string
	depth int
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
		d.id, d.ctime, d.again = id, ctime, !p.kind(st.Dev, path).before(ctime, p.now.today())
		p.closed(p.read(d, path, depth), st, path)
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
func (p *pass) read(d *scanDir, path string, depth int) error {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		d.again = true
		return err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	old := map[string]*scanDir{}
	for _, k := range d.kids {
		old[k.name] = k
	}
	d.kids = nil
	var head, objects, refs, found bool
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
				found = true
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
	layout := head && objects && refs && !d.git // git takes such a directory for a repository
	if !found && !layout {
		return nil
	}
	// Names may have come since the change time was looked at.
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err != nil || d.id != (fileID{st.Dev, st.Ino}) {
		d.again = true
	}
	mine := err == nil && p.users(p.kind(st.Dev, path), st.Ctim.Nano())
	if found {
		p.found(filepath.Join(path, gitName), mine)
	}
	if layout {
		p.found(path, mine)
		d.git = true
		d.kids = slices.DeleteFunc(d.kids, func(k *scanDir) bool {
			if k.name != "modules" {
				p.forget(k)
			}
			return k.name != "modules"
		})
	}
	return nil
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
