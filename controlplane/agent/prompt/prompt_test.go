package prompt

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func sample() Context {
	return Context{
		Cwd: "/ws", Shell: "bash", Timezone: "UTC", Now: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), ApprovalPolicy: "on-request",
		Policy:       &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE, WritableRoots: []string{"/extra"}, Network: heddlev1.NetworkMode_NETWORK_MODE_OFF},
		Instructions: []Instructions{{Dir: "/ws", Text: "Use tabs."}}, AllowedPrefixes: [][]string{{"npm", "ci"}},
	}
}

func texts(e *heddlev1.HistoryEntry) string {
	var b strings.Builder
	for _, p := range e.GetMessage().GetParts() {
		b.WriteString(p.GetText() + "\x00")
	}
	return b.String()
}

func TestFirst(t *testing.T) {
	entries := First(sample())
	if len(entries) != 3 {
		t.Fatalf("%d entries", len(entries))
	}
	for i, role := range []string{"developer", "developer", "user"} {
		if got := entries[i].GetMessage().GetRole(); got != role {
			t.Errorf("entry %d has role %q", i, got)
		}
	}
	if texts(entries[0]) != Base()+"\x00" || len(Base()) < 1000 {
		t.Error("the base instructions are not first")
	}
	for _, want := range []string{"workspace-write", "`/extra`", "network is off", "require_escalated", "prefix_rule", `["npm","ci"]`} {
		if !strings.Contains(texts(entries[1]), want) {
			t.Errorf("permissions lack %q", want)
		}
	}
	for _, git := range []struct {
		mode heddlev1.GitMode
		want []string
	}{
		{heddlev1.GitMode_GIT_MODE_UNSPECIFIED, []string{"working folder `/ws`, in `/extra`", "not add, commit"}},
		{heddlev1.GitMode_GIT_MODE_COMMIT, []string{"Git can add, commit", "linked worktree", "Hooks"}},
	} {
		c := sample()
		c.Policy.Git = git.mode
		for _, want := range git.want {
			if got := permissions(c); !strings.Contains(got, want) {
				t.Errorf("%v: %q is not in %q", git.mode, want, got)
			}
		}
	}
	user := texts(entries[2])
	for _, want := range []string{"# AGENTS.md instructions for /ws\n", "Use tabs.", "<environment_context>", "<cwd>/ws</cwd>", "<shell>bash</shell>", "<current_date>2026-03-04</current_date>", "<timezone>UTC</timezone>", "<approval_policy>on-request</approval_policy>", "<writable_roots>/extra</writable_roots>"} {
		if !strings.Contains(user, want) {
			t.Errorf("user context lacks %q", want)
		}
	}
	c := sample()
	c.BaseInstructions, c.DeveloperInstructions, c.PlanMode, c.Cwd = "BASE", "DEV", true, "/a<b>&c"
	entries = First(c)
	if texts(entries[0]) != "BASE\x00" || !strings.HasPrefix(texts(entries[1]), "DEV\x00") || !strings.Contains(texts(entries[1]), "<proposed_plan>") {
		t.Errorf("got %q", texts(entries[1]))
	}
	if !strings.Contains(texts(entries[2]), "<cwd>/a&lt;b&gt;&amp;c</cwd>") {
		t.Error("the folder is not escaped")
	}
}

func TestStable(t *testing.T) {
	later := sample()
	later.Now = later.Now.Add(time.Hour)
	a, b := First(sample()), First(later)
	for i := range a {
		if !proto.Equal(a[i], b[i]) {
			t.Errorf("entry %d differs within a day", i)
		}
	}
	if got := Update(sample(), later); got != nil {
		t.Errorf("update without a change: %v", got)
	}
}

func TestUpdate(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Context)
		want   []string
		lack   []string
	}{
		{"tone", func(c *Context) { c.Personality = "friendly" }, []string{"<personality>", "warm"}, []string{"<cwd>", "<permissions", "pragmatic"}},
		{"no tone", func(c *Context) { c.Personality = "none" }, nil, []string{"<personality>"}},
		{"date", func(c *Context) { c.Now = c.Now.AddDate(0, 0, 1) }, []string{"<current_date>2026-03-05</current_date>"}, []string{"<cwd>", "<permissions"}},
		{"cwd", func(c *Context) {
			c.Cwd, c.Instructions = "/ws/sub", append(c.Instructions, Instructions{"/ws/sub", "Sub."})
		}, []string{"<cwd>/ws/sub</cwd>", "for /ws/sub", "Sub."}, []string{"Use tabs", "<shell>"}},
		{"approval", func(c *Context) { c.ApprovalPolicy = "never" }, []string{"`never`", "<approval_policy>never</approval_policy>"}, []string{"require_escalated", "<cwd>"}},
		{"sandbox", func(c *Context) {
			c.Policy = &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS, Network: heddlev1.NetworkMode_NETWORK_MODE_FULL}
		}, []string{"danger-full-access", "<writable_roots></writable_roots>", "<network_access>enabled"}, []string{"require_escalated"}},
		{"plan on", func(c *Context) { c.PlanMode = true }, []string{"Plan mode is on"}, []string{"<environment_context>"}},
		{"developer", func(c *Context) { c.DeveloperInstructions = "NEW" }, []string{"NEW"}, []string{"<permissions"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			after := sample()
			tt.change(&after)
			var all string
			for _, e := range Update(sample(), after) {
				all += texts(e)
			}
			for _, w := range tt.want {
				if !strings.Contains(all, w) {
					t.Errorf("lacks %q in %q", w, all)
				}
			}
			for _, l := range tt.lack {
				if strings.Contains(all, l) {
					t.Errorf("has %q in %q", l, all)
				}
			}
		})
	}
	was := sample()
	was.PlanMode = true
	if got := Update(was, sample()); len(got) != 1 || !strings.Contains(texts(got[0]), "Plan mode is off") {
		t.Errorf("got %v", got)
	}
}

