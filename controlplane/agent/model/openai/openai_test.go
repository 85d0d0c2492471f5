package openai

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/model/httpstream"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const completed = `{"type":"response.completed","response":{"id":"resp_1","usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":40},"output_tokens":20,"output_tokens_details":{"reasoning_tokens":7},"total_tokens":120}}}`

// sse joins events to a body; the event name is taken from the type.
func sse(events ...string) string {
	var b strings.Builder
	for _, e := range events {
		var t struct{ Type string }
		_ = json.Unmarshal([]byte(e), &t)
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", t.Type, e)
	}
	return b.String()
}

func stream(t *testing.T, h http.HandlerFunc, change func(*Config)) (*Client, *httptest.Server) {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	cfg := Config{ProviderName: "mock", BaseURL: srv.URL + "/v1"}
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c, srv
}

func collect(ctx context.Context, c *Client, req model.Request) ([]model.Event, error) {
	var events []model.Event
	err := c.Stream(ctx, req, func(e model.Event) error { events = append(events, e); return nil })
	return events, err
}

func body(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, sse(events...))
	}
}

func describe(events []model.Event) []string {
	var out []string
	for _, e := range events {
		switch x := e.(type) {
		case model.ItemStarted:
			out = append(out, fmt.Sprintf("start %s kind=%d phase=%s call=%s name=%s", x.ID, x.Kind, x.Phase, x.CallID, x.Name))
		case model.TextDelta:
			out = append(out, fmt.Sprintf("text %s %q", x.ItemID, x.Text))
		case model.SummaryPart:
			out = append(out, fmt.Sprintf("part %s %d", x.ItemID, x.Index))
		case model.SummaryDelta:
			out = append(out, fmt.Sprintf("summary %s %d %q", x.ItemID, x.Index, x.Text))
		case model.ReasoningDelta:
			out = append(out, fmt.Sprintf("raw %s %d %q", x.ItemID, x.Index, x.Text))
		case model.ItemDone:
			switch {
			case x.WebSearch != nil:
				out = append(out, fmt.Sprintf("search %s %q", x.ID, x.WebSearch.GetQuery()))
			case x.Entry.GetMessage() != nil:
				out = append(out, fmt.Sprintf("done %s %q", x.ID, x.Entry.GetMessage().GetParts()[0].GetText()))
			case x.Entry.GetReasoning() != nil:
				r := x.Entry.GetReasoning()
				out = append(out, fmt.Sprintf("reasoning %s %q %q %s", x.ID, r.GetSummary(), r.GetContent(), r.GetEncryptedContent()))
			default:
				c := x.Entry.GetToolCall()
				out = append(out, fmt.Sprintf("call %s %s.%s(%s) freeform=%v", c.GetCallId(), c.GetNamespace(), c.GetName(), c.GetArguments(), c.GetFreeform()))
			}
		case model.Completed:
			out = append(out, fmt.Sprintf("completed %s %d", x.ResponseID, x.Usage.GetTotalTokens()))
		}
	}
	return out
}

