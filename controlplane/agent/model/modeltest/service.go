package modeltest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
)

// Service serves a handler over HTTP until the test ends and returns its URL.
func Service(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

// Body is a handler that answers with an event stream.
func Body(stream string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, stream)
	}
}

// Status is a handler that refuses.
func Status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// Open is a handler that sends the start of a stream and keeps it open; left is
// closed when the client has closed the connection.
func Open(start string) (h http.HandlerFunc, left <-chan struct{}) {
	gone := make(chan struct{})
	return func(w http.ResponseWriter, r *http.Request) {
		Body(start)(w, r)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(gone)
	}, gone
}

// Collect asks once and returns the events.
func Collect(ctx context.Context, c model.Client, req model.Request) ([]model.Event, error) {
	var events []model.Event
	err := c.Stream(ctx, req, func(e model.Event) error { events = append(events, e); return nil })
	return events, err
}

// Describe writes one line for each event. Ids that a client made up itself are
// written as their kind and number.
func Describe(events []model.Event) []string {
	names := map[string]string{}
	name := func(id string) string {
		if names[id] == "" {
			kind, _, _ := strings.Cut(id, "_")
			names[id] = fmt.Sprintf("%s%d", kind, len(names))
		}
		return names[id]
	}
	var out []string
	for _, e := range events {
		switch x := e.(type) {
		case model.ItemStarted:
			if x.Kind != model.KindToolCall {
				out = append(out, "start "+name(x.ID))
			}
		case model.TextDelta:
			out = append(out, fmt.Sprintf("text %s %q", name(x.ItemID), x.Text))
		case model.SummaryPart:
			out = append(out, fmt.Sprintf("part %s", name(x.ItemID)))
		case model.SummaryDelta:
			out = append(out, fmt.Sprintf("summary %s %q", name(x.ItemID), x.Text))
		case model.ReasoningDelta:
			out = append(out, fmt.Sprintf("raw %s %q", name(x.ItemID), x.Text))
		case model.ItemDone:
			out = append(out, describeDone(name(x.ID), x))
		case model.Completed:
			u := x.Usage
			out = append(out, fmt.Sprintf("completed in=%d cached=%d written=%d out=%d reasoning=%d total=%d", u.GetInputTokens(), u.GetCachedInputTokens(),
				u.GetCacheWriteInputTokens(), u.GetOutputTokens(), u.GetReasoningOutputTokens(), u.GetTotalTokens()))
		}
	}
	return out
}

func describeDone(name string, x model.ItemDone) string {
	if m := x.Entry.GetMessage(); m != nil {
		return fmt.Sprintf("done %s %q", name, m.GetParts()[0].GetText())
	}
	if r := x.Entry.GetReasoning(); r != nil {
		return fmt.Sprintf("reasoning %s %q %q %s %q", name, r.GetSummary(), r.GetContent(), r.GetForm(), r.GetEncryptedContent())
	}
	c := x.Entry.GetToolCall()
	id := c.GetCallId()
	if len(id) > 30 {
		id = "made-up"
	}
	return fmt.Sprintf("call %s %s/%s %s", id, c.GetNamespace(), c.GetName(), c.GetArguments())
}

// ErrorOf is the model error in err; the test fails where there is none.
func ErrorOf(t *testing.T, err error) *model.Error {
	t.Helper()
	var me *model.Error
	if !errors.As(err, &me) {
		t.Fatalf("%v is no model error", err)
	}
	return me
}
