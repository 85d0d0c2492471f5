package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func makeDir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}

// last is what the model was asked last.
func (m *model) last() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.requests) == 0 {
		return ""
	}
	return m.requests[len(m.requests)-1]
}

func TestExecReview(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{
		"that are not committed": {{say: `{"findings":[{"title":"a race","body":"two writers","code_location":{"absolute_file_path":"/x.go","line_range":{"start":3,"end":4}}}],"overall_explanation":"not good"}`}},
		"branch 'main'":          {{say: "since main"}},
		"commit abc":             {{say: "of abc"}},
		"look for RACES":         {{say: "no races"}},
	}))
	for _, row := range []struct {
		args []string
		want string
	}{
		{[]string{"review", "--uncommitted"}, "a race - /x.go:3-4"},
		{[]string{"review", "--base", "main"}, "since main"},
		{[]string{"review", "--commit", "abc", "--title", "the title"}, "of abc"},
		{[]string{"review", "look for RACES"}, "no races"},
	} {
		if got := w.exec(row.args...); got.code != 0 || !strings.Contains(got.stdout, row.want) {
			t.Errorf("%v: exit %d, %q\n%s", row.args, got.code, got.stdout, got.stderr)
		}
	}
}

// A copy without a prompt runs no turn, and is there to be resumed.
func TestExecForkOnly(t *testing.T) {
	m := newModel(t, plainScripts)
	w := newWorld(t, m)
	id := func(got execResult) string {
		t.Helper()
		if got.code != 0 {
			t.Fatalf("exit %d: %s", got.code, got.stderr)
		}
		return fmt.Sprint(events(t, got.stdout)[0]["thread_id"])
	}
	first := id(w.exec("--json", "say HELLO"))
	asked := len(m.requests)
	got := w.exec("--json", "fork", first)
	copied := id(got)
	if copied == first || strings.Count(got.stdout, "\n") != 1 || len(m.requests) != asked {
		t.Errorf("copied as %s, said %s, the model was asked %d times", copied, got.stdout, len(m.requests)-asked)
	}
	if again := w.exec("resume", copied, "HELLO again"); again.code != 0 || !strings.Contains(m.last(), "say HELLO") {
		t.Errorf("resumed: exit %d, %s", again.code, again.stderr)
	}
	if refused := w.exec("fork", "--ephemeral", first); refused.code != 2 || !strings.Contains(refused.stderr, "need a prompt") {
		t.Errorf("exit %d: %s", refused.code, refused.stderr)
	}
}

// The control plane of serve --listen off has no listener for clients, and
// serves those of its home.
func TestServeWithoutListener(t *testing.T) {
	w := newWorld(t, newModel(t, plainScripts))
	log := w.role("serve", "--home", w.home, "--listen", "off")
	w.awaitSocket()
	if got := w.exec("say HELLO"); got.code != 0 || got.stdout != "hello there\n" {
		t.Errorf("exit %d: %s", got.code, got.stderr)
	}
	if text := string(readFile(t, log)); strings.Contains(text, "listening on") {
		t.Errorf("it listens:\n%s", text)
	}
}

// With --approve-for-me a reviewer model decides on what needs an approval.
func TestExecApproveForMe(t *testing.T) {
	for verdict, told := range map[string]string{`{"outcome":"allow"}`: "exited with code 0", `{"outcome":"deny","rationale":"it was not asked for"}`: "it was not asked for"} {
		m := newModel(t, map[string][]step{
			"GO":                              {{call: "exec_command", args: map[string]any{"cmd": "echo ran", "sandbox_permissions": "require_escalated", "justification": "let me"}}, {say: "done"}},
			"Review this action of the agent": {{say: verdict}},
		})
		w := newWorld(t, m)
		got := w.exec("--approve-for-me", "-c", "sandbox_mode=read-only", "GO")
		if !strings.Contains(m.last(), told) || !strings.Contains(got.stderr, "workspace-write") {
			t.Errorf("%s: exit %d, the model was told %s\n%s", verdict, got.code, m.last(), got.stderr)
		}
	}
}

