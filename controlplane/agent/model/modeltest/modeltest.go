// Package modeltest says what every model.Client must do, as a suite that each
// client runs against its own service.
package modeltest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
)

// Answer is what the service behind a client shall answer to each request.
type Answer struct {
	// Text is one message, in these deltas.
	Text []string
	// Call is the name of a tool that is called with {"a":1} after the message,
	// under the call id "call_1".
	Call string
	// Hang keeps the stream open after the text.
	Hang bool
	// Fails cuts the stream after the text.
	Fails bool
}

// Run runs the suite. open returns a client whose service gives an answer.
func Run(t *testing.T, open func(t *testing.T, a Answer) model.Client) {
	t.Run("order", func(t *testing.T) { order(t, open(t, Answer{Text: []string{"Hel", "lo é"}, Call: "exec_command"})) })
	t.Run("concurrent", func(t *testing.T) { concurrent(t, open(t, Answer{Text: []string{"a"}})) })
	t.Run("error of yield", func(t *testing.T) { yieldError(t, open(t, Answer{Text: []string{"a", "b"}})) })
	t.Run("cancel", func(t *testing.T) { cancelled(t, open(t, Answer{Text: []string{"a"}, Hang: true})) })
	t.Run("cut", func(t *testing.T) { cut(t, open(t, Answer{Text: []string{"a"}, Fails: true})) })
}

func request(thread string) model.Request { return model.Request{Model: "m", ThreadID: thread} }

// Check returns what is wrong with the order of a stream's events.
func Check(events []model.Event) error {
	started, done := map[string]model.ItemKind{}, map[string]bool{}
	for i, e := range events {
		if i > 0 {
			if _, ended := events[i-1].(model.Completed); ended {
				return fmt.Errorf("event %d (%T) follows Completed", i, e)
			}
		}
		var id string
		switch x := e.(type) {
		case model.ItemStarted:
			if _, again := started[x.ID]; again || x.ID == "" || x.Kind == 0 {
				return fmt.Errorf("event %d: bad start %+v", i, x)
			}
			started[x.ID] = x.Kind
			continue
		case model.ItemDone:
			if done[x.ID] || x.Kind != started[x.ID] || (x.Entry == nil) == (x.WebSearch == nil) {
				return fmt.Errorf("event %d: bad end %+v", i, x)
			}
			done[x.ID] = true
			continue
		case model.TextDelta:
			id = x.ItemID
		case model.SummaryPart:
			id = x.ItemID
		case model.SummaryDelta:
			id = x.ItemID
		case model.ReasoningDelta:
			id = x.ItemID
		default:
			continue
		}
		if _, open := started[id]; !open || done[id] {
			return fmt.Errorf("event %d (%T) is of item %q, which is not open", i, e, id)
		}
	}
	return nil
}

func order(t *testing.T, c model.Client) {
	var events []model.Event
	if err := c.Stream(t.Context(), request("t"), func(e model.Event) error { events = append(events, e); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := Check(events); err != nil {
		t.Error(err)
	}
	var text, whole, call string
	for _, e := range events {
		switch x := e.(type) {
		case model.TextDelta:
			text += x.Text
		case model.ItemDone:
			if m := x.Entry.GetMessage(); m != nil {
				whole = m.GetParts()[0].GetText()
				if m.GetRole() != "assistant" || m.GetId() != x.ID {
					t.Errorf("message %v", m)
				}
			}
			if tc := x.Entry.GetToolCall(); tc != nil {
				call = tc.GetCallId() + " " + tc.GetName() + tc.GetArguments()
			}
		}
	}
	if text != "Hello é" || whole != text || call != `call_1 exec_command{"a":1}` {
		t.Errorf("text %q, message %q, call %q", text, whole, call)
	}
	if last, ok := events[len(events)-1].(model.Completed); !ok || last.ResponseID == "" {
		t.Errorf("last event %#v", events[len(events)-1])
	}
}

func concurrent(t *testing.T, c model.Client) {
	errs := make(chan error, 8)
	for i := range cap(errs) {
		go func() {
			errs <- c.Stream(t.Context(), request(fmt.Sprint(i)), func(model.Event) error { return nil })
		}()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

func yieldError(t *testing.T, c model.Client) {
	stop := errors.New("stop")
	seen := 0
	err := c.Stream(t.Context(), request("t"), func(model.Event) error {
		seen++
		if seen == 2 {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) || seen != 2 {
		t.Errorf("%v after %d events", err, seen)
	}
}

func cancelled(t *testing.T, c model.Client) {
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	var at time.Time
	err := c.Stream(ctx, request("t"), func(e model.Event) error {
		if _, ok := e.(model.TextDelta); ok {
			at = time.Now()
			cancel(why)
		}
		return nil
	})
	if !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(at); took > 5*time.Second {
		t.Errorf("returned after %v", took)
	}
}

func cut(t *testing.T, c model.Client) {
	var events []model.Event
	err := c.Stream(t.Context(), request("t"), func(e model.Event) error { events = append(events, e); return nil })
	var me *model.Error
	if !errors.As(err, &me) || me.Retry != model.RetryStream || len(me.Message) < 40 {
		t.Errorf("got %v", err)
	}
	if err := Check(events); err != nil {
		t.Error(err)
	}
	for _, e := range events {
		if _, ok := e.(model.Completed); ok {
			t.Error("a cut stream is completed")
		}
	}
}
