package sandbox

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/gitconf"
)

const (
	maxHooks  = 256
	hookBytes = 1 << 20
	todoName  = "rebase-merge/git-rebase-todo"
)

// repo is a git directory that was looked at.
type repo struct {
	id      fileID
	mine    bool            // it was there before commands ran: so is what in it is older than they
	allowed map[string]bool // findings that are the user's, or were told and could not be removed
	watch   []string        // names whose change calls for a closer look
	stamps  []int64
	again   bool
	looked  time.Time // which look came to it last
}

// found notes a git directory; mine says that its name was made by the user.
func (p *pass) found(path string, mine bool) {
	st, ok := lstat(path)
	if !ok || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return
	}
	id := fileID{st.Dev, st.Ino}
	if p.readOnly(path) {
		return
	}
	if r := p.repos[path]; r != nil && r.id == id || len(p.repos) >= maxRepos && r == nil {
		return
	}
	r := &repo{id: id, mine: mine, again: true, allowed: map[string]bool{}}
	name := filepath.Base(path)
	if k := p.moved[id]; k.name == name { // what contains it was renamed; only that keeps the name
		r.mine, r.allowed = false, k.allowed
	} else if k.name != "" {
		r.mine = false
	}
	p.repos[path], p.moved[id] = r, known{name, r.allowed}
}

// readOnly reports whether a mount at or above path keeps commands from changing it. A git directory between the two
// may be mounted writable again, as those of submodules are in their folder.
func (p *pass) readOnly(path string) bool {
	for s := range p.skip {
		if !within(path, s) || p.exposed[s] {
			continue
		}
		again := false
		for g := range p.gits {
			again = again || within(path, g) && within(g, s)
		}
		if !again {
			return true
		}
	}
	return false
}

// known is what stays allowed of a repository when a directory above it is renamed.
type known struct {
	name    string
	allowed map[string]bool
}

// finding is one thing in a repository that git would run or follow.
type finding struct {
	rel, id, what string
	ctime         int64
	fix           fix
}

type fix uint8

const (
	fixMove fix = iota
	fixConfig
	fixTodo
)

// check looks closer at a repository in which something that matters may have changed.
func (p *pass) check(path string, r *repo) {
	st, ok := lstat(path)
	if !ok || st.Mode&unix.S_IFMT != unix.S_IFDIR || r.id != (fileID{st.Dev, st.Ino}) {
		delete(p.repos, path)
		return
	}
	stamps := make([]int64, 0, 2*len(r.watch))
	newest := int64(0)
	for _, name := range r.watch {
		st, _ := lstat(filepath.Join(path, name)) // zero when missing
		stamps = append(stamps, st.Ctim.Nano(), int64(st.Ino))
		newest = max(newest, st.Ctim.Nano())
	}
	if !r.again && slices.Equal(stamps, r.stamps) {
		return
	}
	kind, before := p.kind(st.Dev, path), len(r.watch)
	dir, err := openDir(path)
	if err == nil {
		defer unix.Close(dir)
		err = unix.Faccessat(dir, ".", unix.R_OK|unix.X_OK, 0)
	}
	if err != nil {
		r.again = true
		p.closed(err, st, path)
		return
	}
	in := &inspection{p: p, path: path, dir: dir}
	in.all()
	slices.Sort(in.watch)
	r.watch = slices.Compact(in.watch)
	r.stamps, r.again = stamps, p.unsettled(kind, newest) || len(r.watch) != before || r.stamps == nil
	since, ran := p.ran()
	since = since.today()
	var bad []finding
	for _, f := range in.out {
		switch {
		case r.allowed[f.id]:
		case !ran, r.mine && kind.before(f.ctime, since):
			r.allowed[f.id] = true
		default:
			bad = append(bad, f)
		}
	}
	r.mine = true
	if len(bad) > 0 {
		r.again = true
		p.act(path, dir, r, bad)
	}
}

// act takes out of use what was found.
func (p *pass) act(path string, dir int, r *repo, bad []finding) {
	done := map[string]bool{}
	for _, f := range bad {
		if done[f.rel] {
			continue
		}
		done[f.rel] = true
		v := Violation{Path: filepath.Join(path, f.rel), What: f.what}
		var err error
		switch f.fix {
		case fixConfig:
			var names []string
			names, v.Quarantine, err = p.cleanConfig(dir, f.rel, bad)
			v.What = "a command set what git would run or follow: " + strings.Join(names, ", ") + "; this was taken out"
		case fixTodo:
			v.Quarantine, err = p.cleanTodo(dir, f.rel)
		default:
			err = errors.New("move")
		}
		if err != nil {
			v = remove(v.Path, p.quarantine, f.what)
		}
		if v.Quarantine == "" {
			r.allowed[f.id] = true // told once
		}
		p.out = append(p.out, v)
	}
}