func TestStream(t *testing.T) {
	tests := []struct {
		name   string
		events []string
		want   []string
	}{
		{"message", []string{
			`{"type":"response.created","response":{"id":"resp_1"}}`,
			`{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"m1","role":"assistant","phase":"commentary","content":[]}}`,
			`{"type":"response.output_text.delta","item_id":"m1","delta":"Hel"}`,
			`{"type":"response.output_text.delta","item_id":"m1","delta":"lo é🎉"}`,
			`{"type":"response.output_item.done","output_index":0,"item":{"type":"message","id":"m1","role":"assistant","phase":"commentary","content":[{"type":"output_text","text":"Hello é🎉"}]}}`,
			completed,
		}, []string{"start m1 kind=1 phase=commentary call= name=", `text m1 "Hel"`, `text m1 "lo é🎉"`, `done m1 "Hello é🎉"`, "completed resp_1 120"}},
		{"reasoning", []string{
			`{"type":"response.output_item.added","item":{"type":"reasoning","id":"r1","summary":[]}}`,
			`{"type":"response.reasoning_summary_part.added","item_id":"r1","summary_index":0}`,
			`{"type":"response.reasoning_summary_text.delta","item_id":"r1","summary_index":0,"delta":"a"}`,
			`{"type":"response.reasoning_text.delta","item_id":"r1","content_index":2,"delta":"b"}`,
			`{"type":"response.output_item.done","item":{"type":"reasoning","id":"r1","summary":[{"type":"summary_text","text":"a"}],"content":[{"type":"reasoning_text","text":"b"}],"encrypted_content":"ENC"}}`,
			completed,
		}, []string{"start r1 kind=2 phase= call= name=", "part r1 0", `summary r1 0 "a"`, `raw r1 2 "b"`, `reasoning r1 ["a"] ["b"] ENC`, "completed resp_1 120"}},
		{"calls", []string{
			`{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","id":"f1","call_id":"c1","name":"exec_command","arguments":""}}`,
			`{"type":"response.function_call_arguments.delta","item_id":"f1","delta":"{}"}`,
			`{"type":"response.output_item.done","output_index":0,"item":{"type":"function_call","id":"f1","call_id":"c1","name":"exec_command","namespace":"ns","arguments":"{\"cmd\":\"ls\"}"}}`,
			`{"type":"response.output_item.done","output_index":1,"item":{"type":"custom_tool_call","id":"x1","call_id":"c2","name":"apply_patch","input":"*** Begin"}}`,
			completed,
		}, []string{"start f1 kind=3 phase= call=c1 name=exec_command", `call c1 ns.exec_command({"cmd":"ls"}) freeform=false`, "start x1 kind=3 phase= call=c2 name=apply_patch", "call c2 .apply_patch(*** Begin) freeform=true", "completed resp_1 120"}},
		{"web search", []string{
			`{"type":"response.output_item.added","item":{"type":"web_search_call","id":"w1","action":{"type":"search","query":"weather"}}}`,
			`{"type":"response.output_item.done","item":{"type":"web_search_call","id":"w1","action":{"type":"search","query":"weather"}}}`,
			completed,
		}, []string{"start w1 kind=4 phase= call= name=", `search w1 "weather"`, "completed resp_1 120"}},
		{"P10: a repeated call id is one call", []string{
			`{"type":"response.output_item.done","item":{"type":"function_call","id":"f1","call_id":"c1","name":"a","arguments":"{}"}}`,
			`{"type":"response.output_item.done","item":{"type":"function_call","id":"f1","call_id":"c1","name":"a","arguments":"{}"}}`,
			`{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","id":"f2","call_id":"c1","name":"a","arguments":"{\"changed\":1}"}}`,
			completed,
		}, []string{"start f1 kind=3 phase= call=c1 name=a", "call c1 .a({}) freeform=false", "start f2 kind=3 phase= call=c1 name=a", "completed resp_1 120"}},
		{"a call that is not done is no call", []string{
			`{"type":"response.output_item.added","item":{"type":"function_call","id":"f1","call_id":"c1","name":"a","arguments":"{}"}}`, completed,
		}, []string{"start f1 kind=3 phase= call=c1 name=a", "completed resp_1 120"}},
		{"a message that the service leaves open", []string{
			`{"type":"response.output_text.delta","item_id":"m1","delta":"abc"}`, completed,
		}, []string{"start m1 kind=1 phase= call= name=", `text m1 "abc"`, `done m1 "abc"`, "completed resp_1 120"}},
		{"garbage between", []string{
			`not json`, `{"type":7}`, `[]`, `{"type":"response.output_text.delta","item_id":"m1","delta":{"a":1}}`, `{"type":"response.brand_new","x":1}`,
			`{"type":"response.output_item.added","item":null}`, `{"type":"response.output_item.done","item":{"type":"unknown_item","id":"u"}}`,
			`{"type":"response.output_item.done","item":{"type":"function_call","id":"f9","name":"no_call_id"}}`,
			`{"type":"response.reasoning_summary_text.delta","item_id":"r","summary_index":-3,"delta":"x"}`,
			`{"type":"response.reasoning_summary_text.delta","item_id":"r","summary_index":99999999999,"delta":"x"}`, completed,
		}, []string{"start f9 kind=3 phase= call= name=no_call_id", "completed resp_1 120"}},
		{"deltas after the end, and of another kind", []string{
			`{"type":"response.output_item.done","item":{"type":"message","id":"m1","content":[{"type":"output_text","text":"a"},{"type":"refusal","refusal":"b"}]}}`,
			`{"type":"response.output_text.delta","item_id":"m1","delta":"late"}`,
			`{"type":"response.reasoning_text.delta","item_id":"m1","delta":"odd"}`,
			completed, `{"type":"response.output_text.delta","item_id":"m2","delta":"after"}`,
		}, []string{"start m1 kind=1 phase= call= name=", `done m1 "ab"`, "completed resp_1 120"}},
		{"escapes", []string{
			`{"type":"response.output_text.delta","item_id":"m\u0031","delta":"\u00e9\ud83c\udf89\n\"\\ \ud83c"}`, completed,
		}, []string{"start m1 kind=1 phase= call= name=", "text m1 \"é🎉\\n\\\"\\\\ \uFFFD\"", "done m1 \"é🎉\\n\\\"\\\\ \uFFFD\"", "completed resp_1 120"}},
		{"no usage", []string{`{"type":"response.completed","response":{}}`}, []string{"completed  0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := stream(t, body(tt.events...), nil)
			events, err := collect(t.Context(), c, model.Request{Model: "m"})
			if err != nil {
				t.Fatal(err)
			}
			if got := describe(events); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

// A service that names neither items nor events in its stream.
func TestStreamWithoutIDs(t *testing.T) {
	c, _ := stream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, e := range []string{
			`{"type":"response.output_item.added","output_index":0,"item":{"type":"message","role":"assistant"}}`,
			`{"type":"response.output_text.delta","output_index":0,"delta":"x"}`,
			`{"type":"response.output_item.done","output_index":0,"item":{"type":"message","content":[{"type":"output_text","text":"x"}]}}`, completed,
		} {
			fmt.Fprintf(w, ": comment\r\ndata:%s\r\n\r\n", e)
		}
	}, nil)
	events, err := collect(t.Context(), c, model.Request{})
	if err != nil || len(events) != 4 {
		t.Fatalf("%q, %v", describe(events), err)
	}
	id := events[0].(model.ItemStarted).ID
	if id == "" || events[1].(model.TextDelta).ItemID != id || events[2].(model.ItemDone).ID != id {
		t.Errorf("ids differ: %q", describe(events))
	}
}

func TestFailures(t *testing.T) {
	status := func(code int, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code); _, _ = io.WriteString(w, text) }
	}
	message := `{"error":{"message":"the cause","type":"x"}}`
	failed := func(code, msg string) http.HandlerFunc {
		return body(fmt.Sprintf(`{"type":"response.failed","response":{"error":{"code":%q,"message":%q}}}`, code, msg))
	}
	tests := []struct {
		name    string
		handler http.HandlerFunc
		want    model.Error
	}{
		{"500", status(500, message), model.Error{Kind: "internalServerError", Message: "We’re currently experiencing high demand, which may cause temporary errors.", Details: "the cause", Retry: model.RetryStream}},
		{"503", status(503, message), model.Error{Kind: "httpConnectionFailed", HTTPStatus: 503, Message: "unexpected status 503 Service Unavailable: the cause, url: URL", Retry: model.RetryStream}},
		{"401", status(401, message), model.Error{Kind: "httpConnectionFailed", HTTPStatus: 401, Message: "unexpected status 401 Unauthorized: the cause, url: URL"}},
		{"403 no JSON", status(403, "no\n"), model.Error{Kind: "httpConnectionFailed", HTTPStatus: 403, Message: "unexpected status 403 Forbidden: no, url: URL"}},
		{"429", status(429, message), model.Error{Kind: "responseTooManyFailedAttempts", HTTPStatus: 429, Message: "exceeded retry limit, last status: 429 Too Many Requests", Details: "the cause"}},
		{"C10: 400 keeps its text", status(400, message), model.Error{Kind: "other", Message: message}},
		{"400 empty", status(400, ""), model.Error{Kind: "other", Message: "unexpected status 400 Bad Request without a body, url: URL"}},
		{"context window", failed("context_length_exceeded", "m"), model.Error{Kind: "contextWindowExceeded", Details: "context_length_exceeded", Message: "The conversation no longer fits into the model's context window. Start a new thread or clear earlier history before trying again."}},
		{"quota", failed("insufficient_quota", "m"), model.Error{Kind: "usageLimitExceeded", Details: "insufficient_quota", Message: "Quota exceeded. Check your plan and billing details."}},
		{"rate limit", failed("rate_limit_exceeded", "Please try again in 1.5s."), model.Error{Kind: "rateLimitExceeded", Details: "rate_limit_exceeded", Message: "rate limit exceeded: Please try again in 1.5s.", Retry: model.RetryStream, RetryAfter: 1500 * time.Millisecond}},
		{"server error", failed("server_error", "oops"), model.Error{Kind: "other", Details: "server_error", Message: "stream disconnected before completion: oops", Retry: model.RetryStream}},
		{"other code", failed("invalid_prompt", "bad prompt"), model.Error{Kind: "other", Details: "invalid_prompt", Message: "bad prompt"}},
		{"failed without an error", body(`{"type":"response.failed","response":null}`), model.Error{Kind: "other", Message: "the model service reported a failure without a message"}},
		{"error event", body(`{"type":"error","code":"server_error","message":"oops"}`), model.Error{Kind: "other", Details: "server_error", Message: "stream disconnected before completion: oops", Retry: model.RetryStream}},
		{"incomplete", body(`{"type":"response.incomplete","response":{"incomplete_details":{"reason":"max_output_tokens"}}}`), model.Error{Kind: "other", Message: "Incomplete response returned, reason: max_output_tokens"}},
		{"end without completion", body(`{"type":"response.output_text.delta","item_id":"m","delta":"par"}`), model.Error{Kind: "other", Message: "stream disconnected before completion: stream closed before response.completed", Details: "stream closed before response.completed", Retry: model.RetryStream}},
		{"P11: half an event", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "event: response.completed\ndata: "+completed)
		}, model.Error{Kind: "other", Message: "stream disconnected before completion: stream closed before response.completed", Details: "stream closed before response.completed", Retry: model.RetryStream}},
		{"not a stream", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{}")
		}, model.Error{Kind: "other", Message: `stream disconnected before completion: the service answered with content type "application/json" instead of an event stream`, Details: `the service answered with content type "application/json" instead of an event stream`, Retry: model.RetryStream}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var requests atomic.Int32
			c, srv := stream(t, func(w http.ResponseWriter, r *http.Request) { requests.Add(1); tt.handler(w, r) }, nil)
			_, err := collect(t.Context(), c, model.Request{})
			var got *model.Error
			if !errors.As(err, &got) {
				t.Fatalf("got %v", err)
			}
			want := tt.want
			want.Message = strings.ReplaceAll(want.Message, "URL", srv.URL+"/v1/responses")
			if g := *got; g.Kind != want.Kind || g.HTTPStatus != want.HTTPStatus || g.Message != want.Message || g.Details != want.Details || g.Retry != want.Retry || g.RetryAfter != want.RetryAfter {
				t.Errorf("got  %+v\nwant %+v", g, want)
			}
			if requests.Load() != 1 {
				t.Errorf("%d requests without retries", requests.Load())
			}
		})
	}
}

