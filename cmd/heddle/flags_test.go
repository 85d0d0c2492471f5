package main

import (
	"bufio"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// referenceFlags reads the table of the reference's flags: by subcommand, each
// with its one-letter form before it where it has one.
func referenceFlags(t *testing.T) map[string][]string {
	t.Helper()
	f, err := os.Open("testdata/reference-flags.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, command := map[string][]string{}, ""
	for lines := bufio.NewScanner(f); lines.Scan(); {
		switch line := lines.Text(); {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			command = strings.Trim(line, "[]")
		default:
			table[command] = append(table[command], line)
		}
	}
	return table
}

// Hosts start heddle with the flags of the reference: each one is known to the
// subcommand of the same name, by the same letter, and explained.
func TestFlagsOfTheReference(t *testing.T) {
	table := referenceFlags(t)
	if len(table) < 6 || len(table["exec"]) < 30 {
		t.Fatalf("the table has %d subcommands, %d flags of exec", len(table), len(table["exec"]))
	}
	for command, flags := range table {
		cmd, _, err := newRootCommand().Find(strings.Fields(command))
		if err != nil || cmd.CommandPath() != "heddle "+command {
			t.Errorf("there is no heddle %s: %v", command, err)
			continue
		}
		cmd.InitDefaultHelpFlag()
		known := map[string]*pflag.Flag{}
		add := func(f *pflag.Flag) { known[f.Name] = f }
		cmd.Flags().VisitAll(add)
		cmd.InheritedFlags().VisitAll(add)
		for _, line := range flags {
			short, name, both := strings.Cut(line, " ")
			if !both {
				short, name = "", line
			}
			f := known[strings.TrimPrefix(name, "--")]
			switch {
			case f == nil:
				t.Errorf("heddle %s has no %s", command, name)
			case f.Usage == "" || f.Hidden:
				t.Errorf("heddle %s does not explain %s", command, name)
			case short != "" && f.Shorthand != strings.TrimPrefix(short, "-"):
				t.Errorf("heddle %s has %s as -%s, not %s", command, name, f.Shorthand, short)
			}
		}
	}
}

// What heddle does not have is refused in one line that names it.
func TestRefusedFlags(t *testing.T) {
	t.Setenv("HEDDLE_HOME", t.TempDir())
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"app-server", "--cloud-skills-snapshot", "x"}, "no cloud skills"},
		{[]string{"app-server", "--code-mode-host", "x"}, "no code mode"},
		{[]string{"app-server", "--listen", "off"}, "leaves nobody to serve"},
		{[]string{"app-server", "--startup-sign-out"}, "--print-startup-config"},
		{[]string{"app-server", "--print-startup-config", "--listen", "stdio://"}, "leave --listen out"},
		{[]string{"app-server", "--startup-client-info", `{"name":"x"}`}, "name and version"},
		{[]string{"app-server", "--startup-client-info", `{bad`}, "JSON"},
		{[]string{"app-server", "daemon", "start", "--x"}, "no daemon"},
		{[]string{"app-server", "generate-ts", "--out", "x"}, "generate-ts"},
		{[]string{"app-server", "generate-json-schema", "--out", "x"}, "generate-json-schema"},
		{[]string{"exec", "--remote", "ws://h:1", "hi"}, "--connect"},
		{[]string{"exec", "--remote-auth-token-env", "T", "hi"}, "--connect"},
		{[]string{"exec", "--worktree", "hi"}, "git worktree add"},
		{[]string{"exec", "resume", "--last", "--cyber-access-program", "standard", "hi"}, "access programs"},
		{[]string{"exec", "--approve-for-me", "-s", "read-only", "hi"}, "workspace-write"},
		{[]string{"exec", "--approve-for-me", "--dangerously-bypass-approvals-and-sandbox", "hi"}, "workspace-write"},
		{[]string{"exec", "--trust", "--skip-git-repo-check", "--connect", "127.0.0.1:1", "hi"}, "--connect"},
		{[]string{"exec", "--oss", "hi"}, "--local-provider"},
		{[]string{"exec", "--oss", "--local-provider", "none", "hi"}, "needs --model"},
		{[]string{"exec", "--oss", "--local-provider", "none", "-m", "x", "hi"}, "no such provider"},
		{[]string{"exec", "review"}, "--uncommitted"},
		{[]string{"exec", "review", "--base", "main", "--uncommitted"}, "one of"},
		{[]string{"exec", "review", "--uncommitted", "--title", "x"}, "--commit"},
		{[]string{"exec", "review", "--uncommitted", "--output-schema", "x"}, "--output-schema"},
	} {
		var out, errs strings.Builder
		code := run(row.args, strings.NewReader(""), &out, &errs)
		if text := errs.String(); code != exitUsage || !strings.Contains(text, row.want) || lastLines(text) > 1 {
			t.Errorf("%v: exit %d, %q", row.args, code, text)
		}
	}
}

// lastLines counts the lines beside those about reading the prompt.
func lastLines(text string) int {
	n := 0
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "heddle: ") {
			n++
		}
	}
	return n
}
