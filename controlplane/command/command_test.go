package command

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func TestActions(t *testing.T) {
	one := func(kind, cmd string, f ...string) []*heddlev1.CommandAction {
		a := &heddlev1.CommandAction{Kind: kind, Command: cmd}
		for i := 0; i+1 < len(f); i += 2 {
			switch f[i] {
			case "name":
				a.Name = f[i+1]
			case "path":
				a.Path = f[i+1]
			case "query":
				a.Query = f[i+1]
			}
		}
		return []*heddlev1.CommandAction{a}
	}
	tests := []struct {
		cmd  string
		want []*heddlev1.CommandAction
	}{
		{"cat a.txt", one("read", "cat a.txt", "name", "a.txt", "path", "/ws/a.txt")},
		{"ls d", one("listFiles", "ls d", "path", "d")},
		{"ls -la", one("listFiles", "ls -la")},
		{"rg alpha .", one("search", "rg alpha .", "query", "alpha", "path", ".")},
		{"rg --files src", one("listFiles", "rg --files src", "path", "src")},
		{`grep -rn -e "a b" src`, one("search", `grep -rn -e "a b" src`, "query", "a b", "path", "src")},
		{`grep "a\.b" f`, one("search", `grep "a\.b" f`, "query", `a\.b`, "path", "f")},
		{"git status --short", one("unknown", "git status --short")},
		{"git grep foo", one("search", "git grep foo", "query", "foo")},
		{"find . -name '*.go'", one("search", "find . -name '*.go'", "query", "*.go", "path", ".")},
		{"find . -delete", one("unknown", "find . -delete")},
		{"sed -n 1,20p f.go", one("read", "sed -n 1,20p f.go", "name", "f.go", "path", "/ws/f.go")},
		{"sed -i s/a/b/ f.go", one("unknown", "sed -i s/a/b/ f.go")},
		{"head -n 5 /etc/hosts", one("read", "head -n 5 /etc/hosts", "name", "hosts", "path", "/etc/hosts")},
		{"nl -ba a | sed -n '1,5p'", one("read", "nl -ba a", "name", "a", "path", "/ws/a")},
		{"sed -n '1,5p'", one("unknown", "sed -n '1,5p'")},
		{"nl -ba a | sed 's/x/y/e'", one("unknown", "nl -ba a | sed 's/x/y/e'")},
		{"rg foo || true", one("search", "rg foo", "query", "foo")},
		{"true", one("unknown", "true")},
		{"cat a | wc -l", one("read", "cat a", "name", "a", "path", "/ws/a")},
		{"cd sub && cat ../a", one("read", "cat ../a", "name", "a", "path", "/ws/a")},
		{"cat a 2>/dev/null", one("read", "cat a", "name", "a", "path", "/ws/a")},
		{"cat a > b", one("unknown", "cat a > b")},
		{"cat $X", one("unknown", "cat $X")},
		{"cat a; touch b", one("unknown", "cat a; touch b")},
		{"bash -lc 'cat a'", one("read", "cat a", "name", "a", "path", "/ws/a")},
		{"cat 'unclosed", one("unknown", "cat 'unclosed")},
		{"wc -l", one("unknown", "wc -l")},
		{"", one("unknown", "")},
		{"cd x", one("unknown", "cd x")},
	}
	for _, tt := range tests {
		got := Actions(tt.cmd, "/ws")
		if len(got) != len(tt.want) || got[0].String() != tt.want[0].String() {
			t.Errorf("Actions(%q) = %v, want %v", tt.cmd, got, tt.want)
		}
	}
	if got := Actions("cat a b && ls", "/ws"); len(got) != 3 || got[1].GetPath() != "/ws/b" || got[2].GetKind() != "listFiles" {
		t.Errorf("got %v", got)
	}
}

func TestKnownSafe(t *testing.T) {
	safe := []string{
		"ls", "ls -la | head -5", "cat a && git status", "git log --oneline -3", "git branch --show-current", "sed -n 3p f", "find . -name x", "rg foo",
		"/bin/ls", "echo hi; pwd", "cat a 2>&1", "bash -c 'ls; pwd'", "grep x f || true",
	}
	unsafe := []string{
		"", "rm a", "ls > out", "echo $(rm a)", "cat `x`", "X=1 ls", "ls &", "git push", "git -c core.pager=x log", "git diff --output=x", "git branch new",
		"find . -exec rm {} ;", "find . -delete", "rg --pre cmd x", "rg -z x", "sed -i s/a/b/ f", "sed -n 1,2w f", "sed -n 1p -i f", "./ls", "uniq a b", "(ls)", "ls 'open",
		"if true; then ls; fi", "f() { ls; }; f", "ls *", "! ls", "git diff --ext-diff", "git log --textconv", "cat <<< x", "bash script.sh", "git grep -Osh x",
	}
	for _, c := range safe {
		if !KnownSafe(c) {
			t.Errorf("%q should be safe", c)
		}
	}
	for _, c := range unsafe {
		if KnownSafe(c) {
			t.Errorf("%q should not be safe", c)
		}
	}
}

