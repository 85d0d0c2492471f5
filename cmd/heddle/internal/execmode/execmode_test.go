package execmode_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/cmd/heddle/internal/execmode"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func ev(payload any) *heddlev1.Event {
	e := &heddlev1.Event{TurnId: "t1"}
	switch p := payload.(type) {
	case *heddlev1.TurnStarted:
		e.Payload = &heddlev1.Event_TurnStarted{TurnStarted: p}
	case *heddlev1.TurnCompleted:
		e.Payload = &heddlev1.Event_TurnCompleted{TurnCompleted: p}
	case *heddlev1.ItemStarted:
		e.Payload = &heddlev1.Event_ItemStarted{ItemStarted: p}
	case *heddlev1.ItemCompleted:
		e.Payload = &heddlev1.Event_ItemCompleted{ItemCompleted: p}
	case *heddlev1.PlanUpdated:
		e.Payload = &heddlev1.Event_PlanUpdated{PlanUpdated: p}
	case *heddlev1.TokenUsageUpdated:
		e.Payload = &heddlev1.Event_TokenUsageUpdated{TokenUsageUpdated: p}
	case *heddlev1.ErrorRaised:
		e.Payload = &heddlev1.Event_ErrorRaised{ErrorRaised: p}
	case *heddlev1.ApprovalRequested:
		e.Payload = &heddlev1.Event_ApprovalRequested{ApprovalRequested: p}
	}
	return e
}

func started() *heddlev1.Event { return ev(&heddlev1.TurnStarted{Turn: &heddlev1.Turn{Id: "t1"}}) }

func ended(s heddlev1.TurnStatus, e *heddlev1.TurnError) *heddlev1.Event {
	return ev(&heddlev1.TurnCompleted{Turn: &heddlev1.Turn{Id: "t1", Status: s, Error: e}})
}

func completed() *heddlev1.Event { return ended(heddlev1.TurnStatus_TURN_STATUS_COMPLETED, nil) }

func message(id, text string) *heddlev1.Event {
	return ev(&heddlev1.ItemCompleted{Item: &heddlev1.Item{Id: id, Status: heddlev1.ItemStatus_ITEM_STATUS_COMPLETED,
		Content: &heddlev1.Item_AgentMessage{AgentMessage: &heddlev1.AgentMessage{Text: text}}}})
}

func command(id, out string, exit *int32, s heddlev1.ItemStatus, e *heddlev1.ActionError) *heddlev1.Item {
	return &heddlev1.Item{Id: id, Status: s, Content: &heddlev1.Item_CommandExecution{CommandExecution: &heddlev1.CommandExecution{
		Command: "/bin/bash -lc " + id, Cwd: "/ws", AggregatedOutput: []byte(out), ExitCode: exit, Error: e}}}
}

func commandStarted(id string) *heddlev1.Event {
	return ev(&heddlev1.ItemStarted{Item: command(id, "", nil, heddlev1.ItemStatus_ITEM_STATUS_IN_PROGRESS, nil)})
}

func commandEnded(id, out string, exit int32) *heddlev1.Event {
	s := heddlev1.ItemStatus_ITEM_STATUS_COMPLETED
	if exit != 0 {
		s = heddlev1.ItemStatus_ITEM_STATUS_FAILED
	}
	return ev(&heddlev1.ItemCompleted{Item: command(id, out, proto.Int32(exit), s, nil)})
}

type result struct {
	execmode.Outcome
	stdout, stderr string
}

func run(t *testing.T, f *fake, change func(*execmode.Options)) result {
	t.Helper()
	dial, _ := f.serve(t)
	var stdout, stderr bytes.Buffer
	msg, err := execmode.Message("do it", nil)
	if err != nil {
		t.Fatal(err)
	}
	opts := execmode.Options{
		Dial: dial, Attach: &heddlev1.AttachRequest{}, Thread: &heddlev1.StartThreadRequest{}, Input: msg,
		Stdout: &stdout, Stderr: &stderr,
	}
	if change != nil {
		change(&opts)
	}
	out := execmode.Run(t.Context(), opts)
	return result{out, stdout.String(), stderr.String()}
}

func jsonMode(o *execmode.Options) { o.JSON = true }

func lines(t *testing.T, text string) []string {
	t.Helper()
	var out []string
	for line := range strings.Lines(text) {
		if !json.Valid([]byte(line)) {
			t.Errorf("not JSON: %q", line)
		}
		out = append(out, strings.TrimSuffix(line, "\n"))
	}
	return out
}