func TestApprovalTexts(t *testing.T) {
	tests := []struct {
		policy    string
		granular  map[string]any
		level     heddlev1.SandboxLevel
		escalates bool
	}{
		{"on-request", nil, heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY, true},
		{"untrusted", nil, heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE, true},
		{"granular", map[string]any{"sandbox_approval": true}, heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY, true},
		{"granular", map[string]any{"sandbox_approval": false}, heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY, false},
		{"never", nil, heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY, false},
		{"on-request", nil, heddlev1.SandboxLevel_SANDBOX_LEVEL_EXTERNAL, false},
	}
	for _, tt := range tests {
		got := permissions(Context{ApprovalPolicy: tt.policy, GranularApproval: tt.granular, Policy: &heddlev1.SandboxPolicy{Level: tt.level}})
		if strings.Contains(got, "require_escalated") != tt.escalates {
			t.Errorf("%s %v: %s", tt.policy, tt.level, got)
		}
	}
}

func TestMessages(t *testing.T) {
	if got := texts(Aborted()); !strings.HasPrefix(got, "<turn_aborted>") || Aborted().GetMessage().GetRole() != "user" {
		t.Errorf("got %q", got)
	}
	if got := texts(Summary("S")); !strings.Contains(got, "\n\nS") {
		t.Errorf("got %q", got)
	}
	if got := texts(Compact("")); !strings.Contains(got, "summary") {
		t.Errorf("got %q", got)
	}
	if got := RuleAdded([]string{"touch", "a\"b"}); !strings.Contains(texts(got), `["touch","a\"b"]`) || got.GetMessage().GetRole() != "developer" {
		t.Errorf("got %v", got)
	}
	code := int32(3)
	if got := texts(ShellCommand("ls", &code, "out")); !strings.Contains(got, "ls") || !strings.Contains(got, "Exit code: 3\nOutput:\nout") {
		t.Errorf("got %q", got)
	}
	if got := texts(ShellCommand("ls", nil, "")); !strings.Contains(got, "ended") {
		t.Errorf("got %q", got)
	}
}

func TestUserInput(t *testing.T) {
	got := UserInput(&heddlev1.UserMessage{Parts: []*heddlev1.InputPart{
		{Part: &heddlev1.InputPart_Text{Text: "look"}},
		{Part: &heddlev1.InputPart_ImageUrl{ImageUrl: "data:x"}},
		{Part: &heddlev1.InputPart_LocalImage{LocalImage: "/ws/\"i\".png"}, ImageData: []byte{1, 2}, ImageMime: "image/png"},
		{Part: &heddlev1.InputPart_LocalImage{LocalImage: "/ws/gone.png"}},
		{Part: &heddlev1.InputPart_Reference_{Reference: &heddlev1.InputPart_Reference{Kind: "skill"}}},
	}}).GetMessage()
	want := []string{"look", "data:x", `<image name="[Image #2]" path="/ws/&quot;i&quot;.png">`, "data:image/png;base64,AQI=", "</image>", "The image [Image #3] (/ws/gone.png) could not be read."}
	if got.GetRole() != "user" || len(got.GetParts()) != len(want) {
		t.Fatalf("got %v", got)
	}
	for i, p := range got.GetParts() {
		if p.GetText()+p.GetImageUrl() != want[i] {
			t.Errorf("part %d: %v, want %q", i, p, want[i])
		}
	}
}

// A tone is told with the first entries and when it changes or ends; a reviewer has
// none.
func TestTone(t *testing.T) {
	c, plain := sample(), sample()
	c.Personality = "pragmatic"
	if got := texts(First(c)[1]); !strings.Contains(got, pragmaticTone) {
		t.Errorf("first: %q", got)
	}
	if got := Update(c, plain); len(got) != 1 || texts(got[0]) != plainTone+"\x00" {
		t.Errorf("ended: %v", got)
	}
	for _, e := range Review(c, "x") {
		if strings.Contains(texts(e), "<personality>") {
			t.Errorf("a reviewer is told of a tone: %q", texts(e))
		}
	}
}