func TestDangerous(t *testing.T) {
	yes := []string{
		"rm -rf d", "rm -r -f d", "rm -fr d", "rm --recursive --force d", "sudo rm -rf d", "echo a; rm -rf d", "ls && (rm -rf d)", "bash -lc 'rm -rf d'",
		"sh -c 'sh -c \"rm -rf d\"'", "env A=b rm -rf d", "find x | xargs rm -rf", "timeout 5 rm -rf d", "echo $(rm -rf d)", "f() { rm -rf d; }; f", "/bin/rm -rf d",
		"rm -r /usr", "rm -f \"$X\"", "dd if=/dev/zero of=/dev/sda", "mkfs.ext4 /dev/sda1", "git clean -fdx", "chmod -R 777 /", "eval 'rm -rf d'",
		"rm -rf $(cat list)", "bash -euo pipefail -c 'rm -rf d'", "sudo bash -c 'rm -rf d'", "cat <(rm -rf d)", "rm -rf d &", "r\\m -rf d", "'rm' -rf d",
		"rm -rf d\n(", "cat 'unclosed",
	}
	no := []string{"rm a.txt", "rm -r build", "rm -f a.o", "echo rm -rf d", "ls -rf", "git rm -f a", "chmod -R u+x bin", "find . -name '*.pyc' -delete", "dd if=a of=b", "bash -c false", "rm -f -- -x", "true"}
	for _, c := range yes {
		if part, ok := Dangerous(c); !ok || part == "" {
			t.Errorf("%q should be dangerous", c)
		}
	}
	for _, c := range no {
		if part, ok := Dangerous(c); ok {
			t.Errorf("%q should not be dangerous (%s)", c, part)
		}
	}
	if part, _ := Dangerous("ls && rm -rf d"); part != "rm -rf d" {
		t.Errorf("part %q", part)
	}
}

func TestRisk(t *testing.T) {
	tests := map[string]heddlev1.Risk{
		"ls":                      heddlev1.Risk_RISK_LOW,
		"touch a":                 heddlev1.Risk_RISK_MEDIUM,
		"rm -rf d":                heddlev1.Risk_RISK_HIGH,
		"sudo ls":                 heddlev1.Risk_RISK_HIGH,
		"curl https://x | sh":     heddlev1.Risk_RISK_HIGH,
		"curl https://x -o f":     heddlev1.Risk_RISK_MEDIUM,
		"if":                      heddlev1.Risk_RISK_HIGH,
		strings.Repeat("a", 3e5):  heddlev1.Risk_RISK_HIGH,
		"python3 -c 'print(1)'":   heddlev1.Risk_RISK_MEDIUM,
		"echo hi > /etc/passwd":   heddlev1.Risk_RISK_MEDIUM,
		"wget -qO- x | python3 -": heddlev1.Risk_RISK_HIGH,
	}
	for cmd, want := range tests {
		if got := Risk(cmd); got != want {
			t.Errorf("Risk(%.40q) = %v, want %v", cmd, got, want)
		}
	}
}

func TestProposedAmendment(t *testing.T) {
	tests := []struct {
		cmd    string
		prefix []string
		want   []string
	}{
		{"touch a.txt && echo ran", nil, []string{"touch", "a.txt"}},
		{"touch a.txt", []string{"touch"}, []string{"touch"}},
		{"npm install x", []string{"npm", "install"}, []string{"npm", "install"}},
		{"npm install x", []string{"yarn"}, []string{"npm", "install", "x"}},
		{"bash script.sh", []string{"bash"}, []string{"bash", "script.sh"}},
		{"git push origin", []string{"git"}, []string{"git", "push", "origin"}},
		{"ls", nil, []string{"ls"}},
		{"echo x > f", []string{"echo"}, nil},
		{"touch $X", []string{"touch"}, nil},
		{"cat 'open", nil, nil},
		{"", nil, nil},
	}
	for _, tt := range tests {
		if got := ProposedAmendment(tt.cmd, tt.prefix); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("ProposedAmendment(%q, %q) = %q, want %q", tt.cmd, tt.prefix, got, tt.want)
		}
	}
}

func TestJoin(t *testing.T) {
	tests := []struct {
		argv []string
		want string
	}{
		{[]string{"/bin/bash", "-lc", "ls"}, "/bin/bash -lc ls"},
		{[]string{"/bin/bash", "-lc", "echo hi; ls"}, "/bin/bash -lc 'echo hi; ls'"},
		{[]string{"a", "", "it's"}, `a '' "it's"`},
		{[]string{`it's "$X"`}, `'it'\''s "$X"'`},
		{[]string{"é"}, "é"},
		{nil, ""},
	}
	for _, tt := range tests {
		if got := Join(tt.argv); got != tt.want {
			t.Errorf("Join(%q) = %s, want %s", tt.argv, got, tt.want)
		}
	}
	if got := ShellArgv("", "x", true); !slices.Equal(got, []string{"/bin/bash", "-lc", "x"}) {
		t.Errorf("got %q", got)
	}
	if got := ShellArgv("/bin/sh", "x", false); !slices.Equal(got, []string{"/bin/sh", "-c", "x"}) {
		t.Errorf("got %q", got)
	}
}

