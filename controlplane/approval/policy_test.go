package approval

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func TestDecideCommand(t *testing.T) {
	const ww, full = heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE, heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS
	yes := &structpb.Struct{Fields: map[string]*structpb.Value{"sandbox_approval": structpb.NewBoolValue(true)}}
	rules := &structpb.Struct{Fields: map[string]*structpb.Value{"rules": structpb.NewBoolValue(true)}}
	both := &structpb.Struct{Fields: map[string]*structpb.Value{"rules": structpb.NewBoolValue(true), "sandbox_approval": structpb.NewBoolValue(true)}}
	for _, c := range []struct {
		name string
		f    CommandFacts
		want Outcome
		text string
	}{
		{"plain", CommandFacts{Policy: OnRequest, Level: ww}, Run, ""},
		{"escalated", CommandFacts{Policy: OnRequest, Level: ww, Escalated: true}, Ask, ""},
		{"escalated without a sandbox", CommandFacts{Policy: OnRequest, Level: full, Escalated: true}, RunUnsandboxed, ""},
		{"dangerous", CommandFacts{Policy: OnRequest, Level: full, Dangerous: true}, Ask, ""},
		{"untrusted", CommandFacts{Policy: Untrusted, Level: ww}, Ask, ""},
		{"untrusted, remembered", CommandFacts{Policy: Untrusted, Level: ww, Remembered: true}, Run, ""},
		{"untrusted, rule", CommandFacts{Policy: Untrusted, Level: ww, Rule: RuleAllow}, Run, ""},
		{"never", CommandFacts{Policy: Never, Level: ww}, Run, ""},
		{"never, escalated", CommandFacts{Policy: Never, Level: ww, Escalated: true}, Refuse, "approval policy is Never; reject command"},
		{"never, dangerous", CommandFacts{Policy: Never, Level: full, Dangerous: true, Shown: "rm -rf d"}, Refuse, "rejected: "},
		{"never, prompt rule", CommandFacts{Policy: Never, Level: ww, Rule: RulePrompt}, Refuse, "rule"},
		{"granular off", CommandFacts{Policy: Granular, Level: ww, Escalated: true}, Refuse, "approval policy is Never"},
		{"granular on", CommandFacts{Policy: Granular, Granular: yes, Level: ww, Escalated: true}, Ask, ""},
		{"granular, plain", CommandFacts{Policy: Granular, Level: ww}, Run, ""},
		{"granular, dangerous", CommandFacts{Policy: Granular, Granular: rules, Level: ww, Dangerous: true}, Refuse, "destroy data"},
		{"granular without rules, prompt rule", CommandFacts{Policy: Granular, Granular: yes, Level: ww, Rule: RulePrompt, Dangerous: true}, Refuse, "rule demands approval"},
		{"granular with rules, prompt rule", CommandFacts{Policy: Granular, Granular: rules, Level: ww, Rule: RulePrompt}, Ask, ""},
		{"granular with rules, prompt rule, escalated", CommandFacts{Policy: Granular, Granular: rules, Level: ww, Rule: RulePrompt, Escalated: true}, Refuse, "approval policy is Never"},
		{"granular with both, prompt rule, escalated", CommandFacts{Policy: Granular, Granular: both, Level: ww, Rule: RulePrompt, Escalated: true}, Ask, ""},
		{"rule given for an escalation", CommandFacts{Policy: OnRequest, Level: ww, Escalated: true, Rule: RuleAllow, RuleEscalates: true}, RunUnsandboxed, ""},
		{"rule given for a plain command", CommandFacts{Policy: OnRequest, Level: ww, Escalated: true, Rule: RuleAllow}, Ask, ""},
		{"rule does not lift a plain call", CommandFacts{Policy: OnRequest, Level: ww, Rule: RuleAllow, RuleEscalates: true}, Run, ""},
		{"forbidden", CommandFacts{Policy: OnRequest, Level: full, Rule: RuleForbid, Remembered: true}, Refuse, "forbidden by a rule"},
		{"prompt rule", CommandFacts{Policy: OnRequest, Level: full, Rule: RulePrompt}, Ask, ""},
	} {
		got := DecideCommand(c.f)
		if got.Outcome != c.want || !strings.Contains(got.Refusal, c.text) || (c.text == "") != (got.Refusal == "") {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestDecidePatch(t *testing.T) {
	const ro, ww = heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY, heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE
	for _, c := range []struct {
		f    PatchFacts
		want Outcome
		text string
	}{
		{PatchFacts{Policy: OnRequest, Level: ww}, Run, ""},
		{PatchFacts{Policy: OnRequest, Level: ww, Outside: true}, Ask, ""},
		{PatchFacts{Policy: Untrusted, Level: ww}, Ask, ""},
		{PatchFacts{Policy: Untrusted, Level: ww, Remembered: true}, Run, ""},
		{PatchFacts{Policy: Never, Level: ww}, Run, ""},
		{PatchFacts{Policy: Never, Level: ww, Outside: true}, Refuse, "patch rejected: writing outside of the project; rejected by user approval settings"},
		{PatchFacts{Policy: Never, Level: ro, Outside: true}, Refuse, "writing is blocked by read-only sandbox"},
		{PatchFacts{Policy: Granular, Level: ww, Outside: true}, Refuse, "patch rejected"},
	} {
		got := DecidePatch(c.f)
		if got.Outcome != c.want || !strings.Contains(got.Refusal, c.text) {
			t.Errorf("%+v: %+v", c.f, got)
		}
	}
}

func TestMemoryIsExact(t *testing.T) {
	var m Memory
	m.AllowCommand([]string{"bash", "-lc", "touch a"}, "/w", false)
	for _, c := range []struct {
		argv      []string
		cwd       string
		escalated bool
		want      bool
	}{
		{[]string{"bash", "-lc", "touch a"}, "/w", false, true},
		{[]string{"bash", "-lc", "touch b"}, "/w", false, false},
		{[]string{"bash", "-lctouch a"}, "/w", false, false},
		{[]string{"bash", "-lc", "touch a"}, "/v", false, false},
		{[]string{"bash", "-lc", "touch a"}, "/w", true, false},
	} {
		if got := m.CommandAllowed(c.argv, c.cwd, c.escalated); got != c.want {
			t.Errorf("%v in %s, escalated %v: %v", c.argv, c.cwd, c.escalated, got)
		}
	}
	m.AllowFiles([]string{"/w/a"})
	if !m.FilesAllowed([]string{"/w/a"}) || m.FilesAllowed([]string{"/w/a", "/w/b"}) || m.FilesAllowed(nil) {
		t.Error("files")
	}
}
