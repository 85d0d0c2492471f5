package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

// program is a server's program: what it reads and how it writes.
type program func(in *bufio.Scanner, out io.Writer) (exit int32)

// process runs a program as an executor would.
type process struct {
	in     *io.PipeWriter
	done   chan struct{}
	exit   atomic.Int32
	killed sync.Once
	kill   chan struct{}
}

func (p *process) Stdin(ctx context.Context, data []byte, _ bool) error {
	sent := make(chan error, 1)
	go func() {
		_, err := p.in.Write(data)
		sent <- err
	}()
	select {
	case err := <-sent:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *process) Terminate(context.Context) error {
	p.killed.Do(func() {
		close(p.kill)
		_ = p.in.CloseWithError(io.ErrClosedPipe)
	})
	return nil
}

func (p *process) Result(ctx context.Context) (*executorv1.ActionResult, error) {
	select {
	case <-p.done:
	case <-p.kill:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return &executorv1.ActionResult{Outcome: &executorv1.ActionResult_Process{Process: &executorv1.ProcessResult{ExitCode: p.exit.Load()}}}, nil
}

func (p *process) Settle() {}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// watcher records the states that a set tells of.
type watcher struct {
	mu     sync.Mutex
	states []string
}

func (w *watcher) status(server, state, problem string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.states = append(w.states, server+" "+state+" "+problem)
}

func (w *watcher) all() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(w.states, "\n")
}

// start starts servers by their programs; every start is counted.
func start(t *testing.T, w *watcher, programs map[string]program, change func(*Server)) (*Set, func() int) {
	t.Helper()
	var mu sync.Mutex
	starts := 0
	host := Host{Version: "1", Status: w.status, Launch: func(_ context.Context, s *Server, output func(*executorv1.OutputChunk) error) (Process, error) {
		run := programs[s.Name]
		if run == nil {
			return nil, errors.New("no such program")
		}
		mu.Lock()
		starts++
		mu.Unlock()
		r, in := io.Pipe()
		p := &process{in: in, done: make(chan struct{}), kill: make(chan struct{})}
		go func() {
			lines := bufio.NewScanner(r)
			lines.Buffer(nil, 1<<20)
			p.exit.Store(run(lines, writer(func(b []byte) (int, error) {
				select {
				case <-p.kill:
					return 0, io.ErrClosedPipe
				default:
				}
				return len(b), output(&executorv1.OutputChunk{Stream: 1, Data: b})
			})))
			close(p.done)
		}()
		return p, nil
	}}
	var servers []Server
	for name := range programs {
		s := Server{Name: name, Argv: []string{name}, StartupTimeout: 5 * time.Second, ToolTimeout: 5 * time.Second}
		if change != nil {
			change(&s)
		}
		servers = append(servers, s)
	}
	set := Start(servers, host)
	t.Cleanup(set.Close)
	return set, func() int {
		mu.Lock()
		defer mu.Unlock()
		return starts
	}
}

// serve answers the usual requests and passes tool calls on.
func serve(in *bufio.Scanner, out io.Writer, call func(id any, name string, say func(map[string]any))) int32 {
	say := func(m map[string]any) {
		m["jsonrpc"] = "2.0"
		b, _ := json.Marshal(m)
		_, _ = out.Write(append(b, '\n'))
	}
	for in.Scan() {
		var m struct {
			ID     any
			Method string
			Params struct{ Name string }
			Result map[string]any
		}
		if json.Unmarshal(in.Bytes(), &m) != nil {
			continue
		}
		switch m.Method {
		case "initialize":
			say(map[string]any{"id": m.ID, "result": map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{"tools": map[string]any{}}, "serverInfo": map[string]any{"name": "t", "version": "1"}}})
		case "tools/list":
			object := map[string]any{"type": "object"}
			say(map[string]any{"id": m.ID, "result": map[string]any{"tools": []any{
				map[string]any{"name": "a.b", "inputSchema": object, "annotations": map[string]any{"readOnlyHint": true}},
				map[string]any{"name": "a/b", "inputSchema": object},
				map[string]any{"name": "gone", "inputSchema": object},
			}}})
		case "tools/call":
			call(m.ID, m.Params.Name, say)
		case "":
			call(m.ID, "answer "+fmt.Sprint(m.Result["action"]), say)
		}
	}
	return 0
}

