package login_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/executor/login"
	"github.com/heddle-dev/heddle/sandbox"
)

// host runs commands without a sandbox and counts them.
type host struct{ runs int }

func (h *host) run(ctx context.Context, c sandbox.Cmd) ([]byte, bool) {
	h.runs++
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Env, cmd.Dir = c.Env, c.Dir
	out, err := cmd.Output()
	return out, err == nil
}

func bash(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("bash")
	if err != nil {
		t.Fatalf("these tests need bash: %v", err)
	}
	return path
}

func home(t *testing.T, profile string) (dir string, env []string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ".bash_profile"), []byte(profile), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir, []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "PWD=" + dir}
}

func output(t *testing.T, c sandbox.Cmd) string {
	t.Helper()
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Env, cmd.Dir = c.Env, c.Dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v: %s", c.Argv, err, out)
	}
	return string(out)
}

func TestProfileRunsOnceAndStaysSilent(t *testing.T) {
	dir, env := home(t, `echo noise; echo more noise >&2
export FROM_PROFILE="a b
c"; PATH=/opt/profile:$PATH
greet() { echo "hello $1"; }
`)
	h, p := &host{}, login.New()
	script := `printf '%s|' "$FROM_PROFILE" "${PATH%%:*}" "$PWD" "$SHLVL"; greet you; echo err >&2`
	asked := sandbox.Cmd{Argv: []string{bash(t), "-lc", script}, Env: env, Dir: dir}
	for range 3 {
		c := p.Command(t.Context(), "box", asked, h.run)
		if c.Argv[1] != "-c" || c.Argv[2] != script {
			t.Fatalf("argv %q, want the same script without a login", c.Argv)
		}
		want := "a b\nc|/opt/profile|" + dir + "|1|hello you\nerr\n"
		if got := output(t, c); got != want {
			t.Fatalf("output %q, want %q", got, want)
		}
	}
	if h.runs != 2 {
		t.Fatalf("%d commands were run to learn the profile, want 2", h.runs)
	}
	if !slices.Equal(asked.Argv, []string{bash(t), "-lc", script}) {
		t.Fatal("the caller's command was changed")
	}
}

func TestKeyFollowsBoxEnvironmentAndFiles(t *testing.T) {
	dir, env := home(t, "export V=1\n")
	h, p := &host{}, login.New()
	asked := sandbox.Cmd{Argv: []string{bash(t), "-lc", "echo $V"}, Env: env, Dir: dir}
	value := func(box string, c sandbox.Cmd) string {
		return strings.TrimSpace(output(t, p.Command(t.Context(), box, c, h.run)))
	}
	if got := value("a", asked); got != "1" {
		t.Fatalf("V=%q, want 1", got)
	}
	before := h.runs
	value("b", asked)
	other := asked
	other.Env = append(slices.Clone(env), "EXTRA=1")
	value("a", other)
	if h.runs != before+4 {
		t.Fatalf("another sandbox and another environment took %d runs, want 4", h.runs-before)
	}
	if err := os.WriteFile(filepath.Join(dir, ".bash_profile"), []byte("export V=22\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := value("a", asked); got != "22" {
		t.Fatalf("V=%q after the profile was changed, want 22", got)
	}
}

func TestCommandsThatStayAsAsked(t *testing.T) {
	cases := map[string]struct{ profile, argv0, flag string }{
		"options changed":  {"set -o pipefail\n", "", "-lc"},
		"shopt changed":    {"shopt -s globstar\n", "", "-lc"},
		"umask changed":    {"umask 077\n", "", "-lc"},
		"profile exits":    {"exit 3\n", "", "-lc"},
		"not a login":      {"", "", "-c"},
		"another shell":    {"", "/bin/sh", "-lc"},
		"too much is left": {"export BIG=$(head -c 110000 /dev/zero | tr '\\0' x)\n", "", "-lc"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir, env := home(t, c.profile)
			shell := c.argv0
			if shell == "" {
				shell = bash(t)
			}
			asked := sandbox.Cmd{Argv: []string{shell, c.flag, "true"}, Env: env, Dir: dir}
			got := login.New().Command(t.Context(), "box", asked, (&host{}).run)
			if !slices.Equal(got.Argv, asked.Argv) || !slices.Equal(got.Env, asked.Env) {
				t.Fatalf("argv %q, want it unchanged", got.Argv)
			}
		})
	}
}

func TestCancelledRunIsForgotten(t *testing.T) {
	dir, env := home(t, "export V=1\n")
	h, p := &host{}, login.New()
	asked := sandbox.Cmd{Argv: []string{bash(t), "-lc", "echo $V"}, Env: env, Dir: dir}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := p.Command(ctx, "box", asked, h.run); got.Argv[1] != "-lc" {
		t.Fatal("a cancelled run made an environment")
	}
	if got := p.Command(t.Context(), "box", asked, h.run); got.Argv[1] != "-c" {
		t.Fatal("a cancelled run was remembered as a failure")
	}
}

func TestBelow(t *testing.T) {
	dir, env := home(t, "")
	outside := t.TempDir()
	linked := t.TempDir()
	if err := os.Symlink(filepath.Join(outside, "profile"), filepath.Join(linked, ".profile")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "profile"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		env     []string
		folders []string
		want    bool
	}{
		"home is the workspace":      {env, []string{dir}, true},
		"home in the workspace":      {env, []string{filepath.Dir(dir)}, true},
		"workspace in home":          {env, []string{filepath.Join(dir, "project")}, false},
		"elsewhere":                  {env, []string{outside}, false},
		"a profile that links there": {[]string{"HOME=" + linked}, []string{outside}, true},
		"no folders":                 {env, nil, false},
	}
	for name, c := range cases {
		if got := login.Below(c.env, c.folders); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
