package sandboxtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/heddle-dev/heddle/sandbox"
)

// vector is one way to make git run something later, outside. It is judged by letting git work outside afterwards,
// as the user would, and looking whether the program ran; left, when set, tells of an effect that a short look at
// git would not show.
type vector struct {
	id, what string
	// script runs in the workspace; $RUN is the program.
	script string
	left   func(ws string) bool
}

func holds(name, text string) func(ws string) bool {
	return func(ws string) bool {
		b, err := os.ReadFile(filepath.Join(ws, name))
		return err == nil && strings.Contains(string(b), text)
	}
}

func exists(name string) func(ws string) bool {
	return func(ws string) bool { return wrote(filepath.Join(ws, name)) == Allowed }
}

const hookTo = `printf '#!/bin/sh\n%s\n' "$RUN" > HOOK && chmod +x HOOK`

func hook(path string) string { return strings.ReplaceAll(hookTo, "HOOK", path) }

// rebase makes a rebase in a git directory that would go on with a command.
func rebase(dir, word string) string {
	return `h=$(git --git-dir=` + dir + ` rev-parse HEAD); mkdir ` + dir + `/rebase-merge; cd ` + dir + `/rebase-merge; echo refs/heads/main > head-name; echo $h > onto; cp onto orig-head; touch interactive; echo 1 > msgnum; echo 1 > end; touch done; echo "` + word + ` $RUN" > git-rebase-todo`
}

// commitVectors attack the repository of the workspace while git may commit.
var commitVectors = []vector{
	{"G01", "a hook", "mkdir -p .git/hooks; " + hook(".git/hooks/pre-commit"), nil},
	{"G02", "a hook by moving hooks away", "mv .git/hooks .git/h2; mkdir .git/hooks; " + hook(".git/hooks/pre-commit"), nil},
	{"G03", "core.fsmonitor", `git config core.fsmonitor "$RUN"; printf '[core]\n\tfsmonitor = %s\n' "$RUN" >> .git/config`, nil},
	{"G04", "a new config moved over the old", `printf '[core]\n\tfsmonitor = %s\n' "$RUN" > .git/c2; mv -f .git/c2 .git/config`, nil},
	{"G05", "another .git in place of this", `mv .git .g2 && cp -r .g2 .git && printf '[core]\n\tfsmonitor = %s\n' "$RUN" >> .git/config`, nil},
	{"G06", "config.worktree", `printf '[core]\n\tfsmonitor = %s\n' "$RUN" > .git/config.worktree`, exists(".git/config.worktree")},
	{"G07", "commondir", `cp -r .git evil; printf '[core]\n\tfsmonitor = %s\n' "$RUN" >> evil/config; echo ../evil > .git/commondir`, nil},
	{"G08", "attributes", `echo '* filter=x' > .git/info/attributes`, exists(".git/info/attributes")},
	{"G09", "attributes by moving info away", `mv .git/info .git/i2; mkdir .git/info; echo '* filter=x' > .git/info/attributes`, exists(".git/info/attributes")},
	{"G10", "a submodule's hook", hook(".git/modules/sub/hooks/pre-commit"), nil},
	{"G11", "a submodule's configuration", `printf '[core]\n\tfsmonitor = %s\n' "$RUN" >> .git/modules/sub/config`, nil},
	{"G12", "other modules", `mv .git/modules .git/m2; cp -r .git/m2 .git/modules; printf '[core]\n\tfsmonitor = %s\n' "$RUN" >> .git/modules/sub/config`, nil},
	{"G13", "a worktree's commondir", `mkdir -p evil; cp -r .git/. evil/; printf '[core]\n\tfsmonitor = %s\n' "$RUN" >> evil/config; echo "$PWD/evil" > .git/worktrees/w/commondir`, holds(".git/worktrees/w/commondir", "evil")},
	{"G14", "a worktree's config.worktree", `printf '[core]\n\tfsmonitor = %s\n' "$RUN" > .git/worktrees/w/config.worktree`, exists(".git/worktrees/w/config.worktree")},
	{"G15", "a worktree's gitdir", `echo /elsewhere/.git > .git/worktrees/w/gitdir`, holds(".git/worktrees/w/gitdir", "elsewhere")},
	{"G16", "a new worktree that takes its configuration elsewhere", `mkdir -p wt .git/worktrees/n; cp .git/HEAD .git/index .git/worktrees/n/; cp -r .git evil; printf '[core]\n\tfsmonitor = %s\n' "$RUN" >> evil/config
echo "$PWD/evil" > .git/worktrees/n/commondir; echo "$PWD/wt/.git" > .git/worktrees/n/gitdir; echo "gitdir: $PWD/.git/worktrees/n" > wt/.git`, nil},
	{"G17", "alternates", `echo "$OUTSIDE" > .git/objects/info/alternates`, exists(".git/objects/info/alternates")},
	{"G18", "a log that is a link", `rm -f .git/logs/HEAD; ln -s "$OUTSIDE/log" .git/logs/HEAD`, func(ws string) bool { return isLink(filepath.Join(ws, ".git/logs/HEAD")) }},
	{"G19", "a message file that is a link", `rm -f .git/COMMIT_EDITMSG; ln -s "$OUTSIDE/msg" .git/COMMIT_EDITMSG`, func(ws string) bool { return isLink(filepath.Join(ws, ".git/COMMIT_EDITMSG")) }},
	{"G20", "an unfinished rebase with a command", `mkdir .git/rebase-merge; cd .git/rebase-merge; echo refs/heads/main > head-name; git rev-parse HEAD > onto; cp onto orig-head; touch interactive; echo 1 > msgnum; echo 1 > end; touch done; echo "exec $RUN" > git-rebase-todo`, nil},
	{"G20b", "the same in a linked worktree, said shortly", rebase(".git/worktrees/w", "x"), nil},
	{"G20c", "the same in a submodule", rebase(".git/modules/sub", "exec"), nil},
	{"G21", "a submodule's .git that leads elsewhere", `cp -r .git/modules/sub evil; printf '[core]\n\tfsmonitor = %s\n\tworktree = %s\n' "$RUN" "$PWD/sub" >> evil/config; echo 'gitdir: ../evil' > sub/.git`, nil},
	{"G22", "a repository in place of a submodule's .git", `cp -r .git/modules/sub evil; printf '[core]\n\tfsmonitor = %s\n\tworktree = %s\n' "$RUN" "$PWD/sub" >> evil/config; rm sub/.git; mv evil sub/.git`, nil},
	{"G23", "hooks elsewhere", `mkdir -p evil; ` + hook("evil/pre-commit") + `; git config core.hooksPath evil`, nil},
}