func TestCutConnection(t *testing.T) {
	c, _ := stream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, sse(`{"type":"response.output_text.delta","item_id":"m","delta":"par"}`))
		_ = http.NewResponseController(w).Flush()
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	}, nil)
	events, err := collect(t.Context(), c, model.Request{})
	var got *model.Error
	if !errors.As(err, &got) || !strings.HasPrefix(got.Message, "stream disconnected before completion: ") || got.Retry != model.RetryStream || len(events) != 2 {
		t.Errorf("got %v, %q", err, describe(events))
	}
}

func TestRequestRetries(t *testing.T) {
	tests := []struct {
		name     string
		statuses []int
		retries  int
		requests int32
		ok       bool
	}{
		{"recovers", []int{500, 503, 200}, 2, 3, true},
		{"bounded", []int{500, 500, 500, 200}, 2, 3, false},
		{"429 is final", []int{429, 200}, 3, 1, false},
		{"400 is final", []int{400, 200}, 3, 1, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int32
			c, _ := stream(t, func(w http.ResponseWriter, r *http.Request) {
				if s := tt.statuses[min(int(n.Add(1))-1, len(tt.statuses)-1)]; s != 200 {
					w.WriteHeader(s)
					return
				}
				body(completed)(w, r)
			}, func(c *Config) { c.RequestMaxRetries = tt.retries })
			_, err := collect(t.Context(), c, model.Request{Model: "m", ThreadID: "t"})
			if (err == nil) != tt.ok || n.Load() != tt.requests {
				t.Errorf("%d requests, %v", n.Load(), err)
			}
		})
	}
}