func TestJSONEvents(t *testing.T) {
	patch := &heddlev1.Item{Id: "p", Content: &heddlev1.Item_FileChange{FileChange: &heddlev1.FileChange{
		Changes: []*heddlev1.FileUpdate{{Path: "/ws/a", Kind: "add", Diff: "x"}}}}}
	patched := proto.CloneOf(patch)
	patched.Status = heddlev1.ItemStatus_ITEM_STATUS_COMPLETED
	plan := func(status string) *heddlev1.Event {
		return ev(&heddlev1.PlanUpdated{Steps: []*heddlev1.PlanStep{{Step: "a", Status: status}}})
	}
	usage := &heddlev1.TokenUsage{InputTokens: 30, CachedInputTokens: 4, OutputTokens: 15, ReasoningOutputTokens: 2}
	f := &fake{
		attached: &heddlev1.Attached{ConfigWarnings: []*heddlev1.ConfigWarning{{Summary: "unknown key `x`", Path: "/h/config.toml", Line: 3}}},
		before: []*heddlev1.Event{
			started(),
			ev(&heddlev1.ErrorRaised{Error: &heddlev1.TurnError{Message: "Reconnecting... 1/5"}, WillRetry: true}),
			plan("inProgress"),
			commandStarted("c1"), commandEnded("c1", "{\"type\":\"turn.failed\"}\n<&>", 3),
			ev(&heddlev1.ItemStarted{Item: patch}), ev(&heddlev1.ItemCompleted{Item: patched}),
			plan("completed"),
			message("m", "All done"),
			ev(&heddlev1.TokenUsageUpdated{Usage: &heddlev1.ThreadTokenUsage{Total: usage}}),
			completed(),
		},
	}
	got := run(t, f, jsonMode)
	want := []string{
		`{"type":"thread.started","thread_id":"th1"}`,
		`{"type":"item.completed","item":{"id":"item_0","type":"error","message":"/h/config.toml:3: unknown key ` + "`x`" + `"}}`,
		`{"type":"item.completed","item":{"id":"item_1","type":"error","message":"thread warning"}}`,
		`{"type":"turn.started"}`,
		`{"type":"error","message":"Reconnecting... 1/5"}`,
		`{"type":"item.started","item":{"id":"item_2","type":"todo_list","items":[{"text":"a","completed":false}]}}`,
		`{"type":"item.started","item":{"id":"item_3","type":"command_execution","command":"/bin/bash -lc c1","aggregated_output":"","exit_code":null,"status":"in_progress"}}`,
		`{"type":"item.completed","item":{"id":"item_3","type":"command_execution","command":"/bin/bash -lc c1","aggregated_output":"{\"type\":\"turn.failed\"}\n<&>","exit_code":3,"status":"failed"}}`,
		`{"type":"item.started","item":{"id":"item_4","type":"file_change","changes":[{"path":"/ws/a","kind":"add"}],"status":"in_progress"}}`,
		`{"type":"item.completed","item":{"id":"item_4","type":"file_change","changes":[{"path":"/ws/a","kind":"add"}],"status":"completed"}}`,
		`{"type":"item.updated","item":{"id":"item_2","type":"todo_list","items":[{"text":"a","completed":true}]}}`,
		`{"type":"item.completed","item":{"id":"item_5","type":"agent_message","text":"All done"}}`,
		`{"type":"item.completed","item":{"id":"item_2","type":"todo_list","items":[{"text":"a","completed":true}]}}`,
		`{"type":"turn.completed","usage":{"input_tokens":30,"cached_input_tokens":4,"cache_write_input_tokens":0,"output_tokens":15,"reasoning_output_tokens":2}}`,
	}
	if diff := firstDiff(lines(t, got.stdout), want); diff != "" {
		t.Error(diff)
	}
	if got.Code != execmode.ExitCompleted {
		t.Errorf("exit %d, want 0", got.Code)
	}
	if !f.made("UnloadThread") || !f.made("Detach") {
		t.Errorf("calls %v: the thread and the session must be let go", f.calls)
	}
}

func firstDiff(got, want []string) string {
	for i := range max(len(got), len(want)) {
		g, w := "(nothing)", "(nothing)"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			return "line " + string(rune('0'+i)) + ":\n got " + g + "\nwant " + w
		}
	}
	return ""
}

// X5: the end of what still runs is reported before the end of the turn.
func TestX5BackgroundProcessEndsBeforeTurn(t *testing.T) {
	f := &fake{
		before:  []*heddlev1.Event{started(), commandStarted("bg"), message("m", "done"), completed()},
		release: "TerminateBackgroundTerminal",
		after:   []*heddlev1.Event{ev(&heddlev1.ItemCompleted{Item: command("bg", "out", proto.Int32(137), heddlev1.ItemStatus_ITEM_STATUS_FAILED, nil)})},
	}
	got := lines(t, run(t, f, jsonMode).stdout)
	last := got[len(got)-2:]
	if !strings.Contains(last[0], `"exit_code":137,"status":"failed"`) || !strings.Contains(last[1], `"turn.completed"`) {
		t.Errorf("got %v, want the item's true end, then the turn's", last)
	}
}

