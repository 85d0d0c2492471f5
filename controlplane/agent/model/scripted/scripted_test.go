package scripted

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func script(t *testing.T, src string) *Script {
	t.Helper()
	s, err := Parse("test.yaml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func play(t *testing.T, c *Client, req model.Request) ([]model.Event, error) {
	t.Helper()
	var events []model.Event
	err := c.Stream(t.Context(), req, func(e model.Event) error { events = append(events, e); return nil })
	return events, err
}

func said(events []model.Event) string {
	var b strings.Builder
	for _, e := range events {
		if d, ok := e.(model.ItemDone); ok && d.Entry.GetMessage() != nil {
			b.WriteString(partsText(d.Entry.GetMessage().GetParts()))
		}
	}
	return b.String()
}

func calls(events []model.Event) []*heddlev1.ToolCall {
	var out []*heddlev1.ToolCall
	for _, e := range events {
		if d, ok := e.(model.ItemDone); ok && d.Entry.GetToolCall() != nil {
			out = append(out, d.Entry.GetToolCall())
		}
	}
	return out
}

func user(text string) *heddlev1.HistoryEntry {
	return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Message{Message: &heddlev1.HistoryMessage{Role: "user", Parts: []*heddlev1.HistoryPart{{Part: &heddlev1.HistoryPart_Text{Text: text}}}}}}
}

func output(id, text string) *heddlev1.HistoryEntry {
	return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_ToolOutput{ToolOutput: &heddlev1.ToolOutput{CallId: id, Parts: []*heddlev1.HistoryPart{{Part: &heddlev1.HistoryPart_Text{Text: text}}}}}}
}

func called(id string) *heddlev1.HistoryEntry {
	return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_ToolCall{ToolCall: &heddlev1.ToolCall{CallId: id, Name: "exec_command", Arguments: "{}"}}}
}

func TestEvents(t *testing.T) {
	c := New(script(t, `
replies:
  - steps:
      - think: [one, two]
        raw: deep
      - say: [Hel, lo]
        phase: commentary
        id: msg_1
      - call: exec_command
        id: c1
        args: {cmd: ls, tty: true, n: 3}
      - patch: "*** Begin Patch\n"
    usage: {input: 100, cached: 40, output: 20, reasoning: 7}
`))
	events, err := play(t, c, model.Request{ThreadID: "t"})
	if err != nil {
		t.Fatal(err)
	}
	var deltas []string
	for _, e := range events {
		if d, ok := e.(model.TextDelta); ok {
			deltas = append(deltas, d.ItemID+"="+d.Text)
		}
	}
	if strings.Join(deltas, " ") != "msg_1=Hel msg_1=lo" {
		t.Errorf("deltas %q", deltas)
	}
	got := calls(events)
	if len(got) != 2 || got[0].GetCallId() != "c1" || !got[1].GetFreeform() || got[1].GetName() != "apply_patch" || got[1].GetCallId() == "" {
		t.Fatalf("calls %v", got)
	}
	var args map[string]any
	if err := json.Unmarshal([]byte(got[0].GetArguments()), &args); err != nil || args["cmd"] != "ls" || args["n"] != 3.0 {
		t.Errorf("args %s, %v", got[0].GetArguments(), err)
	}
	done, ok := events[len(events)-1].(model.Completed)
	if !ok || done.Usage.GetTotalTokens() != 120 || done.Usage.GetCachedInputTokens() != 40 {
		t.Errorf("last event %#v", events[len(events)-1])
	}
	started := map[string]bool{}
	for _, e := range events {
		switch x := e.(type) {
		case model.ItemStarted:
			started[x.ID] = true
		case model.ItemDone:
			if !started[x.ID] {
				t.Errorf("%s ends before it starts", x.ID)
			}
		}
	}
}

