package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What a turn shows beside messages: reasoning in parts and as text, one diff of
// the whole turn, input to a terminal, a look at an image, and usage with cached
// tokens.
func TestItemsAndEvents(t *testing.T) {
	patch := func(text string) string {
		b, _ := json.Marshal(map[string]string{"input": text})
		return string(b)
	}
	steps := []struct{ name, args string }{
		{"apply_patch", patch("*** Begin Patch\n*** Add File: a.txt\n+one\n*** Update File: b.txt\n*** Move to: c.txt\n@@\n-old\n+new\n*** Delete File: d.txt\n*** End Patch")},
		{"exec_command", `{"cmd":"echo outside > a.txt","login":false}`},
		{"apply_patch", patch("*** Begin Patch\n*** Update File: a.txt\n@@\n-outside\n+outside\n+two\n*** End Patch")},
		{"exec_command", `{"cmd":"read x; echo got $x","tty":true,"yield_time_ms":250,"login":false}`},
		{"write_stdin", `{"session_id":SESSION,"chars":"hello\n"}`},
		{"view_image", `{"path":"dot.png"}`},
	}
	m := newModel(t, nil)
	m.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		n := strings.Count(string(body), `"function_call_output"`)
		var events []string
		if n == 0 {
			events = append(events,
				`{"type":"response.output_item.added","item":{"type":"reasoning","id":"rs_1","summary":[]}}`,
				`{"type":"response.reasoning_summary_part.added","item_id":"rs_1","summary_index":0}`,
				`{"type":"response.reasoning_summary_text.delta","item_id":"rs_1","summary_index":0,"delta":"in short"}`,
				`{"type":"response.reasoning_text.delta","item_id":"rs_1","content_index":0,"delta":"at length"}`,
				`{"type":"response.output_item.done","item":{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"in short"}],"content":[{"type":"reasoning_text","text":"at length"}],"encrypted_content":"ENC"}}`)
		}
		if n < len(steps) {
			args := steps[n].args
			if _, rest, ok := strings.Cut(string(body), "session ID "); ok {
				id, _, _ := strings.Cut(rest, `\n`)
				args = strings.Replace(args, "SESSION", id, 1)
			}
			events = append(events, fmt.Sprintf(`{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","id":"fc_%d","call_id":"c%d","name":%q,"arguments":%q}}`, n, n, steps[n].name, args))
		} else {
			events = append(events, `{"type":"response.output_item.done","output_index":1,"item":{"type":"message","id":"m","role":"assistant","content":[{"type":"output_text","text":"done"}]}}`)
		}
		events = append(events, `{"type":"response.completed","response":{"id":"r","usage":{"input_tokens":100,"input_tokens_details":{"cached_tokens":60},"output_tokens":5,"output_tokens_details":{"reasoning_tokens":3},"total_tokens":105}}}`)
		w.Header().Set("Content-Type", "text/event-stream")
		for _, e := range events {
			var kind struct{ Type string }
			_ = json.Unmarshal([]byte(e), &kind)
			fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind.Type, e)
		}
	})
	w := newWorld(t, m)
	w.write(filepath.Join(w.workspace, "b.txt"), "old\n")
	w.write(filepath.Join(w.workspace, "d.txt"), "gone\n")
	var dot bytes.Buffer
	if err := png.Encode(&dot, image.NewGray(image.Rect(0, 0, 1, 1))); err != nil {
		t.Fatal(err)
	}
	w.write(filepath.Join(w.workspace, "dot.png"), dot.String())
	a := w.appServer()
	th := a.call("thread/start", map[string]any{"cwd": w.workspace, "approvalPolicy": "never", "sandbox": "workspace-write", "model": "local-model"})
	turn := a.startTurn(th["thread"].(map[string]any)["id"].(string), "GO")
	sees := func(method string, want ...string) {
		t.Helper()
		a.await(method+" "+strings.Join(want, " "), 30*time.Second, func(m message) bool {
			if m.Method != method {
				return false
			}
			b, _ := json.Marshal(m.Params)
			for _, s := range want {
				if !strings.Contains(string(b), s) {
					return false
				}
			}
			return true
		})
	}
	sees("item/reasoning/summaryPartAdded", `"summaryIndex":0`)
	sees("item/reasoning/summaryTextDelta", `"in short"`)
	sees("item/reasoning/textDelta", `"at length"`)
	sees("turn/diff/updated", "a/a.txt", "new file mode", `+one`, `a/b.txt`, `b/c.txt`, `+new`, `a/d.txt`, "deleted file mode", "-gone")
	// The second patch went onto what the command wrote.
	sees("turn/diff/updated", `+outside\n+two`, "b/c.txt", "-gone")
	sees("item/commandExecution/terminalInteraction", `"stdin":"hello\n"`)
	sees("thread/tokenUsage/updated", `"cachedInputTokens":60`, `"reasoningOutputTokens":3`)
	if got := a.awaitTurn(turn, 60*time.Second); got != "completed" {
		t.Fatalf("turn %s", got)
	}
	for kind, want := range map[string]string{
		"reasoning": "in short", "imageView": "dot.png", "fileChange": "c.txt", "agentMessage": "done",
	} {
		if items := a.completed(kind); len(items) == 0 || !strings.Contains(fmt.Sprint(items), want) {
			t.Errorf("%s items %v", kind, items)
		}
	}
	if cmds := a.completed("commandExecution"); !strings.Contains(fmt.Sprint(cmds), "got hello") || !strings.Contains(fmt.Sprint(cmds), "commandActions") {
		t.Errorf("commands %v", cmds)
	}
}
