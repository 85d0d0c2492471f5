package chat

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/model/httpstream"
	"github.com/heddle-dev/heddle/controlplane/agent/model/modeltest"
)

func piece(delta string) string {
	return `{"id":"c1","object":"chat.completion.chunk","choices":[{"index":0,"delta":` + delta + `,"finish_reason":null}]}`
}

func finish(reason string) string {
	return fmt.Sprintf(`{"id":"c1","choices":[{"index":0,"delta":{},"finish_reason":%q}]}`, reason)
}

const (
	usageChunk = `{"id":"c1","choices":[],"usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120,"prompt_tokens_details":{"cached_tokens":40},"completion_tokens_details":{"reasoning_tokens":7}}}`
	fullUsage  = "completed in=100 cached=40 written=0 out=20 reasoning=7 total=120"
	noUsage    = "completed in=0 cached=0 written=0 out=0 reasoning=0 total=0"
)

func TestStream(t *testing.T) {
	tests := []struct {
		name   string
		chunks []string
		want   []string
	}{
		{"message and usage behind the end", []string{
			piece(`{"role":"assistant","content":""}`), piece(`{"content":"Hel"}`), piece(`{"content":"lo é🎉"}`), finish("stop"), usageChunk, "[DONE]",
		}, []string{"start msg0", `text msg0 "Hel"`, `text msg0 "lo é🎉"`, `done msg0 "Hello é🎉"`, fullUsage}},
		{"vLLM, DeepSeek: reasoning_content", []string{
			piece(`{"role":"assistant","content":null,"reasoning_content":"hm"}`), piece(`{"reasoning_content":"m"}`), piece(`{"content":"yes"}`), finish("stop"), "[DONE]",
		}, []string{"start rs0", `raw rs0 "hm"`, `raw rs0 "m"`, `reasoning rs0 [] ["hmm"] chat/reasoning_content ""`, "start msg1", `text msg1 "yes"`, `done msg1 "yes"`, noUsage}},
		{"Ollama, OpenRouter: reasoning", []string{
			": OPENROUTER PROCESSING", piece(`{"content":"","reasoning":"hm"}`), piece(`{"content":"yes","reasoning":null}`), finish("stop"), "[DONE]",
		}, []string{"start rs0", `raw rs0 "hm"`, `reasoning rs0 [] ["hm"] chat/reasoning ""`, "start msg1", `text msg1 "yes"`, `done msg1 "yes"`, noUsage}},
		{"Mistral: a list as content", []string{
			piece(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]}]}`), piece(`{"content":[{"type":"text","text":"yes"}]}`), finish("stop"), "[DONE]",
		}, []string{"start rs0", `raw rs0 "hm"`, `reasoning rs0 [] ["hm"] chat/content ""`, "start msg1", `text msg1 "yes"`, `done msg1 "yes"`, noUsage}},
		{"OpenAI: parallel calls in fragments", []string{
			piece(`{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"exec_command","arguments":""}}]}`),
			piece(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"cmd\":"}}]}`),
			piece(`{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"view_image","arguments":"{\"pa"}}]}`),
			piece(`{"tool_calls":[{"index":0,"function":{"arguments":"\"ls\"}"}},{"index":1,"function":{"arguments":"th\":\"x\"}"}}]}`),
			finish("tool_calls"), "[DONE]",
		}, []string{`call a /exec_command {"cmd":"ls"}`, `call b /view_image {"path":"x"}`, noUsage}},
		{"Ollama: whole calls, finish reason stop, no [DONE]", []string{
			piece(`{"content":"","tool_calls":[{"id":"call_x","index":0,"type":"function","function":{"name":"exec_command","arguments":"{\"cmd\":\"ls\"}"}}]}`), finish("stop"),
		}, []string{`call call_x /exec_command {"cmd":"ls"}`, noUsage}},
		{"Gemini: every call has the number 0", []string{
			piece(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"exec_command","arguments":"{\"cmd\":\"1\"}"}}]}`),
			piece(`{"tool_calls":[{"index":0,"id":"b","function":{"name":"exec_command","arguments":"{\"cmd\":\"2\"}"}}]}`), finish("stop"), "[DONE]",
		}, []string{`call a /exec_command {"cmd":"1"}`, `call b /exec_command {"cmd":"2"}`, noUsage}},
		{"no numbers and no ids", []string{
			piece(`{"tool_calls":[{"function":{"name":"exec_command","arguments":"{\"cmd\""}}]}`), piece(`{"tool_calls":[{"function":{"arguments":":\"1\"}"}}]}`),
			piece(`{"tool_calls":[{"function":{"name":"exec_command","arguments":"{\"cmd\":\"2\"}"}}]}`), finish("tool_calls"), "[DONE]",
		}, []string{`call made-up /exec_command {"cmd":"1"}`, `call made-up /exec_command {"cmd":"2"}`, noUsage}},
		{"arguments as an object, empty, null", []string{
			piece(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":{"cmd":"1"}}},{"index":1,"id":"b","function":{"name":"y","arguments":""}},{"index":2,"id":"c","function":{"name":"z","arguments":null}}]}`), finish("tool_calls"), "[DONE]",
		}, []string{`call a /x {"cmd":"1"}`, `call b /y {}`, `call c /z {}`, noUsage}},
		{"name and id repeated in every fragment", []string{
			piece(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"k\""}}]}`), piece(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":":1}"}}]}`), finish("tool_calls"), "[DONE]",
		}, []string{`call a /x {"k":1}`, noUsage}},
		{"P10: a repeated call id is one call", []string{
			piece(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"k\":1}"}}]}`), piece(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"k\":1}"}}]}`),
			piece(`{"tool_calls":[{"index":1,"id":"a","function":{"name":"x","arguments":"{\"k\":2}"}}]}`), finish("tool_calls"), "[DONE]",
		}, []string{`call a /x {"k":1}`, noUsage}},
		{"a tool of a namespace, and one that was not offered", []string{
			piece(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"mcp__srv__look","arguments":"{}"}},{"index":1,"id":"b","function":{"name":"mcp__other__x","arguments":"{}"}}]}`), finish("tool_calls"), "[DONE]",
		}, []string{`call a mcp__srv/look {}`, `call b /mcp__other__x {}`, noUsage}},
		{"the form before tool_calls", []string{piece(`{"function_call":{"name":"x","arguments":"{\"a\":"}}`), piece(`{"function_call":{"arguments":"1}"}}`), finish("function_call"), "[DONE]"},
			[]string{`call made-up /x {"a":1}`, noUsage}},
		{"Qwen: blank text between reasoning and call", []string{
			piece(`{"reasoning_content":"hm"}`), piece(`{"content":"\n\n"}`), piece(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}]}`), finish("tool_calls"), "[DONE]",
		}, []string{"start rs0", `raw rs0 "hm"`, `reasoning rs0 [] ["hm"] chat/reasoning_content ""`, `call a /x {}`, noUsage}},
		{"white space that a text begins with is kept", []string{piece(`{"content":"\n  "}`), piece(`{"content":"x"}`), finish("stop"), "[DONE]"},
			[]string{"start msg0", `text msg0 "\n  x"`, `done msg0 "\n  x"`, noUsage}},
		{"only [DONE] at the end", []string{piece(`{"content":"x"}`), "[DONE]"}, []string{"start msg0", `text msg0 "x"`, `done msg0 "x"`, noUsage}},
		{"refusal text", []string{piece(`{"refusal":"I cannot"}`), finish("stop"), "[DONE]"}, []string{"start msg0", `text msg0 "I cannot"`, `done msg0 "I cannot"`, noUsage}},
		{"other choices, odd types and rubbish", []string{
			"not json", `[]`, `{"choices":7}`, `{"id":5,"choices":[{"index":0,"delta":{"content":"x"}}]}`, `{"choices":[{"index":1,"delta":{"content":"other"}}]}`, `{"choices":[{"index":0}]}`,
			`{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0}]}}]}`, `{"choices":[{"index":0,"delta":{"content":7}}]}`, finish("stop"), "[DONE]",
		}, []string{"start msg0", `text msg0 "x"`, `done msg0 "x"`, noUsage}},
		{"DeepSeek: its own name for the cache", []string{finish("stop"), `{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":2,"prompt_cache_hit_tokens":8}}`, "[DONE]"},
			[]string{"completed in=10 cached=8 written=0 out=2 reasoning=0 total=12"}},
	}
	tools := []model.Tool{{Namespace: "mcp__srv", Name: "look"}, {Name: "exec_command"}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			events, err := modeltest.Collect(t.Context(), client(t, modeltest.Body(sse(tt.chunks...)), nil), model.Request{Model: "m", Tools: tools})
			if err != nil {
				t.Fatal(err)
			}
			if err := modeltest.Check(events); err != nil {
				t.Error(err)
			}
			if got := modeltest.Describe(events); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestFailures(t *testing.T) {
	tests := []struct {
		name    string
		handler http.HandlerFunc
		kind    string
		text    string
		retry   model.Retry
	}{
		{"C10: 400 keeps its text", modeltest.Status(400, `{"error":{"message":"bad tool"}}`), "other", "bad tool", model.RetryNone},
		{"C10: 500", modeltest.Status(500, `{"error":{"message":"boom"}}`), "internalServerError", "high demand", model.RetryStream},
		{"404 of Ollama", modeltest.Status(404, `{"error":"model \"x\" not found, try pulling it first"}`), "httpConnectionFailed", `model "x" not found`, model.RetryNone},
		{"429", modeltest.Status(429, `{"error":{"message":"slow down"}}`), "responseTooManyFailedAttempts", "exceeded retry limit", model.RetryNone},
		{"OpenAI: too long", modeltest.Status(400, `{"error":{"message":"This model's maximum context length is 10 tokens","code":"context_length_exceeded"}}`), "contextWindowExceeded", "context window", model.RetryNone},
		{"vLLM: too long", modeltest.Status(400, `{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000","type":"BadRequestError","code":400}`), "contextWindowExceeded", "context window", model.RetryNone},
		{"llama.cpp: too long", modeltest.Status(400, `{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}`), "contextWindowExceeded", "context window", model.RetryNone},
		{"error in a stream", modeltest.Body(sse(piece(`{"content":"x"}`), `{"error":{"message":"upstream died","code":502}}`)), "other", "stream disconnected before completion: upstream died", model.RetryStream},
		{"rate limit in a stream", modeltest.Body(sse(`{"error":{"message":"try again in 2s","code":429}}`)), "rateLimitExceeded", "try again in 2s", model.RetryStream},
		{"overload in a stream", modeltest.Body(sse(`{"error":{"message":"busy","code":"overloaded_error"}}`)), "serverOverloaded", "overloaded: busy", model.RetryStream},
		{"quota in a stream", modeltest.Body(sse(`{"error":{"message":"m","type":"insufficient_quota"}}`)), "usageLimitExceeded", "Quota", model.RetryNone},
		{"error event with a text", modeltest.Body("event: error\ndata: {\"error\":\"cuda out of memory\"}\n\n"), "other", "cuda out of memory", model.RetryNone},
		{"length", modeltest.Body(sse(piece(`{"content":"x"}`), finish("length"), "[DONE]")), "other", "Incomplete response returned, reason: max_output_tokens", model.RetryNone},
		{"length within a call", modeltest.Body(sse(piece(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{\"k"}}]}`), finish("length"), "[DONE]")), "other", "max_output_tokens", model.RetryNone},
		{"content filter", modeltest.Body(sse(finish("content_filter"), "[DONE]")), "other", "content_filter", model.RetryNone},
		{"cut", modeltest.Body(sse(piece(`{"content":"x"}`))), "other", "stream disconnected before completion: stream closed before the answer was finished", model.RetryStream},
		{"P11: cut after a call", modeltest.Body(sse(piece(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"x","arguments":"{}"}}]}`))), "other", "stream disconnected", model.RetryStream},
		{"P11: half an event", modeltest.Body("data: " + finish("stop")), "other", "stream disconnected", model.RetryStream},
		{"no stream", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html>")
		}, "other", `content type "text/html"`, model.RetryStream},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			events, err := modeltest.Collect(t.Context(), client(t, tt.handler, nil), model.Request{Model: "m"})
			got := modeltest.ErrorOf(t, err)
			if got.Kind != tt.kind || !strings.Contains(got.Message, tt.text) || got.Retry != tt.retry {
				t.Errorf("got %+v", got)
			}
			for _, e := range events {
				if d, ok := e.(model.ItemDone); ok && d.Kind == model.KindToolCall {
					t.Errorf("a call of a failed answer was announced: %v", d.Entry)
				}
			}
		})
	}
}