func TestConnectionRefused(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	c, err := New(Config{ProviderName: "gone", BaseURL: "http://user:secret@" + addr + "/v1?key=secret", RequestMaxRetries: 1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = collect(t.Context(), c, model.Request{})
	var got *model.Error
	if !errors.As(err, &got) || got.Retry != model.RetryConnect || got.Kind != "httpConnectionFailed" || got.HTTPStatus != 0 {
		t.Fatalf("got %#v", err)
	}
	if !strings.Contains(got.Message, `"gone"`) || !strings.Contains(got.Message, "refused") || strings.Contains(got.Message, "secret") {
		t.Errorf("message %q", got.Message)
	}
}

func TestIdleTimeout(t *testing.T) {
	left := make(chan struct{}, 2)
	for _, headers := range []bool{true, false} {
		c, _ := stream(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if headers {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, sse(`{"type":"response.output_text.delta","item_id":"m","delta":"par"}`))
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
			left <- struct{}{}
		}, func(c *Config) { c.StreamIdleTimeout = 100 * time.Millisecond; c.RequestMaxRetries = 5 })
		_, err := collect(t.Context(), c, model.Request{})
		var got *model.Error
		if !errors.As(err, &got) || !strings.Contains(got.Message, "stream disconnected before completion: idle timeout") || got.Retry != model.RetryStream {
			t.Errorf("headers %v: got %v", headers, err)
		}
		<-left
	}
}

func TestCancelClosesConnection(t *testing.T) {
	left := make(chan struct{})
	c, _ := stream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, sse(`{"type":"response.output_text.delta","item_id":"m","delta":"par"}`))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(left)
	}, nil)
	why := errors.New("steered")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := c.Stream(ctx, model.Request{}, func(e model.Event) error {
		if _, ok := e.(model.TextDelta); ok {
			cancel(why)
		}
		return nil
	})
	if !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	<-left
	stop := errors.New("stop")
	c, _ = stream(t, body(`{"type":"response.output_text.delta","item_id":"m","delta":"a"}`, completed), nil)
	if err := c.Stream(t.Context(), model.Request{}, func(model.Event) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("an error of yield became %v", err)
	}
}