func echo(id any, name string, say func(map[string]any)) {
	say(map[string]any{"id": id, "result": map[string]any{"content": []any{map[string]any{"type": "text", "text": "did " + name}}}})
}

func await(t *testing.T, set *Set) {
	t.Helper()
	set.Await(t.Context(), 10*time.Second)
}

func TestToolsOfAServer(t *testing.T) {
	w := &watcher{}
	set, _ := start(t, w, map[string]program{"my server": func(in *bufio.Scanner, out io.Writer) int32 {
		_, _ = io.WriteString(out, "a notice that is no message\n{broken\n")
		return serve(in, out, echo)
	}}, func(s *Server) { s.Disabled = []string{"gone"} })
	await(t, set)
	if got, want := w.all(), "my server starting \nmy server ready "; got != want {
		t.Fatalf("states %q, want %q", got, want)
	}
	tools := set.Tools()
	if len(tools) != 2 || tools[0].Alias != "a_b" || tools[1].Alias != "a_b_2" || tools[0].Namespace != "mcp__my_server" {
		t.Fatalf("tools %+v", tools)
	}
	if tools[0].Asks || !tools[1].Asks {
		t.Errorf("asks %v and %v, want only the tool that is not marked as reading", tools[0].Asks, tools[1].Asks)
	}
	if set.Find("mcp__my_server", "a_b_2").Name != "a/b" {
		t.Error("the second tool is not found by its alias")
	}
	res, err := set.Call(t.Context(), "my server", &Call{Tool: "a/b"})
	if err != nil || !strings.Contains(res.String(), "did a/b") {
		t.Fatalf("got %v, %v", res, err)
	}
	if _, err := set.Call(t.Context(), "my server", &Call{Tool: "gone"}); err == nil {
		t.Error("a disabled tool was called")
	}
	if _, err := set.Call(t.Context(), "other", &Call{Tool: "x"}); err == nil || !strings.Contains(err.Error(), "unknown MCP server 'other'") {
		t.Errorf("got %v", err)
	}
}