// A service that says how long to wait is asked again then.
func TestRetryAfter(t *testing.T) {
	var n atomic.Int32
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) == 1 {
			w.Header().Set("Retry-After", "0.01")
			modeltest.Status(429, "{}")(w, r)
			return
		}
		modeltest.Body(sse(finish("stop"), "[DONE]"))(w, r)
	}, func(c *Config) { c.RequestMaxRetries = 1 })
	if _, err := modeltest.Collect(t.Context(), c, model.Request{}); err != nil || n.Load() != 2 {
		t.Errorf("%d requests, %v", n.Load(), err)
	}
}

// The finish reason ends the answer: a service that keeps the connection open
// behind it holds nothing up for long.
func TestOpenBehindTheEnd(t *testing.T) {
	h, left := modeltest.Open(sse(piece(`{"content":"x"}`), finish("stop")))
	began := time.Now()
	events, err := modeltest.Collect(t.Context(), client(t, h, nil), model.Request{})
	if err != nil || len(events) != 4 || time.Since(began) > 20*time.Second {
		t.Errorf("%q, %v after %v", modeltest.Describe(events), err, time.Since(began))
	}
	<-left
}

func TestIdleTimeoutAndKeepAlive(t *testing.T) {
	h, left := modeltest.Open(sse(piece(`{"content":"x"}`)))
	c := client(t, h, func(c *Config) { c.StreamIdleTimeout = 100 * time.Millisecond })
	_, err := modeltest.Collect(t.Context(), c, model.Request{})
	if got := modeltest.ErrorOf(t, err); !strings.Contains(got.Message, "idle timeout") || got.Retry != model.RetryStream {
		t.Errorf("got %+v", got)
	}
	<-left
	// Comments are signs of life: twice the timeout passes between the chunks.
	c = client(t, func(w http.ResponseWriter, r *http.Request) {
		modeltest.Body("")(w, r)
		for range 20 {
			_, _ = io.WriteString(w, ": keep-alive\n\n")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(50 * time.Millisecond)
		}
		_, _ = io.WriteString(w, sse(finish("stop"), "[DONE]"))
	}, func(c *Config) { c.StreamIdleTimeout = 500 * time.Millisecond })
	if _, err := modeltest.Collect(t.Context(), c, model.Request{}); err != nil {
		t.Error(err)
	}
}