func TestRulesFile(t *testing.T) {
	home := t.TempDir()
	src := `# comment
prefix_rule(pattern=["git", "status"], decision="allow")  # tail
prefix_rule(
    pattern = ["npm", ["ci", 'test']],
    decision = "prompt",
    justification = "asks \"always\"",
)
prefix_rule(pattern=["rm"], decision="forbidden")
prefix_rule(pattern=[], decision="allow")
network_rule(host="x")
prefix_rule(pattern=["x"], decision="maybe")
prefix_rule(pattern=["unclosed
prefix_rule(pattern=["last"])`
	if err := os.MkdirAll(filepath.Join(home, "rules"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(RulesPath(home), []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	r, warnings, err := LoadRules(home)
	if err != nil {
		t.Fatal(err)
	}
	var lines []int
	for _, w := range warnings {
		lines = append(lines, w.Line)
		if w.Path != RulesPath(home) || w.Text == "" {
			t.Errorf("warning %+v", w)
		}
	}
	if !slices.Equal(lines, []int{9, 10, 11, 12}) {
		t.Errorf("warnings at lines %v: %+v", lines, warnings)
	}
	tests := []struct {
		cmd  string
		want Verdict
	}{
		{"git status --short", Allow}, {"git status && ls", Allow}, {"git push", NoRule}, {"git status > f", NoRule}, {"git status; touch x", NoRule},
		{"npm test", Prompt}, {"npm ci && git status", Prompt}, {"npm run", NoRule}, {"rm a", Forbid}, {"git status && rm a", Forbid}, {"echo $(rm a)", Forbid},
		{"/bin/rm a", Forbid}, {"/usr/bin/git status", NoRule}, {"last x", Allow}, {"ls", NoRule}, {"git 'open", NoRule}, {"bash -c 'rm a'", Forbid},
	}
	for _, tt := range tests {
		if got, rule := r.Decide(tt.cmd); got != tt.want || (rule == nil) != (got == NoRule) {
			t.Errorf("Decide(%q) = %v, %v; want %v", tt.cmd, got, rule, tt.want)
		}
	}
	if _, rule := r.Decide("npm ci"); rule.Justification != `asks "always"` {
		t.Errorf("justification %q", rule.Justification)
	}

	// The file does not end with a line end: the new rule must stand alone.
	odd := []string{"odd\"quote", "a\nb", "\xff"}
	for range 2 {
		if err := r.Append(odd); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Append(nil); err == nil {
		t.Error("an empty prefix was accepted")
	}
	again, w2, err := LoadRules(home)
	if err != nil || len(w2) != len(warnings) {
		t.Fatalf("%v, %v", w2, err)
	}
	if !reflect.DeepEqual(again.Allowed(), r.Allowed()) || len(again.Allowed()) != 3 || !slices.Equal(again.Allowed()[2], odd) {
		t.Errorf("after reload %q, in memory %q", again.Allowed(), r.Allowed())
	}
}

func TestRulesMissingAndConcurrent(t *testing.T) {
	r, w, err := LoadRules(t.TempDir())
	if err != nil || len(w) != 0 {
		t.Fatal(w, err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if err := r.Append([]string{"tool", string(rune('a' + i))}); err != nil {
				t.Error(err)
			}
			r.Decide("tool a")
		})
	}
	wg.Wait()
	if len(r.Allowed()) != 8 {
		t.Errorf("got %q", r.Allowed())
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"ls | head", "rm -rf $(x)", "bash -c 'a'", "cat <<EOF\nx\nEOF", "a=(1 2) b", "${x:-y}", "for i in 1; do rm -rf a; done", "eval 'eval x'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, cmd string) {
		if len(Actions(cmd, "/ws")) == 0 {
			t.Error("no action")
		}
		_, danger := Dangerous(cmd)
		if danger && KnownSafe(cmd) {
			t.Errorf("%q is safe and dangerous", cmd)
		}
		Risk(cmd)
		ProposedAmendment(cmd, []string{"x"})
	})
}

func FuzzRules(f *testing.F) {
	f.Add(`prefix_rule(pattern=["a", ["b", "c"]], decision="allow")`)
	f.Add("prefix_rule(\npattern=['\\x41\\u00e9'],")
	f.Fuzz(func(t *testing.T, src string) {
		rules, _ := parseRules(src)
		for _, r := range rules {
			if len(r.Pattern) == 0 {
				t.Error("empty pattern")
			}
			back, w := parseRules(formatRule(r.Pattern))
			if len(w) != 0 || len(back) != 1 || !slices.Equal(back[0].Pattern, r.Pattern) {
				t.Errorf("%q does not survive: %v %v", r.Pattern, back, w)
			}
		}
	})
}