func TestAnswerAloneOnStdout(t *testing.T) {
	file := filepath.Join(t.TempDir(), "last")
	f := &fake{before: []*heddlev1.Event{
		started(), message("m1", "looking"), commandStarted("c"), commandEnded("c", "noise", 0), message("m2", "the answer"), completed(),
	}}
	got := run(t, f, func(o *execmode.Options) { o.LastMessageFile = file })
	if got.stdout != "the answer\n" {
		t.Errorf("stdout %q, want the final answer alone", got.stdout)
	}
	for _, part := range []string{"looking", "/bin/bash -lc c", "noise", "thread warning"} {
		if !strings.Contains(got.stderr, part) {
			t.Errorf("stderr lacks %q:\n%s", part, got.stderr)
		}
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "the answer" {
		t.Errorf("last message file %q, %v", data, err)
	}
}

// X3 and the documented exit codes.
func TestExitCodes(t *testing.T) {
	declined := ev(&heddlev1.ItemCompleted{Item: command("c", "", nil, heddlev1.ItemStatus_ITEM_STATUS_DECLINED, nil)})
	unenforceable := ev(&heddlev1.ItemCompleted{Item: command("c", "", nil, heddlev1.ItemStatus_ITEM_STATUS_FAILED,
		&heddlev1.ActionError{Code: "not_enforceable", Message: "no user namespaces", Fix: "sysctl"})})
	cases := map[string]struct {
		events  []*heddlev1.Event
		start   error
		code    int
		failure string
	}{
		"failed turn":         {events: []*heddlev1.Event{started(), ended(heddlev1.TurnStatus_TURN_STATUS_FAILED, &heddlev1.TurnError{Message: "bad request: no such model"})}, code: 1, failure: "bad request: no such model"},
		"interrupted":         {events: []*heddlev1.Event{started(), ended(heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED, nil)}, code: 130, failure: "the turn was interrupted"},
		"declined last":       {events: []*heddlev1.Event{started(), declined, message("m", "sorry"), completed()}, code: 1, failure: "the last action was refused: approvals are not possible in this mode"},
		"declined, then work": {events: []*heddlev1.Event{started(), declined, commandStarted("d"), commandEnded("d", "", 0), completed()}, code: 0},
		"not enforceable":     {events: []*heddlev1.Event{started(), unenforceable, message("m", "cannot"), completed()}, code: 3, failure: "no user namespaces; to fix: sysctl"},
		"refused config":      {start: errdefs.New(errdefs.InvalidConfig, "config.toml:3: unknown provider"), code: 2, failure: "config.toml:3: unknown provider"},
		"refused thread":      {start: errdefs.New(errdefs.StoreUnavailable, "store is read-only"), code: 1, failure: "store is read-only"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := run(t, &fake{before: c.events, startErr: c.start}, jsonMode)
			if got.Code != c.code || got.Failure != c.failure {
				t.Errorf("exit %d, %q; want %d, %q", got.Code, got.Failure, c.code, c.failure)
			}
			if out := lines(t, got.stdout); c.code != 0 && !strings.HasPrefix(out[len(out)-1], `{"type":"turn.failed","error":{"message":`) {
				t.Errorf("last line %s, want turn.failed", out[len(out)-1])
			}
		})
	}
}

func TestApprovalIsDeclined(t *testing.T) {
	f := &fake{
		before:  []*heddlev1.Event{started(), ev(&heddlev1.ApprovalRequested{Approval: &heddlev1.Approval{Id: "a"}})},
		release: "ResolveApproval DECISION_DECLINE",
		after:   []*heddlev1.Event{message("m", "ok"), completed()},
	}
	if got := run(t, f, nil); got.Code != 0 || got.stdout != "ok\n" {
		t.Errorf("exit %d, stdout %q", got.Code, got.stdout)
	}
}

func TestInterrupt(t *testing.T) {
	interrupt := make(chan struct{}, 2)
	f := &fake{
		before:  []*heddlev1.Event{started()},
		release: "InterruptTurn",
		after:   []*heddlev1.Event{ended(heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED, nil)},
	}
	got := run(t, f, func(o *execmode.Options) {
		o.Interrupt = interrupt
		o.Stderr = writerFunc(func(p []byte) { // the turn runs when the prompt is shown
			if bytes.Contains(p, []byte("do it")) {
				interrupt <- struct{}{}
			}
		})
	})
	if got.Code != execmode.ExitInterrupted {
		t.Errorf("exit %d (%s), want 130", got.Code, got.Failure)
	}
}