// cleanConfig writes a configuration without the entries found in it.
func (p *pass) cleanConfig(dir int, rel string, bad []finding) (names []string, kept string, err error) {
	old, err := readBelow(dir, rel, gitconf.MaxBytes)
	if err != nil {
		return nil, "", err
	}
	drop := map[string]bool{}
	for _, f := range bad {
		if f.rel == rel {
			drop[f.id] = true
		}
	}
	content, n, err := gitconf.Without(old, func(e gitconf.Entry) bool {
		if !drop[rel+":"+e.String()] {
			return false
		}
		if len(names) < 8 && !slices.Contains(names, e.Name()) {
			names = append(names, strconv.QuoteToGraphic(e.Name()))
		}
		return true
	})
	if err == nil && n == 0 {
		err = errors.New("the file cannot be read")
	}
	if err == nil {
		kept, err = p.replace(dir, rel, old, content)
	}
	return names, kept, err
}

// cleanTodo turns the commands of an unfinished rebase into comments.
func (p *pass) cleanTodo(dir int, rel string) (string, error) {
	old, err := readBelow(dir, rel, gitconf.MaxBytes)
	if err != nil {
		return "", err
	}
	lines := bytes.Split(old, []byte("\n"))
	for i, l := range lines {
		if runsCommand(l) {
			lines[i] = append([]byte("# "), l...)
		}
	}
	return p.replace(dir, rel, old, bytes.Join(lines, []byte("\n")))
}

func (p *pass) replace(dir int, rel string, old, content []byte) (string, error) {
	sub := dir
	if d := filepath.Dir(rel); d != "." {
		f, err := openBelow(dir, d, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return "", err
		}
		defer f.Close()
		sub = int(f.Fd())
	}
	return replaceBelow(sub, filepath.Base(rel), old, content, p.quarantine)
}

func runsCommand(line []byte) bool {
	f := bytes.Fields(line)
	return len(f) > 0 && (string(f[0]) == "exec" || string(f[0]) == "x")
}

// inspection collects the findings of one repository.
type inspection struct {
	p     *pass
	path  string
	dir   int
	watch []string
	out   []finding

	refs     []gitconf.Ref // what the configuration names
	worktree string        // core.worktree
	linked   []string      // tops of linked worktrees
}

func (in *inspection) add(f finding) { in.out = append(in.out, f) }

// ctime returns when a name below the repository changed, and remembers to watch it.
func (in *inspection) ctime(rel string) (unix.Stat_t, bool) {
	in.watch = append(in.watch, rel)
	return lstat(filepath.Join(in.path, rel))
}

// changed returns when a name below the repository changed that was read by now, and has changed before at the
// earliest.
func (in *inspection) changed(rel string) int64 {
	if st, ok := lstat(filepath.Join(in.path, rel)); ok {
		return st.Ctim.Nano()
	}
	return math.MaxInt64 // it is gone: what was read of it may have been anything's
}

func (in *inspection) all() {
	in.links(".")
	in.links("logs")
	in.hooks()
	in.config("config")
	in.config("config.worktree")
	in.common("commondir")
	in.worktrees()
	in.configured()
	if _, ok := in.ctime(todoName); ok {
		if b, err := readBelow(in.dir, todoName, gitconf.MaxBytes); err == nil && slices.ContainsFunc(bytes.Split(b, []byte("\n")), runsCommand) {
			in.add(finding{rel: todoName, id: todoName + ":" + digest(b), ctime: in.changed(todoName), fix: fixTodo,
				what: "a rebase was left unfinished with commands that git would run when it goes on; they are comments now"})
		}
	}
}

// links finds symbolic links where git writes files: git follows them, to anywhere.
func (in *inspection) links(rel string) {
	if _, ok := in.ctime(rel); !ok {
		return
	}
	for _, e := range in.list(rel) {
		if e.Type()&fs.ModeSymlink == 0 {
			continue
		}
		name := filepath.Join(rel, e.Name())
		to, err := os.Readlink(filepath.Join(in.path, name))
		if err != nil || name == "HEAD" && strings.HasPrefix(to, "refs/") && !strings.Contains(to, "..") {
			continue
		}
		in.add(finding{rel: name, id: "link:" + name + ":" + to, ctime: in.changed(name), what: "a command made a link of this, which git would follow"})
	}
}

