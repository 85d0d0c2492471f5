package sandbox

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/heddle-dev/heddle/sandbox/gitconf"
	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// plan is what a policy means on this host at this moment: the mounts, what must be seen inside afterwards, and
// the identities that tell when it is stale.
type plan struct {
	dir       string // where commands start by default, links resolved
	roots     []string
	mounts    []guestproto.Mount
	watch     []identity // compared before every call
	expect    []expectation
	absent    []string // protected names that do not exist
	links     []identity
	guarded   []identity // protected names that exist and are no links
	foreign   bool       // a root is not owned by us: root needs to override ownership
	tmpHidden bool
	gitDirs   []string      // git directories that are writable, at GitCommit
	frozen    []string      // parts of them that are not
	hooks     []gitconf.Ref // folders of hooks that the user's configuration names for every repository
	home      string
	unmounted bool // nothing is mounted: there are no namespaces
	// What patterns of denied paths match, and how it is hidden: the first file and the first directory as mounts of
	// their own, the others from those.
	denied              []string // directories that are hidden as a whole
	denyTree            *denyTree
	matched             map[string]denied
	coverList           []string // the others
	emptyDir, emptyFile string
	gitNote             string // why a .git is protected although GitCommit was asked for
	covers              string // prefix of the empty things that hide paths
}

// expectation is one thing that must hold inside right after the mounts were made.
type expectation struct {
	path     string
	id       identity
	readOnly bool
	cover    bool // an empty thing of ours that hides the host's
}

// hidden are the directories that every contained sandbox gets empty and private.
func (p *plan) hidden(path string) bool {
	return within(path, "/run") || within(path, "/dev") || within(path, "/proc") || within(path, "/sys") ||
		p.tmpHidden && within(path, "/tmp")
}

func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// makePlan resolves a normalized policy for a manager; sockets asks to hide those of the host.
func makePlan(p Policy, o *owner, cfg Config, sockets bool) (*plan, error) {
	home := cfg.Home
	pl := &plan{home: home, tmpHidden: p.Tmp == TmpPrivate && p.Level.Contained(), covers: o.emptyFil}
	if err := pl.findRoots(p); err != nil {
		return nil, err
	}
	if !p.Level.Contained() {
		return pl, nil
	}
	pl.base(p)
	kept := pl.leaveOut(cfg.Keep, p.WritableRoots)
	binds := map[string]guestproto.Mount{}
	if err := pl.bindRoots(binds, p); err != nil {
		return nil, err
	}
	pl.bindProtected(binds, p)
	for _, k := range kept {
		pl.protect(binds, k)
	}
	pl.pin(binds)
	plain, patterns, err := denials(p, pl.places(p), home)
	if err != nil {
		return nil, err
	}
	plain = o.led.with(plain)
	if err := pl.pinDenied(binds, plain, patterns, o); err != nil {
		return nil, err
	}
	for _, path := range slices.Sorted(maps.Keys(binds)) { // parents before what is in them
		pl.mounts = append(pl.mounts, binds[path])
	}
	for _, d := range append([]string{cfg.StateDir}, plain...) {
		pl.deny(d, o)
	}
	pl.denyMatched(o)
	if sockets && p.Net != NetFull {
		pl.coverSockets(o)
	}
	for _, m := range pl.mounts {
		if !utf8.ValidString(m.Source) || !utf8.ValidString(m.Dest) {
			return nil, fmt.Errorf("sandbox path %q is not valid UTF-8", m.Dest)
		}
	}
	return pl, nil
}

// leaveOut takes the workspace out of the roots where it is what commands must never change, unless it was named as a
// root by itself, and returns what of that lies in roots.
func (pl *plan) leaveOut(keep, named []string) (kept []string) {
	for _, k := range keep {
		if real, err := filepath.EvalSymlinks(k); err == nil {
			kept = append(kept, real)
		}
	}
	if slices.Contains(kept, pl.dir) && !slices.ContainsFunc(named, func(n string) bool {
		real, err := filepath.EvalSymlinks(n)
		return err == nil && real == pl.dir
	}) {
		pl.roots = slices.DeleteFunc(pl.roots, func(r string) bool { return r == pl.dir })
	}
	return slices.DeleteFunc(kept, func(k string) bool { return !pl.writable(k) })
}

// bindRoots makes the roots writable, and shows a workspace that would be hidden.
func (pl *plan) bindRoots(binds map[string]guestproto.Mount, p Policy) error {
	for _, r := range pl.roots {
		binds[r] = guestproto.Mount{Kind: guestproto.MountBind, Source: r, Dest: r}
		id := identify(r)
		if err := checkReal(id); err != nil {
			return err
		}
		pl.foreign = pl.foreign || int(id.uid) != os.Getuid()
		pl.expect = append(pl.expect, expectation{path: r, id: id})
	}
	if !pl.writable(pl.dir) && pl.dir != "/" && pl.hidden(pl.dir) {
		binds[pl.dir] = guestproto.Mount{Kind: guestproto.MountBind, Source: pl.dir, Dest: pl.dir, ReadOnly: true}
		pl.expect = append(pl.expect, expectation{path: pl.dir, id: identify(pl.dir), readOnly: true})
	}
	return nil
}