// nestedVectors attack repositories elsewhere in the workspace; .git of the workspace is protected.
var nestedVectors = []vector{
	{"F11", "a hook in a new repository", "git init -q vendor/n; " + hook("vendor/n/.git/hooks/pre-commit"), nil},
	{"F11b", "a hook in a repository in place of a known one", "mv vendor/sub vendor/sub2; git init -q vendor/sub; " + hook("vendor/sub/.git/hooks/pre-commit"), nil},
	{"F11c", "a hook in a known repository", hook("vendor/sub/.git/hooks/pre-commit"), nil},
	{"F11d", "a changed hook of the user's", `printf '%s\n' "$RUN" >> vendor/hooked/.git/hooks/pre-commit`, nil},
	{"F11e", "core.fsmonitor in a known repository", `git -C vendor/sub config core.fsmonitor "$RUN"`, nil},
	{"F11f", "core.hooksPath in a new repository", `git init -q vendor/n; mkdir h; ` + hook("h/pre-commit") + `; git -C vendor/n config core.hooksPath "$PWD/h"`, nil},
	{"F11g", "an included file", `git init -q vendor/n; printf '[core]\n\tfsmonitor = %s\n' "$RUN" > inc; git -C vendor/n config include.path "$PWD/inc"`, nil},
	{"F11h", "old files moved to be a repository", `mv payload vendor/.git`, nil},
	{"F11i", "old files moved to be hooks", `rm -rf vendor/sub/.git/hooks; mv payloadhooks vendor/sub/.git/hooks`, nil},
	{"F11j", "a repository without the name", `git init -q --bare vendor/bare; git -C vendor/bare config core.fsmonitor "$RUN"; git -C vendor/bare config core.bare false; git -C vendor/bare config core.worktree "$PWD"`, nil},
	{"F11k", "a .git file to a directory with another name", `git init -q x; mv x/.git store; rmdir x; mkdir vendor/p; printf '[core]\n\tfsmonitor = %s\n' "$RUN" >> store/config; echo 'gitdir: ../../store' > vendor/p/.git`, nil},
	{"F11l", "a .git link to a directory with another name", `git init -q x; mv x/.git store; rmdir x; mkdir vendor/p; printf '[core]\n\tfsmonitor = %s\n' "$RUN" >> store/config; ln -s ../../store vendor/p/.git`, nil},
	{"F11m", "a submodule of a new repository", `git init -q vendor/n; cp -r vendor/sub/.git store; mkdir -p vendor/n/.git/modules vendor/n/s; mv store vendor/n/.git/modules/s; printf '[core]\n\tfsmonitor = %s\n' "$RUN" >> vendor/n/.git/modules/s/config; echo 'gitdir: ../.git/modules/s' > vendor/n/s/.git`, nil},
	{"F11n", "another common directory", `git init -q vendor/n; cp -r vendor/n/.git store; rm store/HEAD; printf '[core]\n\tfsmonitor = %s\n' "$RUN" >> store/config; echo ../../../store > vendor/n/.git/commondir`, nil},
	{"F11o", "an alias and a filter", `git -C vendor/sub config alias.st "!$RUN"; git -C vendor/sub config filter.x.clean "$RUN"; echo '* filter=x' > vendor/sub/.gitattributes; echo 1 > vendor/sub/new`, nil},
	{"F11q", "an unfinished rebase with a command in a known repository", rebase("vendor/sub/.git", "x"), nil},
	{"F11p", "a hook deep below", "mkdir -p a/b/c/d/e; git init -q a/b/c/d/e/n; cp -r a/b/c/d/e/n vendor/n; " + hook("vendor/n/.git/hooks/pre-commit") + "; " + hook("a/b/c/d/e/n/.git/hooks/pre-commit"), exists("a/b/c/d/e/n/.git/hooks/pre-commit")},
}

