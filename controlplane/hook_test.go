package controlplane

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// hooks gives the home's config hooks and trusts them.
func (r *rig) hooks(ctx context.Context, toml string) {
	r.t.Helper()
	if err := os.WriteFile(r.home+"/config.toml", []byte(toml), 0o600); err != nil {
		r.t.Fatal(err)
	}
	resp, err := r.catalog.ListHooks(ctx, &heddlev1.ListHooksRequest{})
	if err != nil {
		r.t.Fatal(err)
	}
	var edits []*heddlev1.ConfigEdit
	for _, h := range resp.GetFolders()[0].GetHooks() {
		edits = append(edits, &heddlev1.ConfigEdit{Key: fmt.Sprintf("hooks.state.%q.trusted_hash", h.GetKey()), Value: structpb.NewStringValue(h.GetHash())})
	}
	if len(edits) == 0 {
		r.t.Fatalf("no hooks: %v", resp)
	}
	if _, err := r.catalog.WriteConfig(ctx, &heddlev1.WriteConfigRequest{Edits: edits}); err != nil {
		r.t.Fatal(err)
	}
}

func tomlHook(event, command string) string {
	return fmt.Sprintf("[[hooks.%s]]\n[[hooks.%s.hooks]]\ntype = \"command\"\ncommand = %q\n", event, event, command)
}

// runsOf are the hook events of a thread.
func runsOf(events []*heddlev1.Event) string {
	var out []string
	for _, e := range events {
		if r := e.GetHookStarted().GetRun(); r != nil {
			out = append(out, r.GetEventName()+" "+r.GetStatus())
		}
		if r := e.GetHookCompleted().GetRun(); r != nil {
			out = append(out, r.GetEventName()+" "+r.GetStatus())
		}
	}
	return strings.Join(out, ", ")
}

// A hook that runs while the control plane is restarted is not run again: its
// outcome is unknown, it is ended, and the call that it guards is not made (I3).
func TestRestartInMidHook(t *testing.T) {
	r, restart := durable(t)
	r.model.script(calls(shell("c1", "echo guarded")), speak("m", "done"))
	ctx, th := r.thread(workspaceWrite("never"))
	r.hooks(ctx, tomlHook("PreToolUse", "stubborn"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	f.until(func(e *heddlev1.Event) bool { return e.GetHookStarted() != nil })
	eventually(t, "the hook runs", func() bool { return r.exec.alive() == 1 })
	restart()
	r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	f = r.follow(th.GetId(), 1)
	f.turnEnd()
	once(t, f)
	if got := runsOf(f.seen); got != "preToolUse running, preToolUse failed" {
		t.Error(got)
	}
	if n := r.exec.did(isProcess); n != 1 {
		t.Errorf("%d processes were started", n)
	}
	if out := r.model.output("c1"); !strings.Contains(out, "the call was not made: the outcome of the hook is unknown") {
		t.Errorf("the model was told %q", out)
	}
	eventually(t, "the hook is ended", func() bool { return r.exec.alive() == 0 })
}

// The recorded answer of a hook counts after a restart in the call that it let
// through, and the hooks behind the call run once.
func TestRestartBehindHook(t *testing.T) {
	r, restart := durable(t)
	r.model.script(calls(shell("c1", "sleep")), speak("m", "done"))
	ctx, th := r.thread(workspaceWrite("never"))
	r.hooks(ctx, tomlHook("UserPromptSubmit", "echo known")+tomlHook("PreToolUse", "exit 0")+tomlHook("PostToolUse", "exit 7")+tomlHook("Stop", "exit 0"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	f.until(func(e *heddlev1.Event) bool { return e.GetOutputAdvanced() != nil })
	restart()
	r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	f = r.follow(th.GetId(), 1)
	f.until(func(e *heddlev1.Event) bool { return e.GetOutputAdvanced() != nil })
	r.exec.endAll(0)
	f.turnEnd()
	once(t, f)
	want := "userPromptSubmit running, userPromptSubmit completed, preToolUse running, preToolUse completed, postToolUse running, postToolUse failed, stop running, stop completed"
	if got := runsOf(f.seen); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if out := r.model.output("c1"); !strings.Contains(out, "begun") {
		t.Errorf("the model was told %q", out)
	}
	wantShown(t, r.last(), []string{"known"})
}
