package sandboxtest

import (
	"os"
	"path/filepath"

	"github.com/heddle-dev/heddle/sandbox"
)

// configured is an attack on what the user's own git configuration names inside of the workspace. The user sets it up
// first; afterwards the user's git works, and must not run what the attack planted.
type configured struct {
	id, what string
	setup    string // by the user, in the workspace; $HOME is the user's
	script   string // the attack
	use      string // the user's git; empty: a commit
}

const good = `#!/bin/sh\n:\n`

// program makes a harmless program.
func program(path string) string {
	return `mkdir -p "$(dirname ` + path + `)"; printf '` + good + `' > ` + path + `; chmod +x ` + path
}

// change adds the planted command to a program, and makes a new file in its place.
func change(path string) string {
	return `printf '%s\n' "$RUN" >> ` + path + `; printf '#!/bin/sh\n%s\n' "$RUN" > ` + path + `.n; chmod +x ` + path + `.n; mv -f ` + path + `.n ` + path
}

const husky = `git config core.hooksPath .husky/_; mkdir -p .husky/_; printf '#!/bin/sh\nsh -e "$(dirname "$(dirname "$0")")/pre-commit"\n' > .husky/_/pre-commit; chmod +x .husky/_/pre-commit; printf ':\n' > .husky/pre-commit`

// configuredVectors are S11 for what the user's own configuration names.
var configuredVectors = []configured{
	{"H01", "a script that a hook of husky runs", husky, change(".husky/pre-commit"), ""},
	{"H01b", "the hook of husky itself", husky, change(".husky/_/pre-commit"), ""},
	{"H01c", "husky's folder, moved away", husky, "mv .husky h2; mkdir -p .husky; cp -r h2/. .husky/; " + change(".husky/pre-commit"), ""},
	{"H02", "a folder of hooks that the user names for every repository", `git config --global core.hooksPath .githooks; ` + program(".githooks/pre-commit"), change(".githooks/pre-commit"), ""},
	{"H02b", "the same, when it is not there yet", `git config --global core.hooksPath .githooks`, `mkdir -p .githooks; ` + hook(".githooks/pre-commit"), ""},
	{"H02c", "the same in a repository below", `git config --global core.hooksPath .githooks`, `mkdir -p vendor/sub/.githooks; ` + hook("vendor/sub/.githooks/pre-commit"), ""},
	{"H02d", "the same in a new repository", `git config --global core.hooksPath .githooks`, `git init -q vendor/n; mkdir -p vendor/n/.githooks; ` + hook("vendor/n/.githooks/pre-commit"), ""},
	{"H02e", "the same, named in full", `git config --global core.hooksPath "$PWD/hooks"; ` + program("hooks/pre-commit"), change("hooks/pre-commit"), ""},
	{"H03", "hooks of a repository below, kept in its tree", `git -C vendor/sub config core.hooksPath tools/hooks; ` + program("vendor/sub/tools/hooks/pre-commit"), change("vendor/sub/tools/hooks/pre-commit"), ""},
	{"H03b", "the same, by a link on the way", `git -C vendor/sub config core.hooksPath tools/hooks; ` + program("vendor/sub/tools/hooks/pre-commit"),
		`cd vendor/sub; mv tools tools2; mkdir evil evil/hooks; ` + hook("evil/hooks/pre-commit") + `; ln -s evil tools`, ""},
	{"H04", "a folder above the hooks, moved away", `git config core.hooksPath tools/git/hooks; ` + program("tools/git/hooks/pre-commit"), `mv tools t2; mkdir -p tools/git/hooks; ` + hook("tools/git/hooks/pre-commit"), ""},
	{"H05", "a link on the way to the hooks", `git config core.hooksPath tools/hooks; mkdir real; ` + program("real/hooks/pre-commit") + `; ln -s real tools`,
		`rm -f tools; mkdir -p tools/hooks; ` + hook("tools/hooks/pre-commit"), ""},
	{"H06", "a file that the configuration includes", `git config include.path ../.gitconfig; printf '[user]\n\tname = u\n' > .gitconfig`, `printf '[core]\n\tfsmonitor = %s\n' "$RUN" >> .gitconfig`, ""},
	{"H06b", "one that it includes on a condition, missing", `printf '[includeIf "gitdir:%s/"]\n\tpath = %s/shared.inc\n' "$PWD" "$PWD" > ~/.gitconfig`, `printf '[core]\n\tfsmonitor = %s\n' "$RUN" > shared.inc`, ""},
	{"H07", "a program of core.fsmonitor", `git config core.fsmonitor "sh tools/fsm.sh"; ` + program("tools/fsm.sh"), change("tools/fsm.sh"), "git status"},
	{"H08", "a program of a filter", `git config filter.x.clean "sh -c 'tools/clean.sh'"; printf '#!/bin/sh\ncat\n' > clean; mkdir -p tools; mv clean tools/clean.sh; chmod +x tools/clean.sh; echo '*.x filter=x' > .gitattributes`,
		change("tools/clean.sh"), "echo 1 > a.x; git add a.x"},
	{"H09", "a file of attributes that starts a filter", `git config --global filter.evil.clean "sh -c \"$RUN; cat\""; git config core.attributesFile attrs; : > attrs`, `echo '*.x filter=evil' > attrs`, "echo 1 > a.x; git add a.x"},
	{"H10", "a program of core.sshCommand", `git config core.sshCommand tools/ssh.sh; ` + program("tools/ssh.sh"), change("tools/ssh.sh"), "GIT_ALLOW_PROTOCOL=ssh git ls-remote ssh://example.invalid/x"},
	{"H11", "a program of gpg", `git config gpg.program "$PWD/tools/gpg.sh"; git config commit.gpgSign true; ` + program("tools/gpg.sh"), change("tools/gpg.sh"), ""},
	{"H12", "a program that shows pages", `git config core.pager ./pager.sh; printf '#!/bin/sh\ncat\n' > pager.sh; chmod +x pager.sh`, change("pager.sh"), `TERM=xterm script -qec "git -p log" /dev/null`},
	{"H13", "a helper for credentials", `git config credential.helper "!tools/cred.sh"; ` + program("tools/cred.sh"), change("tools/cred.sh"), `printf 'protocol=https\nhost=x\n\n' | GIT_TERMINAL_PROMPT=0 git credential fill`},
}

