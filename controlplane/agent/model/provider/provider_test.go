package provider

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/config"
)

func TestOpenAI(t *testing.T) {
	var header http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		header = r.Header
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\"}}\n\n")
	}))
	defer srv.Close()
	env := map[string]string{"MY_KEY": " secret \n", "MY_ORG": "org"}
	getenv := func(k string) string { return env[k] }
	p := config.Provider{ID: "mine", Name: "Mine", BaseURL: srv.URL, EnvKey: "MY_KEY", WireAPI: config.WireResponses, HTTPHeaders: map[string]string{"X-A": "1"}, EnvHTTPHeaders: map[string]string{"X-Org": "MY_ORG", "X-None": "UNSET"}, Source: "/h/config.toml"}
	s := New(Config{})
	c, err := s.Client(p, getenv)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Stream(t.Context(), model.Request{}, func(model.Event) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]string{"Authorization": "Bearer secret", "X-A": "1", "X-Org": "org", "X-None": ""} {
		if got := header.Get(k); got != want {
			t.Errorf("%s is %q", k, got)
		}
	}
	if again, _ := s.Client(p, getenv); again != c {
		t.Error("a second client was opened")
	}
	env["MY_KEY"] = "other"
	if other, _ := s.Client(p, getenv); other == c {
		t.Error("another key got the same client")
	}

	delete(env, "MY_KEY")
	_, err = s.Client(p, getenv)
	for _, want := range []string{"`MY_KEY`", "Mine", "/h/config.toml", "model_provider"} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("missing key: %v lacks %s", err, want)
		}
	}
	p.EnvKeyInstructions = "get one at example.com"
	if _, err := s.Client(p, nil); err == nil || !strings.Contains(err.Error(), "example.com") {
		t.Errorf("got %v", err)
	}
	p.EnvKey = ""
	if _, err := s.Client(p, nil); err != nil {
		t.Errorf("a provider without env_key: %v", err)
	}
	p.BaseURL = "nonsense"
	if _, err := s.Client(p, nil); err == nil || !strings.Contains(err.Error(), "/h/config.toml") {
		t.Errorf("got %v", err)
	}
	p.WireAPI = "graphql"
	if _, err := s.Client(p, nil); err == nil {
		t.Error("an unknown wire format was accepted")
	}
}

func TestScripted(t *testing.T) {
	s := New(Config{})
	demo, err := s.Client(config.Provider{ID: "scripted", WireAPI: config.WireScripted}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := s.Client(config.Provider{ID: "scripted", WireAPI: config.WireScripted}, nil); again != demo {
		t.Error("the position in the demo is not kept")
	}
	path := filepath.Join(t.TempDir(), "s.yaml")
	p := config.Provider{ID: "mine", WireAPI: config.WireScripted, Script: path}
	if _, err := s.Client(p, nil); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("missing script: %v", err)
	}
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("replies:\n  - steps: [{say: a}]\n")
	first, err := s.Client(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if same, _ := s.Client(p, nil); same != first {
		t.Error("an unchanged script was opened again")
	}
	write("replies:\n  - steps: [{say: b}]\n")
	if changed, _ := s.Client(p, nil); changed == first {
		t.Error("a changed script was not read again")
	}
	write("replies: 7")
	if _, err := s.Client(p, nil); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("broken script: %v", err)
	}
}

func TestModels(t *testing.T) {
	var asked []string
	status := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+" "+r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"))
		w.WriteHeader(status)
		fmt.Fprint(w, `{"object":"list","data":[{"id":"a"},{"id":""},{"id":"b"}]}`)
	}))
	defer srv.Close()
	getenv := func(string) string { return "k" }
	s := New(Config{})
	chat := config.Provider{ID: "c", Name: "c", BaseURL: srv.URL + "/v1", EnvKey: "K", WireAPI: config.WireChat}
	for range 2 {
		if names, err := s.Models(t.Context(), chat, getenv); err != nil || fmt.Sprint(names) != "[a b]" {
			t.Errorf("%v, %v", names, err)
		}
	}
	claude := config.Provider{ID: "d", Name: "d", BaseURL: srv.URL, EnvKey: "K", WireAPI: config.WireAnthropic}
	if names, err := s.Models(t.Context(), claude, getenv); err != nil || len(names) != 2 {
		t.Errorf("%v, %v", names, err)
	}
	status = http.StatusNotFound
	other := chat
	other.Name = "other"
	for range 2 {
		if names, err := s.Models(t.Context(), other, getenv); err == nil || names != nil {
			t.Errorf("%v, %v", names, err)
		}
	}
	if got := fmt.Sprint(asked); got != "[/v1/models Bearer k /v1/models k /v1/models Bearer k]" {
		t.Errorf("asked %s", got)
	}
	if _, err := s.Models(t.Context(), chat, nil); err == nil || !strings.Contains(err.Error(), "`K`") {
		t.Errorf("without a key: %v", err)
	}
}
