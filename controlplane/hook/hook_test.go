package hook

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/config"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func read1(t *testing.T, toml string) ([]Hook, []string) {
	t.Helper()
	h := config.Home{Dir: t.TempDir()}
	if err := os.WriteFile(h.Path(), []byte(toml), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(config.Options{Home: h})
	if err != nil {
		t.Fatal(err)
	}
	if w := c.Warnings(); len(w) != 0 {
		t.Errorf("the config warns: %v", w)
	}
	hooks, warnings := Of(c)
	for i := range hooks {
		hooks[i].Key = strings.TrimPrefix(hooks[i].Key, h.Path())
	}
	return hooks, warnings
}

// The hash is the one that the reference client shows and trusts.
func TestHashIsTheReferences(t *testing.T) {
	hooks, warnings := read1(t, `
[[hooks.PreToolUse]]
[[hooks.PreToolUse.hooks]]
type = "command"
command = "echo x"
[[hooks.PreToolUse]]
matcher = "Bash"
[[hooks.PreToolUse.hooks]]
type = "command"
command = "/tmp/hk/h.sh pre '' 2 'no way'"
timeout = 5
statusMessage = "checking"
`)
	if len(hooks) != 2 || len(warnings) != 0 {
		t.Fatal(hooks, warnings)
	}
	for i, want := range []string{"0401ee65c964c5b4a38014ed3dc84f5c12cbf172ccc68fea10e464081faffb83", "e9953d6e4964f2c4f577d6ea30daa9f94706c753b866eb355cd0f46c33973954"} {
		if hooks[i].Hash != "sha256:"+want {
			t.Errorf("hook %d: %s", i, hooks[i].Hash)
		}
	}
	if hooks[1].Key != ":pre_tool_use:1:0" || hooks[1].RunID("c") != fmt.Sprintf("pre-tool-use:1:%s:c", hooks[1].SourcePath) {
		t.Error(hooks[1].Key, hooks[1].RunID("c"))
	}
}

func TestWhatIsLeftOut(t *testing.T) {
	for toml, want := range map[string]string{
		"[[hooks.Bogus]]\n":           `unknown hook event "Bogus"`,
		"[[hooks.PreCompact]]\n":      "PreCompact hooks are not run",
		"[[hooks.Stop]]\n":            `without a list "hooks"`,
		"[hooks]\nStop = 1\n":         "not a list of tables",
		"[hooks]\nStop = [1, \"x\"]":  `without a list "hooks"`,
		"[[hooks.Stop]]\nhooks=[1]\n": `type ""`,
		"[[hooks.Stop]]\nhooks=[{type=\"prompt\", prompt=\"x\"}]\n":                  `type "prompt"`,
		"[[hooks.Stop]]\nhooks=[{type=\"command\", command=\" \"}]\n":                "is empty",
		"[[hooks.Stop]]\nhooks=[{type=\"command\", command=\"x\", async=true}]\n":    "async",
		"[[hooks.Stop]]\nmatcher=\"[\"\nhooks=[{type=\"command\", command=\"x\"}]\n": "invalid matcher",
	} {
		if hooks, warnings := read1(t, toml); len(hooks) != 0 || !strings.Contains(strings.Join(warnings, "\n"), want) {
			t.Errorf("%s: %v %v", toml, hooks, warnings)
		}
	}
	many := strings.Repeat("[[hooks.Stop]]\nhooks=[{type=\"command\", command=\"x\"}]\n", MaxHooks+1)
	if hooks, warnings := read1(t, many); len(hooks) != MaxHooks || len(warnings) != 1 {
		t.Error(len(hooks), warnings)
	}
}