func isLink(path string) bool {
	_, err := os.Readlink(path)
	return err == nil
}

var gitRows = makeGitRows()

func makeGitRows() []Row {
	rows := []Row{
		{"S10", "git commits in a checkout, a linked worktree and a submodule, when that is set", "DAA", commitWorks, noGit},
		{"S10b", "the same when it is not set", "DDA", commitRefused, noGit},
		{"S11", "repositories are made, cloned and used as usual", "DAA", honestWork, noGit},
		{"F23c", "plant a hook in a .git that the host makes while a command runs", "DDA", replacedMeanwhile, noGit},
		{"F23d", "the same in the middle, with another command since", "DDA", replacedAndUsed, noGit},
		{"F21b", "a .git file that names a deeper directory: move what is above it", "DDA", deepGitFile, nil},
	}
	for _, v := range commitVectors {
		rows = append(rows, Row{v.id, v.what + ", git may commit", "DDA", func(e *Env) Verdict { return e.plant(v, sandbox.GitCommit) }, noGit})
	}
	for _, v := range nestedVectors {
		rows = append(rows, Row{v.id, v.what, "DDA", func(e *Env) Verdict { return e.plant(v, sandbox.GitProtected) }, noGit})
	}
	return rows
}

// ByFiles reports whether a row is judged by files alone, so that it does not depend on how commands are ended.
func ByFiles(id string) bool {
	byID := func(r Row) bool { return r.ID == id }
	return slices.ContainsFunc(gitRows, byID) || slices.ContainsFunc(hookRows, byID) || slices.ContainsFunc(denyRows, byID) || slices.ContainsFunc(reachRows, byID)
}

func noGit(*Env) string {
	if _, err := exec.LookPath("git"); err != nil {
		return "git is not installed"
	}
	return ""
}

// outside runs a script as the user would, with git knowing its author.
func (e *Env) outside(dir, script string) string {
	c := exec.Command("bash", "-c", script)
	c.Dir = dir
	c.Env = append(gitEnv(e), "GIT_ALLOW_PROTOCOL=file")
	b, _ := c.CombinedOutput()
	return string(b)
}

func gitEnv(e *Env) []string {
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + e.Home, "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_EDITOR=true",
		"GIT_AUTHOR_NAME=u", "GIT_AUTHOR_EMAIL=u@x", "GIT_COMMITTER_NAME=u", "GIT_COMMITTER_EMAIL=u@x",
		"OUTSIDE=" + e.Outside, "RUN=touch " + filepath.Join(e.Outside, "ran")}
}

