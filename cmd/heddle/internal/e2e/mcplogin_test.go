package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/controlplane/mcp/oauth/oauthtest"
)

// A login at an MCP server, by a client of the app-server and by hand; its token
// reaches no command.
func TestMCPLogin(t *testing.T) {
	web := oauthtest.New()
	defer web.Close()
	m := newModel(t, map[string][]step{
		"ENV":   {run("env; ls ../home/secrets; cat ../home/secrets/*; true"), {say: "seen"}},
		"HELLO": {{say: "hello there"}},
	})
	w := newWorld(t, m)
	config := filepath.Join(w.home, "config.toml")
	w.write(config, string(readFile(t, config))+fmt.Sprintf("\n[mcp_servers.locked]\nurl = %q\n\n[mcp_servers.program]\ncommand = \"cat\"\nstartup_timeout_sec = 1\n", web.Endpoint()))
	app := w.appServer()
	defer app.close()
	status := func() (auth, problem string, tools int) {
		t.Helper()
		data, _ := app.call("mcpServerStatus/list", map[string]any{})["data"].([]any)
		entry, _ := data[0].(map[string]any)
		have, _ := entry["tools"].(map[string]any)
		return fmt.Sprint(entry["authStatus"]), fmt.Sprint(entry["toolsError"]), len(have)
	}
	if auth, problem, tools := status(); auth != "notLoggedIn" || !strings.Contains(problem, "mcpServer/oauth/login") || tools != 0 {
		t.Errorf("before: %s, %s, %d tools", auth, problem, tools)
	}
	thread := app.startThread()
	for name, text := range map[string]string{"nope": "No MCP server named 'nope' found.", "program": "OAuth login is only supported for streamable HTTP servers."} {
		app.send(map[string]any{"id": "bad-" + name, "method": "mcpServer/oauth/login", "params": map[string]any{"name": name}})
		got := app.await("refusal", 10*time.Second, func(m message) bool { return string(m.ID) == `"bad-`+name+`"` })
		if fmt.Sprint(got.Error["message"]) != text {
			t.Errorf("%s: %v", name, got.Error)
		}
	}
	login := app.call("mcpServer/oauth/login", map[string]any{"name": "locked", "threadId": thread, "timeoutSecs": 30})
	page, _ := login["authorizationUrl"].(string)
	open(t, page)
	done := app.await("end of the login", 20*time.Second, func(m message) bool { return m.Method == "mcpServer/oauthLogin/completed" })
	if done.Params["success"] != true || done.Params["name"] != "locked" || done.Params["loginId"] != login["loginId"] || done.Params["threadId"] != thread {
		t.Errorf("completed: %v", done.Params)
	}
	// The thread has the server's tools without a reload.
	app.await("the server in the thread", 20*time.Second, func(m message) bool {
		return m.Method == "mcpServer/startupStatus/updated" && m.Params["threadId"] == thread && m.Params["name"] == "locked" && m.Params["status"] == "ready"
	})
	if called := app.call("mcpServer/tool/call", map[string]any{"threadId": thread, "server": "locked", "tool": "whoami"}); !strings.Contains(fmt.Sprint(called), "logged in") {
		t.Errorf("call: %v", called)
	}
	if auth, problem, tools := status(); auth != "oAuth" || tools != 1 {
		t.Errorf("after: %s, %s, %d tools", auth, problem, tools)
	}
	app.awaitTurn(app.startTurn(thread, "ENV"), 60*time.Second)
	kept := string(readFile(t, filepath.Join(w.home, "secrets/mcp.json")))
	_, token, _ := strings.Cut(kept, `"access_token": "`)
	token, _, _ = strings.Cut(token, `"`)
	if info, err := os.Stat(filepath.Join(w.home, "secrets/mcp.json")); err != nil || info.Mode().Perm() != 0o600 || token == "" {
		t.Errorf("credentials: %v, %v", info, err)
	}
	m.mu.Lock()
	for _, r := range m.requests {
		if strings.Contains(r, token) {
			t.Errorf("a command saw the login: %s", r)
		}
	}
	m.mu.Unlock()

	byHand := func(args ...string) string {
		cmd := w.command(t.Context(), append([]string{"mcp"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("mcp %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	if out := byHand("list"); !strings.Contains(out, "logged in, 1 tools") || !strings.Contains(out, "program ") {
		t.Errorf("list: %s", out)
	}
	if out := byHand("logout", "locked"); !strings.Contains(out, "is forgotten") {
		t.Errorf("logout: %s", out)
	}
	if out := byHand("list"); !strings.Contains(out, "heddle mcp login locked") {
		t.Errorf("list after logout: %s", out)
	}
	cmd := w.command(t.Context(), "mcp", "login", "locked")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	text := ""
	for sc := bufio.NewScanner(stdout); sc.Scan(); {
		text += sc.Text() + "\n"
		if strings.HasPrefix(sc.Text(), "http") {
			open(t, sc.Text())
		}
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(text, "Logged in at locked.") {
		t.Errorf("login by hand: %v\n%s", err, text)
	}
}

// open is the person's browser.
func open(t *testing.T, page string) {
	t.Helper()
	resp, err := http.Get(page) //nolint:gosec,noctx // the page of the test's own server
	if err != nil {
		t.Error(err)
		return
	}
	_ = resp.Body.Close()
}
