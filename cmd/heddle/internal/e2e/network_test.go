package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// network appends a table of destinations to the home's config: the site's
// addresses are listed, its names are not.
func (w *world) network(port string) {
	w.t.Helper()
	name := filepath.Join(w.home, "config.toml")
	old, err := os.ReadFile(name)
	if err != nil {
		w.t.Fatal(err)
	}
	w.write(name, string(old)+fmt.Sprintf("\n[network]\nallow = [\"127.0.0.1:%s\", \"[::1]:%s\"]\nports = [%s]\n", port, port, port))
}

// site is a server on the host's loopback.
func site(t *testing.T) (port string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "the page") }))
	t.Cleanup(s.Close)
	return s.URL[strings.LastIndexByte(s.URL, ':')+1:]
}

func fetch(host, port string) string {
	return "curl -sS --noproxy '' http://" + host + ":" + port + "/"
}

// An allowed destination is reached from a turn, another one is not, and the
// host's loopback is only there through the proxy.
func TestExecProxiedNetwork(t *testing.T) {
	port := site(t)
	w := newWorld(t, newModel(t, map[string][]step{
		"NET": {run(fetch("127.0.0.1", port)), run(fetch("localhost", port)), run("curl -sS --noproxy '*' http://127.0.0.1:" + port), {say: "done"}},
	}))
	w.network(port)
	got := w.exec("--json", "NET")
	var outputs []string
	for _, ev := range events(t, got.stdout) {
		if item, ok := ev["item"].(map[string]any); ok && ev["type"] == "item.completed" && item["type"] == "command_execution" {
			outputs = append(outputs, fmt.Sprint(item["aggregated_output"]))
		}
	}
	if len(outputs) != 3 || outputs[0] != "the page" || !strings.Contains(outputs[1], "access to localhost:"+port+" is blocked") || strings.Contains(outputs[2], "page") {
		t.Errorf("outputs %q, exit %d\n%s", outputs, got.code, got.stderr)
	}
}

// A host that no list names is asked about while the command waits.
func TestAppServerAsksAboutHost(t *testing.T) {
	for _, row := range []struct{ decision, want string }{{"accept", "the page"}, {"decline", "the user declined it"}} {
		t.Run(row.decision, func(t *testing.T) {
			port := site(t)
			w := newWorld(t, newModel(t, map[string][]step{"NET": {run(fetch("localhost", port)), {say: "done"}}}))
			w.network(port)
			a := w.appServer()
			th := a.call("thread/start", map[string]any{"cwd": w.workspace, "approvalPolicy": "on-request"})
			id := th["thread"].(map[string]any)["id"]
			a.call("turn/start", map[string]any{"threadId": id, "input": []any{map[string]any{"type": "text", "text": "NET"}}})
			q := a.await("a question about the host", 20*time.Second, func(m message) bool { return m.Method == "item/commandExecution/requestApproval" })
			about, _ := q.Params["networkApprovalContext"].(map[string]any)
			if about["host"] != "localhost" || about["protocol"] != "http" || q.Params["approvalId"] == nil {
				t.Fatalf("question %v", q.Params)
			}
			a.send(map[string]any{"id": q.ID, "result": map[string]any{"decision": row.decision}})
			done := a.await("the command's end", 20*time.Second, func(m message) bool {
				item, _ := m.Params["item"].(map[string]any)
				return m.Method == "item/completed" && item["type"] == "commandExecution"
			})
			if out := fmt.Sprint(done.Params["item"].(map[string]any)["aggregatedOutput"]); !strings.Contains(out, row.want) {
				t.Errorf("output %q", out)
			}
			a.await("the turn's end", 20*time.Second, func(m message) bool { return m.Method == "turn/completed" })
		})
	}
}