// repositories makes base/ws with a submodule, nested repositories and payloads, and base/w, a worktree of it. They
// are made once and copied.
func (e *Env) repositories() (ws, w string) {
	model := filepath.Join(filepath.Dir(e.WS), "git-model")
	if wrote(model) == Denied {
		e.must(os.Mkdir(model, 0o755))
		out := e.outside(model, `set -e; git init -q -b main lib; cd lib; echo 1 > f; git add f; git commit -qm a; cd ..; git init -q -b main ws; cd ws
echo 1 > f; git add f; git commit -qm a; git -c protocol.file.allow=always submodule --quiet add "$PWD/../lib" sub; git commit -qm s; git worktree add -q ../w
git clone -q ../lib vendor/sub; git clone -q ../lib vendor/hooked; printf '#!/bin/sh\n:\n' > vendor/hooked/.git/hooks/pre-commit; chmod +x vendor/hooked/.git/hooks/pre-commit
git init -q p; mv p/.git payload; rmdir p; printf '[core]\n\tfsmonitor = %s\n' "$RUN" >> payload/config
rm -f .git/hooks/*.sample */*/.git/hooks/*.sample; mkdir payloadhooks; `+hook("payloadhooks/pre-commit")+`; echo made`)
		if !strings.HasSuffix(out, "made\n") {
			e.T.Fatalf("make repositories: %s", out)
		}
	}
	base, err := os.MkdirTemp(filepath.Dir(e.WS), "git-")
	e.must(err)
	e.T.Cleanup(func() { os.RemoveAll(base) })
	e.must(os.Chmod(base, 0o755))
	ws, w = filepath.Join(base, "ws"), filepath.Join(base, "w")
	if out, err := exec.Command("cp", "-a", model+"/.", base).CombinedOutput(); err != nil {
		e.T.Fatalf("copy repositories: %v: %s", err, out)
	}
	e.must(os.WriteFile(filepath.Join(w, ".git"), []byte("gitdir: "+ws+"/.git/worktrees/w\n"), 0o644))
	e.must(os.WriteFile(filepath.Join(ws, ".git/worktrees/w/gitdir"), []byte(w+"/.git\n"), 0o644))
	return ws, w
}

// useGit lets git work in every repository below, outside, and reports whether the planted program ran.
func (e *Env) useGit(ws, w string) bool {
	ran := filepath.Join(e.Outside, "ran")
	e.outside(ws, `for d in . sub wt vendor vendor/* vendor/n/s `+w+`; do cd "$d" && git status && git commit -qm host --allow-empty; test -d "$(git rev-parse --git-path rebase-merge)" && git rebase --continue; cd `+ws+`; done
cd vendor/sub && git st`)
	v := wrote(ran)
	_ = os.Remove(ran)
	return v == Allowed
}

// plant runs a vector in a workspace of its own.
func (e *Env) plant(v vector, mode sandbox.GitMode) Verdict {
	ws, w := e.repositories()
	s := e.Acquire(sandbox.Policy{Workspace: ws, Git: mode})
	c := shell("cd " + ws + "; " + v.script)
	c.Env = gitEnv(e)
	o := e.RunIn(s, c)
	if e.Level == sandbox.WorkspaceWrite && mode == sandbox.GitProtected && len(o.Violations) == 0 {
		e.T.Errorf("nothing was told: %+v", o)
	}
	left := v.left != nil && v.left(ws)
	ran := e.useGit(ws, w)
	if !left && !ran {
		return Denied
	}
	if e.Level != sandbox.FullAccess {
		e.T.Logf("left %v, ran %v: %+v", left, ran, o)
	}
	return Allowed
}

func (e *Env) git(s *sandbox.Sandbox, script string) Output {
	c := shell("set -e; " + script)
	c.Env = append(gitEnv(e), "GIT_ALLOW_PROTOCOL=file")
	return e.RunIn(s, c)
}

const commitScript = `echo 2 >> f; git add f; git commit -qm two; git branch topic; echo 3 >> f; git stash -q; git stash pop -q; git commit -qam three
git checkout -q -b "side-$NAME" HEAD~1; echo s > s; git add s; git commit -qm side; git rebase -q -; git log --format=%s -1`

func commitWorks(e *Env) Verdict {
	ws, w := e.repositories()
	works := 0
	for _, dir := range []string{ws, w, filepath.Join(ws, "sub")} {
		o := e.git(e.Acquire(sandbox.Policy{Workspace: dir, Git: sandbox.GitCommit}), "NAME="+filepath.Base(dir)+"; git branch -D topic || true; "+commitScript)
		if o.ExitCode == 0 && len(o.Violations) == 0 && e.outside(dir, "git log --format=%s -1") == "side\n" {
			works++
		} else if e.Level != sandbox.ReadOnly {
			e.T.Logf("%s: %+v", dir, o)
		}
	}
	if works == 3 {
		return Allowed
	}
	if works > 0 {
		e.T.Errorf("works in %d of 3", works)
	}
	return Denied
}

