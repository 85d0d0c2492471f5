package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCaseS5: a process that ignores nothing and one that ignores everything are gone before the end of the
// interrupted turn is told.
func TestCaseS5(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{
		"PLAIN":    {runFor("echo $$ >pid; exec sleep 600", 60000)},
		"STUBBORN": {runFor("trap '' INT TERM HUP; (trap '' INT TERM HUP; sleep 601) & echo $! >pid; while :; do sleep 1; done", 60000)},
	}))
	app := w.appServer()
	for _, word := range []string{"PLAIN", "STUBBORN"} {
		thread := app.startThread()
		turn := app.startTurn(thread, word)
		pid := filepath.Join(w.workspace, "pid")
		w.eventually("the command", 20*time.Second, func() bool { return len(readable(pid)) > 0 })
		asked := time.Now()
		app.call("turn/interrupt", map[string]any{"threadId": thread, "turnId": turn})
		if status := app.awaitTurn(turn, 20*time.Second); status != "interrupted" {
			t.Errorf("%s: turn is %s", word, status)
		}
		for _, p := range w.processes() {
			if strings.Contains(p.cmdline, "sleep 60") {
				t.Errorf("%s: %s is there after the turn's end, which took %v", word, p.cmdline, time.Since(asked))
			}
		}
		if err := os.Remove(pid); err != nil {
			t.Error(err)
		}
	}
	app.close()
}

func readable(path string) []byte {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return b
}

// TestCaseS14: an approved escalation runs outside of the sandbox once, also where rules deny reading, and the next
// one is asked about again.
func TestCaseS14(t *testing.T) {
	read := "cat secret.txt; echo; id -u"
	escalate := step{call: "exec_command", args: map[string]any{"cmd": read, "sandbox_permissions": "require_escalated", "justification": "May I read it?"}}
	other := step{call: "exec_command", args: map[string]any{"cmd": read + "; true", "sandbox_permissions": "require_escalated", "justification": "May I read it?"}}
	w := newWorld(t, newModel(t, map[string][]step{
		"CASE": {run(read), escalate, run(read), escalate, other, {say: "done"}},
	}))
	name := filepath.Join(w.home, "config.toml")
	w.write(name, strings.Replace(string(readable(name)), `approval_policy = "never"`, `approval_policy = "on-request"`, 1)+"\n[sandbox]\ndeny_read = [\"secret.txt\"]\n")
	w.write(filepath.Join(w.workspace, "secret.txt"), "TOPSECRET")
	app := w.appServer()
	thread, _ := app.call("thread/start", map[string]any{"cwd": w.workspace, "approvalPolicy": "on-request"})["thread"].(map[string]any)
	turn := app.startTurn(fmt.Sprint(thread["id"]), "CASE")
	asked := map[string]bool{}
	for i, decision := range []string{"accept", "decline", "decline"} {
		q := app.await("a question", 30*time.Second, func(m message) bool {
			return m.Method == "item/commandExecution/requestApproval" && !asked[fmt.Sprint(m.Params["itemId"])]
		})
		asked[fmt.Sprint(q.Params["itemId"])] = true
		if text := fmt.Sprint(q.Params["command"]); strings.HasSuffix(text, "true'") != (i == 2) {
			t.Errorf("question %d is about %s", i, text)
		}
		app.send(map[string]any{"id": q.ID, "result": map[string]any{"decision": decision}})
	}
	app.awaitTurn(turn, 30*time.Second)
	var got []string
	for _, item := range app.completed("commandExecution") {
		secret := "hidden"
		if strings.Contains(fmt.Sprint(item["aggregatedOutput"]), "TOPSECRET") {
			secret = "read"
		}
		got = append(got, fmt.Sprint(item["status"], " ", secret))
	}
	if s := strings.Join(got, ", "); s != "completed hidden, completed read, completed hidden, declined hidden, declined hidden" {
		t.Errorf("commands: %s", s)
	}
	app.close()
	if err := os.Remove(filepath.Join(w.workspace, "secret.txt")); err != nil {
		t.Error(err)
	}
}

// mcpServer speaks as much of the protocol as a start needs.
const mcpServer = `while read -r line; do
id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
case "$line" in
*'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s17","version":"1"}}}' ;;
*'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":[]}}' ;;
*) [ -z "$id" ] || echo '{"jsonrpc":"2.0","id":'$id',"result":{}}' ;;
esac
done
`

// TestCaseS17: fifty threads with a stdio server each leave no descriptor and no child when they are closed.
func TestCaseS17(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	script := filepath.Join(w.home, "server.sh")
	w.write(script, mcpServer)
	name := filepath.Join(w.home, "config.toml")
	w.write(name, string(readable(name))+fmt.Sprintf("\n[mcp_servers.s17]\ncommand = \"/bin/bash\"\nargs = [%q]\n", script))
	app := w.appServer()
	servers := func() int {
		n := 0
		for _, p := range w.processes() {
			// Where there are no cgroups each has a process that ends what it started.
			if strings.Contains(p.cmdline, script) && !strings.HasPrefix(p.cmdline, "heddle-shim") {
				n++
			}
		}
		return n
	}
	open := func(n int) (threads []string) {
		for range n {
			threads = append(threads, app.startThread())
		}
		w.eventually(fmt.Sprint(n, " servers"), 60*time.Second, func() bool { return servers() == n })
		return threads
	}
	end := func(threads []string) {
		for _, id := range threads {
			app.call("thread/delete", map[string]any{"threadId": id})
		}
		w.eventually("no server", 60*time.Second, func() bool { return servers() == 0 })
	}
	end(open(2)) // what is kept for the next thread is there by now
	settled := func() (descriptors, processes int) {
		for _, p := range w.processes() {
			l, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid))
			descriptors, processes = descriptors+len(l), processes+1
		}
		return descriptors, processes
	}
	fds, children := settled()
	end(open(50))
	var nowFDs, nowChildren int
	w.eventually("the start count", 30*time.Second, func() bool {
		nowFDs, nowChildren = settled()
		return nowFDs <= fds && nowChildren <= children
	})
	t.Logf("%d descriptors of %d processes, %d of %d after", fds, children, nowFDs, nowChildren)
	app.close()
}
