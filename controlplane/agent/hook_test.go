package agent

import (
	"slices"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/hook"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// What hooks tell the model is bounded as outputs of tools are.
func TestHookRefusalIsBounded(t *testing.T) {
	run := &heddlev1.HookRun{EventName: hook.PreToolUse}
	run.Status, run.Entries = hook.Blocked, []*heddlev1.HookEntry{{Kind: "feedback", Text: string(make([]byte, maxHookOutput))}}
	why, refused := hookRefusal([]*heddlev1.HookRun{run})
	if !refused || len(why) > maxHookOutput/4 {
		t.Errorf("refused %v with %d bytes", refused, len(why))
	}
}

// After a restart no input gets the answer that hooks gave for another one, and
// what was refused before an input that was shown does not come back.
func TestPastPromptsKeepTheirHooks(t *testing.T) {
	input := func(s string) *heddlev1.UserMessage {
		return &heddlev1.UserMessage{Parts: []*heddlev1.InputPart{{Part: &heddlev1.InputPart_Text{Text: s}}}}
	}
	ran := func(s, status string) *heddlev1.Event {
		return hookCompleted("t", &heddlev1.HookRun{Id: "h", EventName: hook.UserPromptSubmit, CallId: promptSubject(input(s)), Status: status, Hash: "x"})
	}
	steer := func(s string) *heddlev1.Event {
		return &heddlev1.Event{Payload: &heddlev1.Event_SteerAccepted{SteerAccepted: &heddlev1.SteerAccepted{Input: input(s)}}}
	}
	shown := func(s string) *heddlev1.Event {
		return itemStarted(&heddlev1.Item{Id: s, Content: &heddlev1.Item_UserMessage{UserMessage: input(s)}})
	}
	accepted := &heddlev1.Event{Payload: &heddlev1.Event_TurnAccepted{TurnAccepted: &heddlev1.TurnAccepted{Input: input("a")}}}
	for name, row := range map[string]struct {
		events  []*heddlev1.Event
		waiting []string
		past    map[string]string
	}{
		"refused, then asked about": {
			[]*heddlev1.Event{accepted, steer("b"), ran("a", hook.Blocked), ran("b", hook.Completed)},
			[]string{"a", "b"}, map[string]string{"a": hook.Blocked, "b": hook.Completed, "c": ""},
		},
		"refused, then shown": {
			[]*heddlev1.Event{accepted, steer("b"), steer("c"), ran("a", hook.Blocked), ran("b", hook.Completed), shown("b")},
			[]string{"c"}, map[string]string{"a": "", "b": "", "c": ""},
		},
		"refused between": {
			[]*heddlev1.Event{accepted, ran("a", hook.Completed), shown("a"), steer("b"), steer("c"), steer("d"), ran("b", hook.Blocked), ran("c", hook.Completed), shown("c")},
			[]string{"d"}, nil,
		},
		"said otherwise": {[]*heddlev1.Event{accepted, steer("b"), shown("a, prepared")}, []string{"b"}, nil},
	} {
		p := &resumption{calls: map[string]*pastCall{}, hooks: map[string]*heddlev1.HookRun{}}
		for _, ev := range row.events {
			p.add(ev, map[string]*heddlev1.Item{})
		}
		var waiting []string
		for _, in := range append([]*heddlev1.UserMessage{p.first}, p.steers...) {
			if in != nil {
				waiting = append(waiting, saidIn(in))
			}
		}
		if !slices.Equal(waiting, row.waiting) {
			t.Errorf("%s: %q wait, want %q", name, waiting, row.waiting)
		}
		turn := &turn{resume: p}
		for said, want := range row.past {
			if got := turn.pastHook("h", "x", promptSubject(input(said))).GetStatus(); got != want {
				t.Errorf("%s: the hook of %q ended as %q, want %q", name, said, got, want)
			}
		}
	}
}