func TestOrderAndConditions(t *testing.T) {
	c := New(script(t, `
replies:
  - steps: [{say: first}]
  - when: {output: [red, code 1], lacks: green}
    steps: [{say: red}]
  - when: green
    steps: [{say: green}]
  - when: {input: please}
    steps: [{say: polite}]
  - repeat: true
    steps: [{say: rest}]
`))
	in := []*heddlev1.HistoryEntry{user("please")}
	steps := []struct {
		input []*heddlev1.HistoryEntry
		want  string
	}{
		{in, "first"},
		{append(in, called("c"), output("c", "red code 1")), "red"},
		{append(in, called("c"), output("c", "red code 1"), called("d"), output("d", "green")), "green"},
		{in, "polite"}, {in, "rest"}, {in, "rest"},
	}
	for i, s := range steps {
		events, err := play(t, c, model.Request{ThreadID: "t", Input: s.input})
		if err != nil || said(events) != s.want {
			t.Errorf("step %d: %q, %v; want %q", i, said(events), err, s.want)
		}
	}
	if events, _ := play(t, c, model.Request{ThreadID: "other"}); said(events) != "first" {
		t.Errorf("another thread got %q", said(events))
	}
}

func TestExhaustedAndRestart(t *testing.T) {
	src := "replies:\n  - steps: [{call: exec_command}]\n  - steps: [{say: two}]\n"
	c := New(script(t, src))
	if _, err := play(t, c, model.Request{ThreadID: "t"}); err != nil {
		t.Fatal(err)
	}
	// A new process: the history says that one reply was used.
	c = New(script(t, src))
	history := []*heddlev1.HistoryEntry{user("go"), called("c"), output("c", "x")}
	if events, err := play(t, c, model.Request{ThreadID: "t", Input: history}); err != nil || said(events) != "two" {
		t.Errorf("got %q, %v", said(events), err)
	}
	_, err := play(t, c, model.Request{ThreadID: "t", Input: history})
	var me *model.Error
	if !errors.As(err, &me) || !strings.Contains(me.Message, "test.yaml has no reply left") || me.Retry != model.RetryNone {
		t.Errorf("got %v", err)
	}
}

func TestFind(t *testing.T) {
	c := New(script(t, `
replies:
  - find: {sid: 'session ID (\d+)', word: 'said (\w+)', none: zzz}
    steps:
      - call: write_stdin
        args: {session_id: "${sid}", chars: "${word} ${sid} ${none}\n", list: ["${sid}"]}
      - call: broken
        args: "{not ${word}"
`))
	events, err := play(t, c, model.Request{Input: []*heddlev1.HistoryEntry{output("a", "session ID 7\nsession ID 42 said hi")}})
	if err != nil {
		t.Fatal(err)
	}
	got := calls(events)
	if want := `{"chars":"hi 42 ${none}\n","list":[42],"session_id":42}`; got[0].GetArguments() != want {
		t.Errorf("args %s, want %s", got[0].GetArguments(), want)
	}
	if got[1].GetArguments() != "{not hi" {
		t.Errorf("args %s", got[1].GetArguments())
	}
}

func TestFail(t *testing.T) {
	c := New(script(t, `
replies:
  - steps: [{say: par}, {fail: cut}]
  - steps: [{fail: {status: 500}}]
  - steps: [{fail: {status: 400, body: bad}}]
  - steps: [{fail: {code: context_length_exceeded, message: m}}]
  - steps: [{fail: {incomplete: max_output_tokens}}]
`))
	want := []struct {
		kind, message string
		retry         model.Retry
	}{
		{model.KindOther, "stream disconnected before completion: ", model.RetryStream},
		{model.KindInternalServerError, "high demand", model.RetryStream},
		{model.KindOther, "bad", model.RetryNone},
		{model.KindContextWindow, "context window", model.RetryNone},
		{model.KindOther, "Incomplete response returned, reason: max_output_tokens", model.RetryNone},
	}
	for _, w := range want {
		_, err := play(t, c, model.Request{})
		var me *model.Error
		if !errors.As(err, &me) || me.Kind != w.kind || !strings.Contains(me.Message, w.message) || me.Retry != w.retry {
			t.Errorf("got %#v, want %+v", err, w)
		}
	}
}

func TestWaitAndCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(script(t, "replies:\n  - steps: [{wait: 1h}, {say: late}]\n  - steps: [{wait: 2}, {say: [a, b], pace: 500ms}]\n"))
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("interrupted")
		time.AfterFunc(time.Second, func() { cancel(why) })
		if err := c.Stream(ctx, model.Request{}, func(model.Event) error { return nil }); !errors.Is(err, why) {
			t.Errorf("got %v", err)
		}
		start := time.Now()
		if _, err := play(t, c, model.Request{}); err != nil || time.Since(start) != 3*time.Second {
			t.Errorf("took %v, %v", time.Since(start), err)
		}
	})
}

