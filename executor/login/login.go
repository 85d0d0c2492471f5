// Package login runs a login shell's profile once instead of before every
// command.
//
// `bash -lc SCRIPT` reads the login profile each time, which can take longer
// than the script, and mixes what the profile prints into the script's output.
// A Profiles runs the profile once per environment in the same sandbox, keeps
// the environment that it leaves (functions included, as bash exports them) and
// starts later scripts as `bash -c SCRIPT` with it. It does so only where that
// is the same to the script: when the profile changed shell options, the umask
// or a limit, when it fails, hangs or leaves too much, the command is started as
// it was asked for. Variables that a profile sets without exporting them are the
// one thing that is not carried over.
//
// Safe for concurrent use.
package login

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/heddle-dev/heddle/sandbox"
)

const (
	// profileTime bounds one run of the profile.
	profileTime = 10 * time.Second
	// maxEnv and maxEntry bound the environment that is kept; the kernel takes
	// 128 KiB for one entry.
	maxEnv   = 512 << 10
	maxEntry = 100 << 10
	// maxKept bounds the environments that are remembered.
	maxKept = 256

	mark = "heddle-login-environment"
	// probe prints the state of the shell that an environment does not carry,
	// then the environment, behind marks that no profile prints by accident.
	probe = `printf '\0` + mark + `\0%s\n%s\n%s\n' "$-" "$BASHOPTS" "$SHELLOPTS" | tr -d '\n'; printf '\0'; umask; ulimit -a; ` +
		`for heddle_f in $(compgen -A function); do export -f "$heddle_f"; done; unset heddle_f; printf '\0` + mark + `\0'; exec env -0`
)

// Run starts a command in the sandbox that the real one will run in and returns
// its standard output, bounded, and whether it ended with status 0.
type Run func(ctx context.Context, c sandbox.Cmd) (out []byte, ok bool)

// Profiles remembers environments.
type Profiles struct {
	mu   sync.Mutex
	kept map[[sha256.Size]byte]*profile
}

type profile struct {
	once sync.Once
	env  []string // nil when the command must be started as it was asked for
}

// New returns an empty Profiles.
func New() *Profiles { return &Profiles{kept: map[[sha256.Size]byte]*profile{}} }

// Command returns c as it should be started in the sandbox that box identifies.
// Only `bash -lc SCRIPT` is changed.
func (p *Profiles) Command(ctx context.Context, box string, c sandbox.Cmd, run Run) sandbox.Cmd {
	if len(c.Argv) != 3 || c.Argv[1] != "-lc" || filepath.Base(c.Argv[0]) != "bash" {
		return c
	}
	env := p.environment(ctx, box, c, run)
	if env == nil {
		return c
	}
	c.Argv = []string{c.Argv[0], "-c", c.Argv[2]}
	c.Env = withFolder(env, c.Env)
	return c
}

// Warm runs the profile for later commands of the shell with this environment.
func (p *Profiles) Warm(ctx context.Context, box, shell, dir string, env []string, run Run) {
	p.Command(ctx, box, sandbox.Cmd{Argv: []string{shell, "-lc", ""}, Env: env, Dir: dir}, run)
}

func (p *Profiles) environment(ctx context.Context, box string, c sandbox.Cmd, run Run) []string {
	k := key(box, c)
	p.mu.Lock()
	e := p.kept[k]
	if e == nil {
		if len(p.kept) >= maxKept {
			clear(p.kept)
		}
		e = &profile{}
		p.kept[k] = e
	}
	p.mu.Unlock()
	e.once.Do(func() { e.env = read(ctx, c, run) })
	if e.env == nil && ctx.Err() != nil {
		// A cancelled command says nothing about the profile.
		p.mu.Lock()
		if p.kept[k] == e {
			delete(p.kept, k)
		}
		p.mu.Unlock()
	}
	return e.env
}

