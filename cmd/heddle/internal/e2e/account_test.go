package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const testKey = "sk-e2e-0123456789"

// keys notes with which keys a model is asked.
func (m *model) keys() func() []string {
	var mu sync.Mutex
	var seen []string
	next := m.Config.Handler
	m.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = append(seen, r.Header.Get("Authorization"))
		mu.Unlock()
		next.ServeHTTP(w, r)
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string{}, seen...)
	}
}

// The key of a login goes to the provider that takes it, and nowhere else.
func TestLoginWithAKey(t *testing.T) {
	m := newModel(t, map[string][]step{})
	keys := m.keys()
	w := newWorld(t, m)
	m.scripts["look"] = []step{run("env; cat '" + filepath.Join(w.home, "account/auth.json") + "' || echo nothing to see"), {say: "done"}}
	w.write(filepath.Join(w.home, "config.toml"), string(readFile(t, filepath.Join(w.home, "config.toml")))+"requires_openai_auth = true\n")
	app := w.appServer()
	defer app.close()

	if got := app.call("account/read", map[string]any{}); got["account"] != nil || got["requiresOpenaiAuth"] != true {
		t.Errorf("before the login: %v", got)
	}
	thread := app.startThread()
	if got := app.awaitTurn(app.startTurn(thread, "look"), time.Minute); got != "failed" {
		t.Errorf("a turn without a key: %s", got)
	}
	app.refused("account/login/start", map[string]any{"type": "apiKey", "apiKey": " "})
	app.call("account/login/start", map[string]any{"type": "apiKey", "apiKey": testKey})
	app.await("word of the login", 10*time.Second, func(m message) bool {
		return m.Method == "account/login/completed" && m.Params["success"] == true
	})
	app.await("word of the account", 10*time.Second, func(m message) bool {
		return m.Method == "account/updated" && m.Params["authMode"] == "apikey"
	})
	if info, err := os.Stat(filepath.Join(w.home, "account/auth.json")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info, err)
	}
	account, _ := app.call("account/read", map[string]any{})["account"].(map[string]any)
	if account["type"] != "apiKey" {
		t.Errorf("after the login: %v", account)
	}
	if got := app.awaitTurn(app.startTurn(thread, "look"), time.Minute); got != "completed" {
		t.Errorf("a turn with the key: %s", got)
	}
	if got := keys(); len(got) != 2 || got[0] != "Bearer "+testKey || got[1] != got[0] {
		t.Errorf("asked with %q", got)
	}
	if got := w.run("login", "status"); got.code != 0 || strings.Contains(got.stdout+got.stderr, testKey) {
		t.Errorf("status: %+v", got)
	}

	commands := app.completed("commandExecution")
	if len(commands) != 1 || !strings.Contains(fmt.Sprint(commands[0]["aggregatedOutput"]), "nothing to see") {
		t.Errorf("the command: %v", commands)
	}

	app.call("account/logout", nil)
	app.await("word of the logout", 10*time.Second, func(m message) bool {
		return m.Method == "account/updated" && m.Params["authMode"] == nil
	})
	if got := w.run("login", "status"); got.code != 1 {
		t.Errorf("status after the logout: %+v", got)
	}
	app.mu.Lock()
	defer app.mu.Unlock()
	for _, m := range app.messages {
		if data, err := json.Marshal(m); err != nil || strings.Contains(string(data), testKey) {
			t.Errorf("the key is in a message: %v", m)
		}
	}
}

func TestLoginCommand(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	if got := w.run("login"); got.code != 2 {
		t.Errorf("without a flag: %+v", got)
	}
	cmd := w.command(t.Context(), "login", "--with-api-key")
	cmd.Stdin = strings.NewReader(testKey + "\n")
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), testKey) {
		t.Errorf("%v: %s", err, out)
	}
	if got := w.run("login", "status"); got.code != 0 {
		t.Errorf("status: %+v", got)
	}
	for _, want := range []string{"logged out\n", "not logged in\n"} {
		if got := w.run("logout"); got.code != 0 || got.stderr != want {
			t.Errorf("logout: %+v", got)
		}
	}
}

// A client makes a provider, changes it and makes it the default.
func TestProvidersOfTheConfig(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	app := w.appServer()
	defer app.close()
	write := func(settings map[string]any) map[string]any {
		settings["type"] = "customGateway"
		return map[string]any{"settings": settings}
	}
	provider := func(settings map[string]any) map[string]any {
		t.Helper()
		p, _ := app.call("modelProvider/config/write", write(settings))["provider"].(map[string]any)
		return p
	}
	made := provider(map[string]any{"name": "My Gate!", "baseUrl": "http://127.0.0.1:9/v1", "envKey": "MY_KEY"})
	if made["id"] != "my-gate" || made["canEdit"] != true || made["baseUrl"] != "http://127.0.0.1:9/v1" {
		t.Errorf("made: %v", made)
	}
	if again := provider(map[string]any{"name": "My Gate!", "baseUrl": "http://127.0.0.1:9/v1"}); again["id"] != "my-gate-2" {
		t.Errorf("made again: %v", again)
	}
	changed := provider(map[string]any{"providerId": "my-gate", "envKey": nil})
	settings, _ := changed["settings"].(map[string]any)
	if auth, _ := settings["auth"].(map[string]any); changed["name"] != "My Gate!" || auth["mode"] != "none" {
		t.Errorf("changed: %v", changed)
	}
	for want, bad := range map[string]map[string]any{
		"-32600 A provider needs a name.":                           {"baseUrl": "http://h"},
		"-32600 A new provider needs a baseUrl.":                    {"name": "x"},
		"-32600 A provider that is built in cannot be changed.":     {"providerId": "openai", "name": "x"},
		`-32600 There is no provider "no".`:                         {"providerId": "no", "name": "x"},
		"-32600 envKey is not the name of an environment variable.": {"name": "x", "baseUrl": "http://h", "envKey": "a b"},
	} {
		if got := app.refused("modelProvider/config/write", write(bad)); got != want {
			t.Errorf("%v:\n got %s\nwant %s", bad, got, want)
		}
	}
	app.refused("modelProvider/default/set", map[string]any{"providerId": "no"})
	app.call("modelProvider/default/set", map[string]any{"providerId": "my-gate"})
	all := app.call("modelProvider/list", map[string]any{})
	if all["defaultProviderId"] != "my-gate" || all["canChangeDefault"] != true || len(all["data"].([]any)) < 4 {
		t.Errorf("all: %v", all)
	}
	if got := app.call("thread/start", map[string]any{"cwd": w.workspace}); got["modelProvider"] != "my-gate" {
		t.Errorf("the next thread has %v", got["modelProvider"])
	}
	if got := app.call("modelProvider/capabilities/read", map[string]any{}); got["webSearch"] != true || got["imageGeneration"] != false {
		t.Errorf("capabilities: %v", got)
	}
}