// bindProtected keeps the protected names in the roots read-only, and what of git's lies elsewhere.
func (pl *plan) bindProtected(binds map[string]guestproto.Mount, p Policy) {
	for _, r := range pl.roots {
		for _, name := range p.Protected {
			if name == gitName && p.Git == GitCommit {
				pl.openGit(binds, filepath.Join(r, name))
				continue
			}
			pl.protect(binds, filepath.Join(r, name))
		}
	}
	guarded := len(pl.roots) > 0 && slices.Contains(p.Protected, gitName)
	if guarded && p.Git == GitCommit {
		pl.outerGit(binds)
	}
	for _, r := range append([]string{pl.dir}, pl.roots...) {
		pl.showGit(binds, r)
	}
	if guarded {
		pl.protectConfigured(binds, pl.home)
	}
}

// places are the folders below which relative denied paths hold.
func (pl *plan) places(p Policy) []string {
	if p.Workspace == "" {
		return nil
	}
	out := []string{pl.dir}
	for _, r := range pl.roots {
		if r != pl.dir {
			out = append(out, r)
		}
	}
	return out
}

// findRoots resolves the workspace and the writable roots. A missing extra root is only watched for.
func (pl *plan) findRoots(p Policy) error {
	pl.dir = "/"
	var all []root
	if p.Workspace != "" {
		ws, err := resolve(p.Workspace)
		if err != nil {
			return fmt.Errorf("sandbox workspace: %w", err)
		}
		all = append(all, ws)
		real := ws.real
		if err := p.pinned(p.Workspace, real); err != nil {
			return err
		}
		if fi, err := os.Lstat(real); err != nil || !fi.IsDir() {
			return fmt.Errorf("sandbox workspace %s is not a directory", p.Workspace)
		}
		pl.dir = real
		pl.watch = append(pl.watch, identify(p.Workspace), identify(real))
	}
	if p.Level != WorkspaceWrite {
		return nil
	}
	add := func(real string) error {
		if real == "/" || within("/proc", real) || within("/sys", real) || within("/dev", real) || hiddenSystem(real) {
			return fmt.Errorf("sandbox root %s cannot be made writable", real)
		}
		if !slices.Contains(pl.roots, real) {
			pl.roots = append(pl.roots, real)
		}
		return nil
	}
	if err := add(pl.dir); err != nil {
		return err
	}
	for _, w := range p.WritableRoots {
		pl.watch = append(pl.watch, identify(w))
		r, err := resolve(w)
		if err != nil {
			continue
		}
		all = append(all, r)
		pl.watch = append(pl.watch, identify(r.real))
		if err := p.pinned(w, r.real); err != nil {
			return err
		}
		if err := add(r.real); err != nil {
			return err
		}
	}
	if p.Tmp == TmpHost { // writable as well, so that its links are as much in the hands of commands
		if tmp, err := resolve("/tmp"); err == nil {
			all = append(all, tmp)
		}
	}
	if err := checkRoots(all); err != nil {
		return err
	}
	slices.Sort(pl.roots)
	return nil
}

// hiddenSystem reports whether a path lies in what every sandbox has of its own.
func hiddenSystem(path string) bool {
	return within(path, "/proc") || within(path, "/sys") || within(path, "/dev")
}