// key covers all that decides what a profile does, as far as it can be seen from
// here: sandbox, shell, environment and the profile's files.
func key(box string, c sandbox.Cmd) [sha256.Size]byte {
	h := sha256.New()
	field := func(s string) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	field(box)
	field(c.Argv[0])
	for _, kv := range c.Env {
		field(kv)
	}
	for _, f := range profileFiles(c.Env) {
		info, err := os.Stat(f)
		if err != nil {
			field("-")
			continue
		}
		field(f)
		field(info.ModTime().String())
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(info.Size()))
		h.Write(size[:])
	}
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return sum
}

func profileFiles(env []string) []string {
	files := []string{"/etc/profile", "/etc/bash.bashrc"}
	if extra, err := filepath.Glob("/etc/profile.d/*"); err == nil {
		files = append(files, extra...)
	}
	for _, kv := range env {
		if home, ok := strings.CutPrefix(kv, "HOME="); ok && home != "" {
			for _, name := range []string{".bash_profile", ".bash_login", ".profile", ".bashrc"} {
				files = append(files, filepath.Join(home, name))
			}
		}
	}
	return files
}

// read runs the profile and returns the environment it leaves, or nil.
func read(ctx context.Context, c sandbox.Cmd, run Run) []string {
	ctx, cancel := context.WithTimeout(ctx, profileTime)
	defer cancel()
	state := func(flag string) (shell string, env []string, ok bool) {
		out, ok := run(ctx, sandbox.Cmd{Argv: []string{c.Argv[0], flag, probe}, Env: c.Env, Dir: c.Dir, Timeout: profileTime})
		if !ok {
			return "", nil, false
		}
		return parse(out)
	}
	plain, _, ok := state("-c")
	if !ok {
		return nil
	}
	login, env, ok := state("-lc")
	if !ok || login != plain {
		return nil
	}
	return env
}

// parse splits what probe printed. Whatever the profile printed stands before
// the first mark.
func parse(out []byte) (shell string, env []string, ok bool) {
	sep := []byte("\x00" + mark + "\x00")
	_, rest, found := bytes.Cut(out, sep)
	if !found {
		return "", nil, false
	}
	state, list, found := bytes.Cut(rest, sep)
	if !found || len(list) > maxEnv {
		return "", nil, false
	}
	for entry := range strings.SplitSeq(string(list), "\x00") {
		name, _, assigned := strings.Cut(entry, "=")
		if !assigned || name == "" || name == "_" || name == "PWD" || name == "OLDPWD" {
			continue
		}
		if len(entry) > maxEntry {
			return "", nil, false
		}
		env = append(env, entry)
	}
	options := strings.ReplaceAll(string(state), "login_shell:", "")
	options = strings.ReplaceAll(options, ":login_shell", "")
	return options, env, len(env) > 0
}

// withFolder returns env with the folder variables of asked, which belong to a
// command and not to a profile.
func withFolder(env, asked []string) []string {
	out := slices.Clone(env)
	for _, kv := range asked {
		if strings.HasPrefix(kv, "PWD=") || strings.HasPrefix(kv, "OLDPWD=") {
			out = append(out, kv)
		}
	}
	return out
}

// Below reports whether a file that a login shell with this environment would
// read lies in one of the folders, links resolved: whoever can write there could
// have planted it.
func Below(env, folders []string) bool {
	for _, f := range profileFiles(env) {
		paths := []string{f}
		if real, err := filepath.EvalSymlinks(f); err == nil {
			paths = append(paths, real)
		} else if dir, err := filepath.EvalSymlinks(filepath.Dir(f)); err == nil {
			paths = append(paths, filepath.Join(dir, filepath.Base(f)))
		}
		for _, p := range paths {
			for _, folder := range folders {
				if rel, err := filepath.Rel(folder, p); err == nil && filepath.IsLocal(rel) {
					return true
				}
			}
		}
	}
	return false
}

// WithoutPlanted returns the argv of the same script in a shell that reads no
// profile, where a login shell would read one that lies in the folders.
func WithoutPlanted(argv, env, folders []string) []string {
	if len(argv) == 3 && argv[1] == "-lc" && Below(env, folders) {
		return []string{argv[0], "-c", argv[2]}
	}
	return argv
}