func TestParseErrors(t *testing.T) {
	tests := map[string]string{
		"replies: []": "it has no replies",
		"replies:\n  - steps:\n      - say: a\n        call: b\n": "line 3: a step must have exactly one of",
		"replies:\n  - steps:\n      - sya: a\n":                  `line 3: unknown key "sya"`,
		"replies:\n  - stpes: []\n":                               "line 2: field stpes not found",
		"replies:\n  - when: {outpt: x}\n":                        `line 2: unknown key "outpt"`,
		"replies:\n  - steps: [{wait: soon}]\n":                   `line 2: "soon" is not a duration`,
		"replies:\n  - steps: [{fail: {status: 7}}]":              "line 2: status 7",
		"replies:\n  - steps: [{fail: boom}]":                     "line 2: fail is",
		"replies:\n  - find: {x: '('}\n":                          "reply 1: find.x",
		"replies: {":                                              "test.yaml: ",
		"replies:\n  - steps: [just text]\n":                      "line 2: expected a table",
	}
	for src, want := range tests {
		_, err := Parse("test.yaml", []byte(src))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "script test.yaml: ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("Parse(%q): %v, want %q", src, err, want)
		}
	}
}

// The built-in demo, played against what its tools really print.
func TestDemo(t *testing.T) {
	for _, name := range []string{"sum.sh", "test.sh"} {
		if _, err := os.Stat("demo/workspace/" + name); err != nil {
			t.Error(err)
		}
	}
	s, err := Parse("demo", Demo())
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name    string
		outputs []string
		want    string
	}{
		{"as meant", []string{
			"Process exited with code 0\nOutput:\n# Prints the sum of its arguments.\nProcess exited with code 1\nOutput:\nFAILED: the sum",
			"Process exited with code 1\nOutput:\ntouch: cannot touch '/home/u/heddle-demo-outside.txt': Read-only file system\nProcess exited with code 1\nOutput:\nbash: connect: Network is unreachable",
			"Exit code: 0\nOutput:\nSuccess. Updated the following files:\nM sum.sh\n",
			"Process exited with code 0\nOutput:\nok\nall tests passed\n",
		}, "Done. sum.sh subtracted"},
		{"fixed before", []string{"# Prints the sum of its arguments.\nall tests passed"}, "passes already"},
		{"no sandbox", []string{"FAILED: x", "Process exited with code 0\nWRITTEN\nheddle-demo-outside"}, "not contained"},
		{"network on", []string{"FAILED: x", "heddle-demo-outside Process exited with code 0\nCONNECTED"}, "connection to the network succeeded"},
		{"no executor", []string{"exec_command failed: no executor"}, "nothing more to say"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := New(s)
			in := []*heddlev1.HistoryEntry{user("go")}
			var events []model.Event
			for i := 0; ; i++ {
				var err error
				if events, err = play(t, c, model.Request{ThreadID: "t", Input: in}); err != nil {
					t.Fatal(err)
				}
				if i == len(tt.outputs) {
					break
				}
				if len(calls(events)) == 0 {
					t.Fatalf("step %d makes no call: %q", i, said(events))
				}
				in = append(in, called("c"), output("c", tt.outputs[i]))
			}
			if len(calls(events)) != 0 || !strings.Contains(said(events), tt.want) {
				t.Errorf("ends with %q", said(events))
			}
		})
	}
}

// Every script shown in the documentation is a script.
func TestDocumentation(t *testing.T) {
	doc, err := os.ReadFile("../../../../docs/scripted-provider.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile(`(?m)(^    replies:\n(?:^(?:    .*)?\n)*)`).FindAllString(string(doc), -1)
	if len(blocks) != 2 {
		t.Fatalf("found %d scripts", len(blocks))
	}
	for _, b := range blocks {
		if _, err := Parse("doc", []byte(strings.ReplaceAll("\n"+b, "\n    ", "\n"))); err != nil {
			t.Errorf("%v in\n%s", err, b)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("replies:\n  - when: a\n    steps: [{say: [a]}, {call: x, args: [1, {a: b}]}]\n"))
	f.Add(demo)
	f.Fuzz(func(t *testing.T, src []byte) {
		s, err := Parse("fuzz", src)
		if err != nil {
			return
		}
		for i := range s.Replies {
			s.Replies[i].Steps = nil
		}
		_ = New(s).Stream(t.Context(), model.Request{}, func(model.Event) error { return nil })
	})
}