func commitRefused(e *Env) Verdict {
	ws, w := e.repositories()
	v := Denied
	for _, dir := range []string{ws, w} {
		o := e.git(e.Acquire(sandbox.Policy{Workspace: dir}), "echo 2 >> f; git add f; git commit -qm two")
		if o.ExitCode == 0 {
			v = Allowed
		} else if !strings.Contains(o.Stderr, "Read-only file system") {
			e.T.Errorf("%s: %+v", dir, o)
		}
	}
	return v
}

func honestWork(e *Env) Verdict {
	ws, _ := e.repositories()
	s := e.Acquire(sandbox.Policy{Workspace: ws})
	for _, script := range []string{
		"git init -q mine; cd mine; git config user.name x; git remote add origin https://example.invalid/x.git; echo 1 > f; git add f; git commit -qm mine",
		"git clone -q vendor/sub cloned; cd cloned; git checkout -q -b b; echo 2 > f; git commit -qam b; git push -q origin b",
		"cd vendor/hooked; echo 2 > f; git commit -qam hooked", // with the user's own hook
		"git clone -q --bare vendor/sub bare.git; git -c protocol.file.allow=always -C mine submodule --quiet add $PWD/bare.git s; git -C mine commit -qm s; rm -rf cloned",
		"mv vendor/hooked moved; cd moved; git worktree add -q ../wt2; cd ../wt2; echo 9 > f; git commit -qam 9",
	} {
		o := e.git(s, "cd "+ws+"; "+script)
		if len(o.Violations) > 0 || o.ExitCode != 0 {
			if e.Level != sandbox.ReadOnly {
				e.T.Errorf("%s: %+v", script, o)
			}
			return Denied
		}
	}
	if wrote(filepath.Join(ws, "moved/.git/hooks/pre-commit")) == Denied {
		e.T.Error("the user's hook is gone")
	}
	return Allowed
}

// meanwhile starts a command, lets the host make .git anew while it runs, and returns the end of the command after
// it planted a hook there.
func (e *Env) meanwhile(between func(s *sandbox.Sandbox, ws string)) Verdict {
	ws, w := e.repositories()
	s := e.Acquire(sandbox.Policy{Workspace: ws})
	c := shell("cd " + ws + "; read -r x; mkdir -p .git/hooks; " + hook(".git/hooks/pre-commit"))
	c.Env, c.Stdin = gitEnv(e), sandbox.StdinPipe
	p, err := s.Start(context.Background(), c)
	e.must(err)
	if out := e.outside(ws, "mv .git ../old.git && git init -q -b main"); out != "" {
		e.T.Fatal(out)
	}
	between(s, ws)
	_, err = fmt.Fprintln(p.Stdin(), "go")
	e.must(err)
	p.Stdin().Close()
	o := Finish(e.T, p)
	if e.Level == sandbox.WorkspaceWrite {
		told := fmt.Sprint(o.Violations)
		if !strings.Contains(told, "pre-commit") && wrote(filepath.Join(ws, ".git/hooks/pre-commit")) == Allowed || len(o.Violations) == 0 {
			e.T.Errorf("violations: %s", told)
		}
	}
	if wrote(filepath.Join(ws, ".git/hooks/pre-commit")) == Allowed || e.useGit(ws, w) {
		return Allowed
	}
	return Denied
}

func replacedMeanwhile(e *Env) Verdict { return e.meanwhile(func(*sandbox.Sandbox, string) {}) }

func replacedAndUsed(e *Env) Verdict {
	return e.meanwhile(func(s *sandbox.Sandbox, ws string) { e.git(s, "cd "+ws+"; git status") })
}

func deepGitFile(e *Env) Verdict {
	ws := e.WS + "-f21b"
	e.must(os.MkdirAll(filepath.Join(ws, "a", "b", "meta", "hooks"), 0o755))
	e.must(os.WriteFile(filepath.Join(ws, ".git"), []byte("gitdir: a/b/meta\n"), 0o644))
	defer os.RemoveAll(ws)
	e.RunIn(e.Acquire(policyFor(ws)), shell("cd "+ws+"; echo x > a/b/meta/hooks/h; mv a a2; mkdir -p a/b/meta/hooks; mv a/b a/b2; mkdir -p a/b/meta/hooks; echo x > a/b/meta/hooks/h"))
	return wrote(filepath.Join(ws, "a/b/meta/hooks/h"))
}