func TestTooManyItems(t *testing.T) {
	var events []string
	for i := range maxItems + 1 {
		events = append(events, fmt.Sprintf(`{"type":"response.output_item.done","output_index":%d,"item":{"type":"function_call","id":"f%d","call_id":"c%d","name":"a","arguments":"{}"}}`, i, i, i))
	}
	c, _ := stream(t, body(append(events, completed)...), nil)
	_, err := collect(t.Context(), c, model.Request{})
	if err == nil || !strings.Contains(err.Error(), "more than 1024 items") {
		t.Errorf("got %v", err)
	}
}

func TestNoKeyOfTheProcess(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "process-key")
	t.Setenv("OPENAI_ORG_ID", "process-org")
	t.Setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/")
	var h http.Header
	c, _ := stream(t, func(w http.ResponseWriter, r *http.Request) { h = r.Header; body(completed)(w, r) }, nil)
	if _, err := collect(t.Context(), c, model.Request{}); err != nil {
		t.Fatal(err)
	}
	if h.Get("Authorization") != "" || strings.Contains(fmt.Sprint(h), "process-") {
		t.Errorf("headers %v", h)
	}
}

func TestNewErrors(t *testing.T) {
	for _, u := range []string{"", "ftp://x/v1", "://", "http://", "localhost:8080/v1"} {
		if _, err := New(Config{ProviderName: "p", BaseURL: u}); err == nil || !strings.Contains(err.Error(), "base_url") {
			t.Errorf("New(%q): %v", u, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("response.output_text.delta", []byte(`{"item_id":"m","delta":"x"}`))
	f.Add("", []byte(`{"type":"response.output_item.done","item":{"type":"web_search_call","id":"w","action":{"a":[1,{}]}}}`))
	f.Add("", []byte(completed))
	f.Add("error", []byte(`{"error":{"code":"x"}}`))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		started := map[string]bool{}
		d := newDecoder(func(e model.Event) error {
			switch x := e.(type) {
			case model.ItemStarted:
				started[x.ID] = true
			case model.TextDelta:
				if !started[x.ItemID] {
					t.Errorf("delta of %q before its start", x.ItemID)
				}
			case model.ItemDone:
				if !started[x.ID] || (x.Entry == nil) == (x.WebSearch == nil) {
					t.Errorf("bad end %#v", x)
				}
			}
			return nil
		})
		for range 2 {
			if end, err := d.event(name, data); end || err != nil {
				return
			}
		}
	})
}

func FuzzStream(f *testing.F) {
	f.Add([]byte(sse(completed)))
	f.Add([]byte("data: x\r\n\r\n: c\nevent: \ndata\n\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		res := &http.Response{Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(string(raw)))}
		done := 0
		err := decode(httpstream.NewAnswer(res), func(e model.Event) error {
			if _, ok := e.(model.Completed); ok {
				done++
			}
			return nil
		})
		if (err == nil) != (done == 1) {
			t.Errorf("%d completions, %v", done, err)
		}
	})
}

func BenchmarkDelta(b *testing.B) {
	b.Run("event", func(b *testing.B) {
		d := newDecoder(func(model.Event) error { return nil })
		data := []byte(`{"type":"response.output_text.delta","item_id":"msg_0123456789abcdef","output_index":1,"content_index":0,"delta":" some","logprobs":[],"obfuscation":"aB3dE6gH","sequence_number":1234}` + "\n")
		b.ReportAllocs()
		for b.Loop() {
			d.items["msg_0123456789abcdef"] = &openItem{id: "m", kind: model.KindMessage}
			if _, err := d.event("response.output_text.delta", data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("stream", func(b *testing.B) {
		const n = 1000
		var events []string
		for i := range n {
			events = append(events, fmt.Sprintf(`{"type":"response.output_text.delta","item_id":"msg_0123456789abcdef","output_index":1,"content_index":0,"delta":" some","logprobs":[],"obfuscation":"aB3dE6gH","sequence_number":%d}`, i))
		}
		raw := sse(append(events, completed)...)
		b.ReportAllocs()
		for b.Loop() {
			res := &http.Response{Header: http.Header{}, Body: io.NopCloser(bufio.NewReader(strings.NewReader(raw)))}
			if err := decode(httpstream.NewAnswer(res), func(model.Event) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/delta")
	})
}

func message(role, text string) *heddlev1.HistoryEntry {
	return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Message{Message: &heddlev1.HistoryMessage{Role: role, Parts: []*heddlev1.HistoryPart{{Part: &heddlev1.HistoryPart_Text{Text: text}}}}}}
}