// base adds the host's tree, read-only, and the private places.
func (pl *plan) base(p Policy) {
	for _, name := range topLevel() {
		if name.Type().IsDir() {
			d := "/" + name.Name()
			pl.mounts = append(pl.mounts, guestproto.Mount{Kind: guestproto.MountBind, Source: d, Dest: d, ReadOnly: true})
		}
	}
	tmpfs := func(dest, data string, noexec bool) {
		pl.mounts = append(pl.mounts, guestproto.Mount{Kind: guestproto.MountTmpfs, Dest: dest, Data: data, NoExec: noexec})
	}
	pl.mounts = append(pl.mounts, guestproto.Mount{Kind: guestproto.MountProc, Dest: "/proc", NoExec: true})
	if p.Net == NetFull { // a fresh sysfs needs a network namespace of our own
		pl.mounts = append(pl.mounts, guestproto.Mount{Kind: guestproto.MountBind, Source: "/sys", Dest: "/sys", ReadOnly: true})
	} else {
		pl.mounts = append(pl.mounts, guestproto.Mount{Kind: guestproto.MountSysfs, Dest: "/sys", ReadOnly: true, NoExec: true})
	}
	tmpfs("/dev", "mode=755,size=1m", false)
	pl.mounts = append(pl.mounts, guestproto.Mount{Kind: guestproto.MountDevpts, Dest: "/dev/pts", Data: "newinstance,ptmxmode=0666,mode=0620", NoExec: true},
		guestproto.Mount{Kind: guestproto.MountMqueue, Dest: "/dev/mqueue", NoExec: true})
	tmpfs("/dev/shm", "mode=1777,size=64m", true)
	if p.Tmp == TmpPrivate {
		tmpfs("/tmp", fmt.Sprintf("mode=1777,size=%d", p.Limits.TmpBytes), false)
	} else {
		pl.mounts = append(pl.mounts, guestproto.Mount{Kind: guestproto.MountBind, Source: "/tmp", Dest: "/tmp", ReadOnly: p.Level == ReadOnly})
	}
	tmpfs("/run", "mode=755,size=16m", false)
	keep := []string{"/run/current-system", "/run/opengl-driver"} // system profiles, not sockets
	if p.Net == NetFull {
		keep = append(keep, "/run/systemd/resolve/stub-resolv.conf", "/run/systemd/resolve/resolv.conf", "/run/resolvconf")
	}
	for _, k := range keep {
		if _, err := os.Stat(k); err == nil {
			pl.mounts = append(pl.mounts, guestproto.Mount{Kind: guestproto.MountBind, Source: k, Dest: k, ReadOnly: true})
		}
	}
}

// private are the top-level names that are not shared with the host.
var private = []string{"proc", "sys", "dev", "run", "tmp", "lost+found"}

// topLevel lists the directories and links of the host's root that sandboxes share.
func topLevel() []os.DirEntry {
	ents, err := os.ReadDir("/")
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(ents, func(e os.DirEntry) bool {
		return slices.Contains(private, e.Name()) || !e.Type().IsDir() && e.Type() != os.ModeSymlink
	})
}

// protect keeps a name below a writable root read-only, with what it leads to when that is writable too.
func (pl *plan) protect(binds map[string]guestproto.Mount, path string) {
	id := identify(path)
	pl.watch = append(pl.watch, id)
	switch {
	case !id.exists:
		pl.absent = append(pl.absent, path)
	case id.mode&os.ModeSymlink != 0:
		pl.links = append(pl.links, id)
		if real, err := filepath.EvalSymlinks(path); err == nil {
			pl.protectReal(binds, real)
		}
	default:
		pl.guarded = append(pl.guarded, id)
		pl.protectReal(binds, path)
	}
}

func (pl *plan) protectReal(binds map[string]guestproto.Mount, path string) {
	if slices.Contains(pl.roots, path) || !pl.writable(path) {
		return // named as writable itself, or read-only anyway
	}
	if _, done := binds[path]; done {
		return
	}
	id := identify(path)
	if !id.exists || !id.mode.IsDir() && !id.mode.IsRegular() {
		return
	}
	binds[path] = guestproto.Mount{Kind: guestproto.MountBind, Source: path, Dest: path, ReadOnly: true}
	pl.watch = append(pl.watch, id)
	pl.expect = append(pl.expect, expectation{path: path, id: id, readOnly: true})
	if id.mode.IsRegular() && filepath.Base(path) == gitName {
		for _, d := range gitDirs(path) {
			pl.protectReal(binds, d)
		}
	}
}

// gitDirs returns the directories that a .git file leads to: the worktree's own and the common one.
func gitDirs(file string) []string {
	b, err := readRegular(file, maxGitLine)
	if err != nil {
		return nil
	}
	dir, ok := strings.CutPrefix(strings.TrimSpace(string(b)), "gitdir:")
	if !ok {
		return nil
	}
	dir = absolute(strings.TrimSpace(dir), filepath.Dir(file))
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil
	}
	dirs := []string{real}
	if c, err := readRegular(filepath.Join(real, "commondir"), maxGitLine); err == nil {
		if common, err := filepath.EvalSymlinks(absolute(strings.TrimSpace(string(c)), real)); err == nil {
			dirs = append(dirs, common)
		}
	}
	return dirs
}

func absolute(path, base string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(base, path)
}

// deny covers a path with nothing. A path that does not exist is watched for.
func (pl *plan) deny(path string, o *owner) {
	pl.watch = append(pl.watch, identify(path))
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return
	}
	reachable := slices.ContainsFunc(pl.roots, func(r string) bool { return within(real, r) })
	if pl.hidden(real) && !reachable && !within(real, pl.dir) {
		return
	}
	id, cover := identify(real), o.emptyFil
	pl.watch = append(pl.watch, id)
	if id.mode.IsDir() {
		cover = o.emptyDir
		pl.denied = append(pl.denied, real)
	}
	pl.mounts = append(pl.mounts, guestproto.Mount{Kind: guestproto.MountBind, Source: cover, Dest: real, ReadOnly: true})
	pl.expect = append(pl.expect, expectation{path: real, id: identify(cover), readOnly: true, cover: true})
}