// Only a session does without trust, no file.
func TestBypass(t *testing.T) {
	h := config.Home{Dir: t.TempDir()}
	if err := os.WriteFile(h.Path(), []byte("bypass_hook_trust = true\n[[hooks.Stop]]\nhooks=[{type=\"command\", command=\"x\"}]\n[projects.\"/p\"]\ntrust_level=\"trusted\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, over := range []map[string]any{nil, {"bypass_hook_trust": true}, {"bypass_hook_trust": false}} {
		c, err := config.Load(config.Options{Home: h, Overrides: over, Cwd: "/p", Project: &config.Project{Dir: "/p/.codex", Data: []byte("bypass_hook_trust = true\n")}})
		if err != nil {
			t.Fatal(err)
		}
		hooks, _ := Of(c)
		if len(hooks) != 1 || hooks[0].Trust != "untrusted" || hooks[0].Runs() != (over["bypass_hook_trust"] == true) {
			t.Errorf("%v: %+v", over, hooks)
		}
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		matcher, name string
		want          bool
	}{
		{"", "Bash", true}, {"*", "Bash", true}, {"Bash", "Bash", true}, {"Bash", "Bashful", false}, {"Edit|Write", "Write", true},
		{"^mcp__.*", "mcp__a__b", true}, {"mcp__a", "mcp__a__b", false}, {"mcp__a.*", "mcp__a__b", true},
	} {
		p, err := compile(c.matcher)
		if err != nil {
			t.Fatal(err)
		}
		if got := (Hook{Event: PreToolUse, pattern: p}).Matches(c.name); got != c.want {
			t.Errorf("%q on %q: %v", c.matcher, c.name, got)
		}
		if !(Hook{Event: Stop, pattern: p}).Matches() {
			t.Errorf("%q keeps a stop hook from running", c.matcher)
		}
	}
}

func TestAnswer(t *testing.T) {
	specific := func(event, rest string) string {
		return fmt.Sprintf(`{"hookSpecificOutput":{"hookEventName":%q%s}}`, event, rest)
	}
	for _, c := range []struct {
		event       string
		exit        int32
		out, err    string
		want, input string
	}{
		{PreToolUse, 0, "", "", "completed", ""},
		{PreToolUse, 0, "plain", "", "completed", ""},
		{PreToolUse, 2, "", " no \n", "blocked feedback=no", ""},
		{PreToolUse, 2, "x", "", "failed error=PreToolUse hook exited with code 2 but did not write a blocking reason to stderr", ""},
		{PreToolUse, 7, "", "x", "failed error=hook exited with code 7", ""},
		{PreToolUse, 0, `{"bogus":1}`, "", "failed error=hook returned invalid pre-tool-use JSON output", ""},
		{PreToolUse, 0, `{} {}`, "", "failed error=hook returned invalid pre-tool-use JSON output", ""},
		{PreToolUse, 0, `[1]`, "", "failed error=hook returned invalid pre-tool-use JSON output", ""},
		{PreToolUse, 0, `{"continue":false}`, "", "failed error=PreToolUse hook returned unsupported continue:false", ""},
		{PreToolUse, 0, `{"decision":"block","reason":"no","systemMessage":"m"}`, "", "blocked warning=m feedback=no", ""},
		{PreToolUse, 0, `{"decision":"block"}`, "", "failed error=PreToolUse hook returned decision:block without a non-empty reason", ""},
		{PreToolUse, 0, `{"decision":"approve"}`, "", "failed error=PreToolUse hook returned unsupported decision:approve", ""},
		{PreToolUse, 0, `{"reason":"x"}`, "", "failed error=PreToolUse hook returned reason without decision", ""},
		{PreToolUse, 0, specific("PreToolUse", `,"permissionDecision":"deny","permissionDecisionReason":"no","additionalContext":"c"`), "", "blocked context=c feedback=no", ""},
		{PreToolUse, 0, specific("PreToolUse", `,"permissionDecision":"deny"`), "", "failed error=PreToolUse hook returned permissionDecision:deny without a non-empty permissionDecisionReason", ""},
		{PreToolUse, 0, specific("PreToolUse", `,"permissionDecision":"ask"`), "", "failed error=PreToolUse hook returned unsupported permissionDecision:ask", ""},
		{PreToolUse, 0, specific("PreToolUse", `,"permissionDecision":"allow"`), "", "failed error=PreToolUse hook returned unsupported permissionDecision:allow", ""},
		{PreToolUse, 0, specific("PreToolUse", `,"permissionDecision":"allow","updatedInput":{"command":"x"}`), "", "completed", `{"command":"x"}`},
		{PreToolUse, 0, specific("PreToolUse", `,"updatedInput":{"command":"x"}`), "", "failed error=PreToolUse hook returned updatedInput without permissionDecision:allow", ""},
		{PreToolUse, 0, specific("Stop", ""), "", "failed error=hook returned invalid pre-tool-use JSON output", ""},
		{PostToolUse, 2, "", "look", "blocked feedback=look", ""},
		{PostToolUse, 0, `{"continue":false}`, "", "stopped stop=PostToolUse hook stopped execution", ""},
		{PostToolUse, 0, `{"reason":"x"}`, "", "failed error=PostToolUse hook returned reason without decision", ""},
		{PostToolUse, 0, specific("PostToolUse", `,"updatedInput":{}`), "", "failed error=hook returned invalid post-tool-use JSON output", ""},
		{SessionStart, 0, "about\n", "", "completed context=about", ""},
		{SessionStart, 2, "", "x", "failed error=hook exited with code 2", ""},
		{SessionStart, 0, `{"decision":"block","reason":"x"}`, "", "failed error=hook returned invalid session start JSON output", ""},
		{UserPromptSubmit, 0, "about", "", "completed context=about", ""},
		{UserPromptSubmit, 0, specific("UserPromptSubmit", `,"additionalContext":"c"`), "", "completed context=c", ""},
		{UserPromptSubmit, 0, `{"continue":false,"stopReason":"enough"}`, "", "stopped stop=enough", ""},
		{Stop, 0, "plain", "", "failed error=hook returned invalid stop hook JSON output", ""},
		{Stop, 0, `{"decision":"block","reason":"on"}`, "", "blocked feedback=on", ""},
		{Stop, 2, "", "", "failed error=Stop hook exited with code 2 but did not write a continuation prompt to stderr", ""},
	} {
		run := &heddlev1.HookRun{EventName: c.event, Status: Running}
		Answer(run, c.exit, []byte(c.out), []byte(c.err))
		got := run.GetStatus()
		for _, e := range run.GetEntries() {
			got += " " + e.GetKind() + "=" + e.GetText()
		}
		if got != c.want || run.GetUpdatedInput() != c.input {
			t.Errorf("%s exit %d %s %s: %s %s, want %s", c.event, c.exit, c.out, c.err, got, run.GetUpdatedInput(), c.want)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(int32(0), []byte(`{"hookSpecificOutput":{"hookEventName":"PreToolUse"}}`), []byte("x"))
	f.Fuzz(func(t *testing.T, exit int32, out, err []byte) {
		for _, p := range points {
			run := &heddlev1.HookRun{EventName: p.name, Status: Running}
			if Answer(run, exit, out, err); run.GetStatus() == Running {
				t.Errorf("%s: the run did not end", p.name)
			}
		}
	})
}
