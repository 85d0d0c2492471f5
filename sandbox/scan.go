package sandbox

import (
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heddle-dev/heddle/sandbox/gitconf"
)

const (
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
