package agent

import (
	"cmp"
	"context"
	"strings"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// maxSamples bounds the samples that are under way.
const maxSamples = 16

// SampleRequest asks a thread's model beside the conversation.
type SampleRequest struct {
	Thread *heddlev1.Thread
	Prompt string
	// Effort is the thread's when empty.
	Effort    string
	SessionID string
}

// Sample shows the model the history and the prompt. Nothing is recorded; the
// model is offered no tools.
func (a *Agent) Sample(ctx context.Context, r SampleRequest) (*heddlev1.SampleResponse, error) {
	select {
	case a.samples <- struct{}{}:
		defer func() { <-a.samples }()
	default:
		return nil, errdefs.New(errdefs.Overloaded, "%d samples are under way, which is the limit", maxSamples)
	}
	settings := r.Thread.GetSettings()
	rt, err := a.cfg.Resolver.Resolve(ctx, settings, r.SessionID)
	if err != nil {
		return nil, err
	}
	history, err := a.store.History(ctx, r.Thread.GetId())
	if err != nil {
		return nil, err
	}
	req := model.Request{
		Model: rt.Model.ID, Input: append(answeredOnly(history), asked(r.Prompt)), Effort: cmp.Or(r.Effort, rt.Effort), Verbosity: rt.Verbosity,
		ServiceTier: rt.ServiceTier, ThreadID: r.Thread.GetId(), SessionID: r.Thread.GetId(), Originator: r.Thread.GetOriginator(), UserAgent: rt.UserAgent,
	}
	if m := settings.GetModel(); m != "" {
		req.Model = m
	}
	out := &heddlev1.SampleResponse{}
	var said []string
	err = rt.Client.Stream(ctx, req, func(ev model.Event) error {
		switch e := ev.(type) {
		case model.ItemDone:
			if m := e.Entry.GetMessage(); m != nil {
				said = append(said, messageText(m))
			}
		case model.Completed:
			out.ResponseId, out.Usage = e.ResponseID, e.Usage
		}
		return nil
	})
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		return nil, errdefs.New(errdefs.Internal, "sample: %w", err)
	}
	if text := strings.Join(said, "\n"); text != "" {
		out.Text = &text
	}
	return out, nil
}

// asked is the prompt as the model is shown it.
func asked(prompt string) *heddlev1.HistoryEntry {
	return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Message{Message: &heddlev1.HistoryMessage{
		Role: "user", Parts: []*heddlev1.HistoryPart{{Part: &heddlev1.HistoryPart_Text{Text: prompt}}},
	}}}
}

// answeredOnly leaves out calls that have no output yet, which models do not
// take.
func answeredOnly(history []*heddlev1.HistoryEntry) []*heddlev1.HistoryEntry {
	answered := map[string]bool{}
	for _, e := range history {
		if o := e.GetToolOutput(); o != nil {
			answered[o.GetCallId()] = true
		}
	}
	out := make([]*heddlev1.HistoryEntry, 0, len(history)+1)
	for _, e := range history {
		if c := e.GetToolCall(); c == nil || answered[c.GetCallId()] {
			out = append(out, e)
		}
	}
	return out
}