var hookRows = makeHookRows()

func makeHookRows() []Row {
	rows := []Row{
		{"H14", "the user's own git configuration in a workspace that is the home", "DDA", homeConfig, noGit},
		{"H15", "work beside what configurations name goes on", "DAA", besideConfigured, noGit},
	}
	for _, v := range configuredVectors {
		rows = append(rows, Row{v.id, v.what, "DDA", func(e *Env) Verdict { return e.configured(v) }, noGit})
	}
	return rows
}

// forgetHome leaves no configuration of the user's for the next row.
func (e *Env) forgetHome() {
	for _, name := range []string{".gitconfig", ".config"} {
		_ = os.RemoveAll(filepath.Join(e.Home, name))
	}
}

func (e *Env) configured(v configured) Verdict {
	ws, w := e.repositories()
	defer e.forgetHome()
	if out := e.outside(ws, "set -e; "+v.setup+"; echo made"); len(out) < 5 || out[len(out)-5:] != "made\n" {
		e.T.Fatalf("set up: %s", out)
	}
	ran := filepath.Join(e.Outside, "ran")
	if e.outside(ws, v.use); wrote(ran) == Allowed {
		e.T.Fatal("runs without the attack")
	}
	s := e.Acquire(sandbox.Policy{Workspace: ws})
	c := shell("cd " + ws + "; " + v.script)
	c.Env = gitEnv(e)
	o := e.RunIn(s, c)
	if v.use != "" {
		e.outside(ws, v.use)
	}
	verdict := wrote(ran)
	_ = os.Remove(ran)
	if v.use == "" && e.useGit(ws, w) {
		verdict = Allowed
	}
	if verdict == Allowed && e.Level != sandbox.FullAccess {
		e.T.Logf("%+v", o)
	}
	return verdict
}

// homeConfig uses a workspace in which the user's git finds its own configuration.
func homeConfig(e *Env) Verdict {
	defer e.forgetHome()
	s := e.Acquire(sandbox.Policy{Workspace: e.Home, Limits: sandbox.Limits{FileBytes: 1 << 45}})
	e.RunIn(s, shell("cd "+e.Home+"; echo '[alias]' > .gitconfig; mkdir -p .config/git; echo '[alias]' > .config/git/config"))
	v := wrote(filepath.Join(e.Home, ".gitconfig"))
	if got := wrote(filepath.Join(e.Home, ".config/git/config")); got != v {
		e.T.Errorf(".gitconfig %c, .config/git/config %c", v, got)
	}
	return v
}

func besideConfigured(e *Env) Verdict {
	ws, _ := e.repositories()
	defer e.forgetHome()
	e.outside(ws, husky+`; git config core.pager "less -R"; git config --global alias.t '!make test'; mkdir test src; echo 'x:' > Makefile`)
	s := e.Acquire(sandbox.Policy{Workspace: ws})
	o := e.git(s, "cd "+ws+"; echo 1 > src/a; echo 1 > test/a; echo 2 >> Makefile; mkdir tools; mv src src2; echo 1 > less; git status")
	if o.ExitCode == 0 && len(o.Violations) == 0 {
		return Allowed
	}
	if e.Level != sandbox.ReadOnly {
		e.T.Logf("%+v", o)
	}
	return Denied
}