// --trust saves that the project, not its folder, is trusted, beside what the
// file holds; what is marked as untrusted stays so and nothing runs.
func TestExecTrust(t *testing.T) {
	m := newModel(t, plainScripts)
	w := newWorld(t, m)
	path := filepath.Join(w.home, "config.toml")
	before := string(readFile(t, path))
	inner := filepath.Join(w.workspace, "a dir.with \"dots\"")
	makeDir(t, inner)
	if got := w.exec("--trust", "--ephemeral", "-C", inner, "say HELLO"); got.code != 0 {
		t.Fatalf("exit %d: %s", got.code, got.stderr)
	}
	after := string(readFile(t, path))
	if want := fmt.Sprintf("[projects.%q]\ntrust_level = \"trusted\"\n", w.workspace); !strings.HasPrefix(after, before) || !strings.HasSuffix(after, want) {
		t.Fatalf("the config is now\n%s", after)
	}
	if got := w.exec("--trust", "say HELLO"); got.code != 0 || string(readFile(t, path)) != after {
		t.Errorf("again: exit %d: %s", got.code, got.stderr)
	}
	refused := strings.Replace(after, `"trusted"`, `"untrusted"`, 1)
	w.write(path, refused)
	asked := len(m.requests)
	for _, args := range [][]string{{"--trust", "say HELLO"}, {"--trust", "--ignore-user-config", "-c", "model_provider=scripted", "-C", inner, "say HELLO"}} {
		got := w.exec(args...)
		if got.code != 1 || !strings.Contains(got.stderr, "marked as untrusted") || string(readFile(t, path)) != refused {
			t.Errorf("%v: exit %d: %s", args, got.code, got.stderr)
		}
	}
	if len(m.requests) != asked {
		t.Error("a turn ran")
	}
	w.write(path, after)
	odd := filepath.Join(filepath.Dir(w.home), "it's \"odd\".and long")
	makeDir(t, odd)
	if got := w.exec("--trust", "--skip-git-repo-check", "-C", odd, "say HELLO"); got.code != 0 {
		t.Errorf("a name with quotes: exit %d: %s", got.code, got.stderr)
	}
	if got := w.exec("-C", odd, "say HELLO"); got.code != 0 {
		t.Errorf("the folder with quotes is not trusted: %s\n%s", got.stderr, readFile(t, path))
	}
}

// --oss asks the server of a local provider, with its own default model.
func TestExecOSS(t *testing.T) {
	m := newModel(t, plainScripts)
	w := newWorld(t, m)
	server := []string{"-c", "model_providers.ollama.base_url=" + m.URL + "/v1", "-c", "model_providers.ollama.wire_api=responses"}
	for _, row := range []struct{ args, model string }{
		{"--oss --local-provider ollama", `"model":"gpt-oss:20b"`},
		{"--oss -c oss_provider=ollama -m mine", `"model":"mine"`},
		{"--local-provider ollama", `"model":"mock-model"`}, // says nothing without --oss
	} {
		got := w.exec(append(append(strings.Fields(row.args), server...), "say HELLO")...)
		if got.code != 0 || got.stdout != "hello there\n" || !strings.Contains(m.last(), row.model) {
			t.Errorf("%s: exit %d, asked %.200s\n%s", row.args, got.code, m.last(), got.stderr)
		}
	}
	m.Close()
	got := w.exec(append([]string{"--oss", "--local-provider", "ollama"}, append(server, "say HELLO")...)...)
	if got.code != 1 || !strings.Contains(got.stderr, "ollama serve") || !strings.Contains(got.stderr, m.URL) {
		t.Errorf("without a server: exit %d, %s", got.code, got.stderr)
	}
}

// A listener with signed tokens lets in who has one, says why not to others, and
// keeps tokens out of its log.
func TestSignedBearerTokens(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	secret, address := strings.Repeat("s3cret", 6), freePort(t)
	file := filepath.Join(filepath.Dir(w.home), "secret")
	w.write(file, secret+"\n")
	server := w.role("app-server", "--listen", "ws://"+address, "--log-level", "debug", "--ws-auth", "signed-bearer-token",
		"--ws-shared-secret-file", file, "--ws-issuer", "me", "--ws-max-clock-skew-seconds", "1")
	w.awaitLog(server, address)
	sign := func(expires time.Time, issuer string) string {
		text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256"}`)) + "." +
			base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d,"iss":%q}`, expires.Unix(), issuer))
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(text))
		return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	}
	later, tokens := time.Now().Add(time.Hour), []string{}
	for _, row := range []struct {
		token string
		want  int
	}{
		{sign(later, "me"), http.StatusSwitchingProtocols}, {sign(later, "other"), http.StatusUnauthorized},
		{sign(time.Now().Add(-time.Minute), "me"), http.StatusUnauthorized}, {"x.y.z-this-is-no-token", http.StatusUnauthorized},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Authorization": "Bearer " + row.token} {
			req.Header.Set(k, v)
		}
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != row.want {
			t.Errorf("%s: %d, want %d", row.token, resp.StatusCode, row.want)
		}
		tokens = append(tokens, row.token)
	}
	for _, token := range append(tokens, secret) {
		if strings.Contains(string(readFile(t, server)), token) {
			t.Errorf("the log shows %s", token)
		}
	}
}
