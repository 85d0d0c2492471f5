package controlplane

import (
	"testing"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// A sample of a running turn leaves out the calls that have no output yet; what
// it asks and is told stays out of the thread.
func TestSampleBesideATurn(t *testing.T) {
	r := newRig(t)
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	r.model.script(calls(shell("c1", "sleep")), speak("s", "aside"), speak("m", "done"))
	turn := r.startTurn(ctx, th.GetId(), "go")
	f.until(func(e *heddlev1.Event) bool { return e.GetOutputAdvanced() != nil })
	sample := func(req *heddlev1.SampleRequest) (*heddlev1.SampleResponse, error) {
		req.ThreadId = th.GetId()
		return heddlev1.NewSampleServiceClient(r.conn).Sample(ctx, req)
	}
	_, err := sample(&heddlev1.SampleRequest{ExpectedTurnId: turn.GetId(), Prompt: "why?"})
	refusal(t, "in progress", err, "must be the latest finished turn")
	got, err := sample(&heddlev1.SampleRequest{ExpectedTurnId: turn.GetId(), Prompt: "why?", AllowInProgress: true})
	if err != nil || got.GetText() != "aside" {
		t.Fatal(got, err)
	}
	asked := r.last()
	for _, e := range asked.Input {
		if e.GetToolCall() != nil {
			t.Error("the model was shown a call without its output")
		}
	}
	wantShown(t, asked, []string{"go", "why?"})
	if len(asked.Tools) != 0 {
		t.Errorf("%d tools were offered", len(asked.Tools))
	}
	r.exec.endAll(0)
	f.turnEnd()
	wantShown(t, r.last(), []string{"go"}, "why?", "aside")
	_, err = sample(&heddlev1.SampleRequest{ExpectedTurnId: turn.GetId()})
	refusal(t, "no prompt", err, "requires expectedTurnId and a prompt")
	_, err = heddlev1.NewSampleServiceClient(r.conn).Sample(ctx, &heddlev1.SampleRequest{ThreadId: "nope", ExpectedTurnId: "x", Prompt: "x"})
	if !errdefs.Is(err, errdefs.ThreadNotFound) {
		t.Error(err)
	}
}