// What a service sends is bounded as a whole.
func TestBoundedAnswer(t *testing.T) {
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		modeltest.Body("data: ")(w, r)
		block := []byte(strings.Repeat("x", 1<<20) + "\ndata: ")
		for range 100 {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	}, nil)
	_, err := modeltest.Collect(t.Context(), c, model.Request{})
	if got := modeltest.ErrorOf(t, err); !strings.Contains(got.Message, "64 MiB") {
		t.Errorf("got %+v", got)
	}
}

// A key goes to the provider's host and nowhere else.
func TestRedirectToAnotherHost(t *testing.T) {
	stolen := make(chan string, 1)
	other := modeltest.Service(t, func(_ http.ResponseWriter, r *http.Request) { stolen <- r.Header.Get("Authorization") })
	c := client(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other, http.StatusTemporaryRedirect) }, func(c *Config) { c.APIKey = "secret" })
	_, err := modeltest.Collect(t.Context(), c, model.Request{})
	if got := modeltest.ErrorOf(t, err); got.HTTPStatus != 307 || !strings.Contains(got.Details, "base_url") {
		t.Errorf("got %+v", got)
	}
	select {
	case k := <-stolen:
		t.Errorf("the other host was asked, with %q", k)
	default:
	}
}

func FuzzStream(f *testing.F) {
	f.Add([]byte(sse(piece(`{"content":"x"}`), finish("stop"), usageChunk, "[DONE]")))
	f.Add([]byte(sse(piece(`{"tool_calls":[{"index":-1,"id":"a","function":{"name":"x","arguments":{"a":[]}}}]}`), "[DONE]")))
	f.Fuzz(func(t *testing.T, raw []byte) {
		res := &http.Response{Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(strings.NewReader(string(raw)))}
		var events []model.Event
		err := newDecoder(func(e model.Event) error { events = append(events, e); return nil }, nil).decode(httpstream.NewAnswer(res))
		if cerr := modeltest.Check(events); cerr != nil {
			t.Error(cerr)
		}
		completed := len(events) > 0 && errors.Is(err, nil)
		if completed {
			if _, ok := events[len(events)-1].(model.Completed); !ok {
				t.Errorf("no completion at the end of %q", modeltest.Describe(events))
			}
		}
	})
}