// list returns at most a few thousand names of a directory below the repository.
func (in *inspection) list(rel string) []os.DirEntry {
	f, err := openBelow(in.dir, rel, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	defer f.Close()
	l, _ := f.ReadDir(4096)
	return l
}

// hooks finds programs that git starts by itself. Git's samples have a suffix that keeps them from running.
func (in *inspection) hooks() {
	if _, ok := in.ctime("hooks"); !ok {
		return
	}
	n := 0
	for _, e := range in.list("hooks") {
		if strings.HasSuffix(e.Name(), ".sample") {
			continue
		}
		if n++; n > maxHooks {
			break
		}
		rel := filepath.Join("hooks", e.Name())
		if _, ok := in.ctime(rel); !ok {
			continue
		}
		what := "?"
		if e.Type()&fs.ModeSymlink != 0 {
			what, _ = os.Readlink(filepath.Join(in.path, rel))
		} else if b, err := readBelow(in.dir, rel, hookBytes); err == nil || errors.Is(err, errTooLong) {
			what = digest(b)
		}
		// A whole directory of old files may have been moved here.
		in.add(finding{rel: rel, id: rel + ":" + what, ctime: max(in.changed(rel), in.changed("hooks")), what: "a command made or changed this hook, which git would run"})
	}
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// config finds entries that are not known to be harmless.
func (in *inspection) config(rel string) {
	if _, ok := in.ctime(rel); !ok {
		return
	}
	b, err := readBelow(in.dir, rel, gitconf.MaxBytes)
	var list []gitconf.Entry
	if err == nil {
		list, err = gitconf.Parse(b)
	}
	changed := in.changed(rel)
	if err != nil {
		in.add(finding{rel: rel, id: rel + ":" + digest(b), ctime: changed, what: fmt.Sprintf("a command left a git configuration that cannot be judged: %v", err)})
		return
	}
	in.refs = append(in.refs, gitconf.Refs(list)...)
	for _, e := range list {
		if e.Name() == "core.worktree" {
			in.worktree = absolute(e.Value, in.path)
		}
		if !gitconf.Harmless(e, in.checkout) {
			in.add(finding{rel: rel, id: rel + ":" + e.String(), ctime: changed, fix: fixConfig,
				what: "a command set " + strconv.QuoteToGraphic(e.Name()) + ", which git would run or follow"})
		}
	}
}

// checkout reports whether a path from the repository's configuration lies in the writable roots.
func (in *inspection) checkout(path string) bool {
	path = absolute(path, in.path)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	return in.p.inside(path)
}

// common finds a link to a directory from which git takes configuration and hooks. One that is writable is a
// repository of its own to look at.
func (in *inspection) common(rel string) {
	st, ok := in.ctime(rel)
	if !ok {
		return
	}
	to, err := readLine(filepath.Join(in.path, rel))
	if err == nil {
		to, err = filepath.EvalSymlinks(absolute(to, filepath.Dir(filepath.Join(in.path, rel))))
	}
	if err == nil && in.p.inside(to) {
		if filepath.Dir(rel) == "." || to != in.path {
			in.p.found(to, in.p.users(in.p.kind(st.Dev, in.path), in.changed(rel)))
		}
		return
	}
	in.add(finding{rel: rel, id: rel + ":" + to, ctime: in.changed(rel), what: "a command made this lead git outside the writable folders"})
}

// worktrees looks at the linked worktrees of a repository that are not repositories of their own here.
func (in *inspection) worktrees() {
	if in.p.frozen[filepath.Join(in.path, "worktrees")] {
		return
	}
	if _, ok := in.ctime("worktrees"); !ok {
		return
	}
	for i, e := range in.list("worktrees") {
		rel := filepath.Join("worktrees", e.Name())
		full := filepath.Join(in.path, rel)
		if i >= maxHooks || in.p.frozen[full] || in.p.gits[full] {
			continue
		}
		if at, err := readLine(filepath.Join(full, "gitdir")); err == nil {
			in.linked = append(in.linked, filepath.Dir(absolute(at, full)))
		}
		in.links(rel)
		in.config(filepath.Join(rel, "config.worktree"))
		in.common(filepath.Join(rel, "commondir"))
	}
}