type writerFunc func([]byte)

func (w writerFunc) Write(p []byte) (int, error) { w(p); return len(p), nil }

func TestResume(t *testing.T) {
	events := func() []*heddlev1.Event { return []*heddlev1.Event{started(), message("m", "again"), completed()} }
	cases := map[string]struct {
		resume execmode.Resume
		code   int
	}{
		"by id":             {execmode.Resume{ID: "th1"}, 0},
		"last here":         {execmode.Resume{Cwd: "/ws"}, 0},
		"unknown":           {execmode.Resume{ID: "nope"}, 1},
		"nothing to resume": {execmode.Resume{Cwd: "/elsewhere"}, 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			f := &fake{before: events()}
			got := run(t, f, func(o *execmode.Options) { o.Resume = &c.resume })
			if got.Code != c.code || (c.code == 0) != (got.stdout == "again\n") || f.started != nil {
				t.Errorf("exit %d, stdout %q, %s", got.Code, got.stdout, got.Failure)
			}
		})
	}
}

// The control plane is lost in mid-turn: the same session attaches again and no
// event is shown twice or left out.
func TestControlPlaneLost(t *testing.T) {
	f := &fake{before: []*heddlev1.Event{started(), commandStarted("c1")}}
	dial, cut := f.serve(t)
	var stdout bytes.Buffer
	msg, _ := execmode.Message("do it", nil)
	go func() {
		for !strings.Contains(f.watched(), "c1") {
			time.Sleep(time.Millisecond)
		}
		cut()
		for f.attachments() < 2 {
			time.Sleep(time.Millisecond)
		}
		f.mu.Lock()
		f.append([]*heddlev1.Event{commandEnded("c1", "x", 0), message("m", "survived"), completed()})
		f.mu.Unlock()
	}()
	out := execmode.Run(t.Context(), execmode.Options{
		Dial: dial, Attach: &heddlev1.AttachRequest{}, Thread: &heddlev1.StartThreadRequest{}, Input: msg,
		JSON: true, Stdout: &stdout, Stderr: &bytes.Buffer{},
	})
	if out.Code != 0 || out.Answer != "survived" {
		t.Errorf("exit %d, answer %q, %s", out.Code, out.Answer, out.Failure)
	}
	if n := strings.Count(stdout.String(), `"item.started"`); n != 1 {
		t.Errorf("%d starts of the command shown, want 1:\n%s", n, &stdout)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if ids := slices.Compact(slices.Clone(f.sessions)); len(f.sessions) < 2 || len(ids) != 1 {
		t.Errorf("sessions %v, want one id, attached again", f.sessions)
	}
}

// A turn that was accepted is not asked for again when its answer is lost.
func TestLostAnswerToStartTurn(t *testing.T) {
	f := &fake{before: []*heddlev1.Event{started(), message("m", "once"), completed()}, loseAnswer: true}
	got := run(t, f, nil)
	if got.Code != 0 || got.stdout != "once\n" || f.turns != 1 {
		t.Errorf("exit %d, stdout %q, %d turns", got.Code, got.stdout, f.turns)
	}
}

func (f *fake) attachments() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.sessions)
}

// watched names the items of the log so far.
func (f *fake) watched() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ids []string
	for _, e := range f.log {
		ids = append(ids, e.GetItemStarted().GetItem().GetId())
	}
	return strings.Join(ids, " ")
}

func TestSchemaAndImages(t *testing.T) {
	dir := t.TempDir()
	png := filepath.Join(dir, "a.png")
	schema := filepath.Join(dir, "s.json")
	for path, data := range map[string]string{png: "\x89PNG\r\n\x1a\n rest", schema: `{"type":"object"}`} {
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := &fake{before: []*heddlev1.Event{started(), completed()}}
	run(t, f, func(o *execmode.Options) {
		var err error
		if o.Input, err = execmode.Message("look", []string{png}); err != nil {
			t.Fatal(err)
		}
		if o.Schema, err = execmode.ReadSchema(schema); err != nil {
			t.Fatal(err)
		}
	})
	if got := f.request.GetOutputSchema().AsMap(); !reflect.DeepEqual(got, map[string]any{"type": "object"}) {
		t.Errorf("schema %v", got)
	}
	parts := f.request.GetInput().GetParts()
	if len(parts) != 2 || parts[0].GetImageMime() != "image/png" || parts[1].GetText() != "look" {
		t.Errorf("parts %v", parts)
	}
	if _, err := execmode.Message("x", []string{schema}); err == nil {
		t.Error("a text file passed as an image")
	}
}