func TestAServerThatDoesNotStart(t *testing.T) {
	for name, run := range map[string]program{
		"ends":  func(*bufio.Scanner, io.Writer) int32 { return 3 },
		"hangs": func(in *bufio.Scanner, _ io.Writer) int32 { return silent(in) },
		"floods": func(_ *bufio.Scanner, out io.Writer) int32 {
			for chunk := []byte(strings.Repeat("x", 1<<16)); ; {
				if _, err := out.Write(chunk); err != nil {
					return 1
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := &watcher{}
			set, _ := start(t, w, map[string]program{"s": run}, func(s *Server) { s.StartupTimeout = 300 * time.Millisecond })
			await(t, set)
			if got := w.all(); !strings.HasPrefix(got, "s starting \ns failed MCP server `s` could not be started: ") {
				t.Errorf("states %q", got)
			}
			if list := set.Describe(t.Context(), "", false); len(list) != 1 || list[0].GetRuntimeStatus() != "failed" || list[0].GetError() == "" {
				t.Errorf("described as %v", list)
			}
		})
	}
}

// silent reads until the end and says nothing.
func silent(in *bufio.Scanner) int32 {
	for in.Scan() {
		continue
	}
	return 0
}

func TestACallThatIsNotAnswered(t *testing.T) {
	set, _ := start(t, &watcher{}, map[string]program{"s": func(in *bufio.Scanner, out io.Writer) int32 {
		return serve(in, out, func(id any, name string, say func(map[string]any)) {
			if name == "a/b" {
				echo(id, name, say)
			}
		})
	}}, func(s *Server) { s.ToolTimeout = 200 * time.Millisecond })
	await(t, set)
	began := time.Now()
	_, err := set.Call(t.Context(), "s", &Call{Tool: "a.b"})
	if err == nil || !strings.Contains(err.Error(), "did not answer within 200ms") || time.Since(began) > 2*time.Second {
		t.Fatalf("got %v after %s", err, time.Since(began))
	}
	if _, err := set.Call(t.Context(), "s", &Call{Tool: "a/b"}); err != nil {
		t.Errorf("the next call: %v", err)
	}
}

func TestAServerThatDiedIsStartedAgain(t *testing.T) {
	set, starts := start(t, &watcher{}, map[string]program{"s": func(in *bufio.Scanner, out io.Writer) int32 {
		dead := false
		for !dead && in.Scan() {
			one := bufio.NewScanner(strings.NewReader(in.Text()))
			serve(one, out, func(id any, name string, say func(map[string]any)) {
				dead = name == "a.b"
				if !dead {
					echo(id, name, say)
				}
			})
		}
		return 7
	}}, nil)
	await(t, set)
	if _, err := set.Call(t.Context(), "s", &Call{Tool: "a.b"}); err == nil || !strings.Contains(err.Error(), "exit code 7") {
		t.Fatalf("got %v, want the exit code", err)
	}
	if res, err := set.Call(t.Context(), "s", &Call{Tool: "a/b"}); err != nil || !strings.Contains(res.String(), "did a/b") {
		t.Fatalf("after a restart: %v, %v", res, err)
	}
	if n := starts(); n != 2 {
		t.Errorf("started %d times, want 2", n)
	}
}

func TestQuestionsOfAServer(t *testing.T) {
	var call any
	set, _ := start(t, &watcher{}, map[string]program{"s": func(in *bufio.Scanner, out io.Writer) int32 {
		return serve(in, out, func(id any, name string, say func(map[string]any)) {
			if answer, ok := strings.CutPrefix(name, "answer "); ok {
				echo(call, answer, say)
				return
			}
			call = id
			say(map[string]any{"id": "q", "method": "elicitation/create", "params": map[string]any{"message": "Name?", "requestedSchema": map[string]any{"type": "object", "properties": map[string]any{"n": map[string]any{"type": "string"}}}}})
		})
	}}, func(s *Server) { s.ToolTimeout = 300 * time.Millisecond })
	await(t, set)
	res, err := set.Call(t.Context(), "s", &Call{Tool: "a.b", Ask: func(_ context.Context, q *Question) (*Answer, error) {
		if q.Server != "s" || q.Message != "Name?" || q.Mode != "form" {
			t.Errorf("asked %+v", q)
		}
		time.Sleep(500 * time.Millisecond) // the person takes longer than a tool may
		return &Answer{Action: "accept", Content: map[string]any{"n": "Bob"}}, nil
	}})
	if err != nil || !strings.Contains(res.String(), "did accept") {
		t.Errorf("got %v, %v", res, err)
	}
	if res, err = set.Call(t.Context(), "s", &Call{Tool: "a.b"}); err != nil || !strings.Contains(res.String(), "did decline") {
		t.Errorf("with nobody to ask: %v, %v", res, err)
	}
}

func TestServerOverHTTP(t *testing.T) {
	server := sdk.NewServer(&sdk.Implementation{Name: "h", Version: "1"}, nil)
	sdk.AddTool(server, &sdk.Tool{Name: "hi"}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: "hello"}}}, nil, nil
	})
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	defer web.Close()
	w := &watcher{}
	good := Server{Name: "good", URL: web.URL, Headers: map[string]string{"Authorization": "Bearer secret"}, StartupTimeout: 5 * time.Second, ToolTimeout: 5 * time.Second}
	bad := Server{Name: "bad", URL: web.URL, StartupTimeout: 5 * time.Second, ToolTimeout: 5 * time.Second}
	set := Start([]Server{bad, good}, Host{Status: w.status})
	defer set.Close()
	await(t, set)
	res, err := set.Call(t.Context(), "good", &Call{Tool: "hi"})
	if err != nil || !strings.Contains(res.String(), "hello") {
		t.Errorf("got %v, %v", res, err)
	}
	if !strings.Contains(w.all(), "bad failed") {
		t.Errorf("states %q, want the server without a key to fail", w.all())
	}
}

func TestResultThatCannotBeRecorded(t *testing.T) {
	var nested any = "x"
	for range maxDepth + 1 {
		nested = []any{nested}
	}
	for name, res := range map[string]*sdk.CallToolResult{
		"deep": {StructuredContent: nested, Content: []sdk.Content{&sdk.TextContent{Text: "short"}}},
		"long": {Content: []sdk.Content{&sdk.TextContent{Text: strings.Repeat("y", maxResult)}}, IsError: true},
	} {
		out := resultOf(res)
		text := out.GetFields()["content"].GetListValue().GetValues()[0].GetStructValue().GetFields()["text"].GetStringValue()
		if !strings.HasPrefix(text, "(The result was left out: ") || len(text) > 2*maxText || out.GetFields()["isError"].GetBoolValue() != res.IsError {
			t.Errorf("%s: %.80q", name, text)
		}
	}
}
