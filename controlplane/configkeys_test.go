package controlplane

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// configure writes the home's config.
func (r *rig) configure(text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.home, "config.toml"), []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// The model is told what a file of instructions says, as it was at the thread's
// start; without the file no thread is started.
func TestModelInstructionsFile(t *testing.T) {
	r := newRig(t)
	r.configure("model_instructions_file = \"base.md\"\n")
	ctx, _ := r.attach("s0", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	_, err := r.threads.StartThread(ctx, &heddlev1.StartThreadRequest{Settings: workspaceWrite("never")})
	if file := filepath.Join(r.home, "base.md"); !errdefs.Is(err, errdefs.InvalidConfig) || !strings.Contains(err.Error(), "model_instructions_file "+file) {
		t.Fatalf("started without %s: %v", file, err)
	}
	if err := os.WriteFile(filepath.Join(r.home, "base.md"), []byte("FROM-THE-FILE\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.model.script(speak("m1", "ok"), speak("m2", "ok"))
	ctx, th := r.thread(workspaceWrite("never"))
	if err := os.WriteFile(filepath.Join(r.home, "base.md"), []byte("CHANGED\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := r.follow(th.GetId(), 1)
	for range 2 {
		r.startTurn(ctx, th.GetId(), "go")
		f.turnEnd()
		wantShown(t, r.last(), []string{"FROM-THE-FILE"}, "CHANGED")
	}
}

// Reviews have the model that the config names for them, other turns the
// thread's.
func TestReviewModel(t *testing.T) {
	r := newRig(t)
	r.configure("review_model = \"critic\"\n")
	r.model.script(speak("m1", "ok"), speak("m2", `{"findings":[],"overall_explanation":"All fine"}`), speak("m3", "ok"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	f.turnEnd()
	_, err := r.turns.StartReview(ctx, &heddlev1.StartReviewRequest{ThreadId: th.GetId(), Target: &heddlev1.StartReviewRequest_Custom{Custom: "look"}})
	if err != nil {
		t.Fatal(err)
	}
	f.turnEnd()
	r.startTurn(ctx, th.GetId(), "more")
	f.turnEnd()
	var models []string
	for _, req := range r.model.asked() {
		models = append(models, req.Model)
	}
	own := th.GetSettings().GetModel()
	if want := []string{own, "critic", own}; !slices.Equal(models, want) {
		t.Errorf("asked %v, want %v", models, want)
	}
}

// The executor is asked for the instruction files that the config names, at the
// thread's start and for a turn.
func TestProjectDocKeys(t *testing.T) {
	r := newRig(t)
	r.configure("project_doc_fallback_filenames = [\"TEAM.md\"]\nproject_root_markers = [\"go.work\"]\nproject_doc_max_bytes = 99\n")
	r.model.script(speak("m1", "ok"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	f.turnEnd()
	asked := r.exec.did(func(a *executorv1.Action) bool { return a.GetInspect().GetInstructionNames() != nil })
	right := r.exec.did(func(a *executorv1.Action) bool {
		in := a.GetInspect()
		return slices.Equal(in.GetInstructionNames(), []string{"AGENTS.override.md", "AGENTS.md", "TEAM.md"}) && slices.Equal(in.GetRootMarkers(), []string{"go.work"}) && in.GetMaxBytes() == 99
	})
	if asked == 0 || right != asked {
		t.Errorf("%d of %d requests are right", right, asked)
	}
}

// web_search goes before tools.web_search. What is stored is enough where
// commands are contained.
func TestWebSearch(t *testing.T) {
	full := workspaceWrite("never")
	full.Sandbox = &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS}
	r := newRig(t)
	ctx, _ := r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	for _, tt := range []struct {
		text string
		set  *heddlev1.ThreadSettings
		want []model.Search
	}{
		{"", full, nil},
		{"tools.web_search = true", workspaceWrite("never"), []model.Search{model.SearchCached}},
		{"tools.web_search = true", full, []model.Search{model.SearchLive}},
		{"web_search = \"disabled\"\ntools.web_search = true", full, nil},
		{"web_search = \"cached\"", workspaceWrite("never"), []model.Search{model.SearchCached}},
		{"web_search = \"live\"", workspaceWrite("never"), []model.Search{model.SearchLive}},
		{"web_search = \"indexed\"\ntools.web_search = false", full, []model.Search{model.SearchIndexed}},
		{"web_search = \"live\"\nmodel_provider = \"c\"\nmodel_providers.c = { name = \"c\", base_url = \"http://127.0.0.1:1\", wire_api = \"chat\" }", full, nil},
	} {
		r.configure(tt.text)
		resp, err := r.threads.StartThread(ctx, &heddlev1.StartThreadRequest{Settings: tt.set})
		if err != nil {
			t.Fatal(err)
		}
		r.model.script(speak("m1", "ok"))
		f := r.follow(resp.GetThread().GetId(), 1)
		r.startTurn(ctx, resp.GetThread().GetId(), "go")
		f.turnEnd()
		var got []model.Search
		for _, tool := range r.last().Tools {
			if tool.Kind == model.ToolWebSearch {
				got = append(got, tool.Search)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%q at %s: %q, want %q", tt.text, tt.set.GetSandbox().GetLevel(), got, tt.want)
		}
	}
}

// mcpServer is a server over HTTP that answers unless it is down.
func mcpServer(t *testing.T) (url string, down *atomic.Bool) {
	t.Helper()
	down = &atomic.Bool{}
	handler := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server {
		return sdk.NewServer(&sdk.Implementation{Name: "h", Version: "1"}, nil)
	}, nil)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if down.Load() {
			http.Error(w, "down", http.StatusNotFound)
			return
		}
		handler.ServeHTTP(w, req)
	}))
	t.Cleanup(web.Close)
	return web.URL, down
}

// A thread is not started, forked or loaded without the servers that it must have;
// nothing is left of one that was to be new.
func TestRequiredServers(t *testing.T) {
	r := newRig(t)
	web, down := mcpServer(t)
	write := func(required bool) {
		r.configure(fmt.Sprintf("mcp_servers.must = { url = %q, required = %t }\nmcp_servers.may = { url = \"http://127.0.0.1:1\", bearer_token_env_var = \"NOT_SET\" }\n", web, required))
	}
	write(true)
	ctx, th := r.thread(workspaceWrite("never"))
	r.model.script(speak("m", "ok"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	f.turnEnd()
	other, _ := r.attach("s2", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	if _, err := r.threads.LoadThread(other, &heddlev1.LoadThreadRequest{ThreadId: th.GetId()}); err != nil {
		t.Fatal(err)
	}
	down.Store(true)
	_, started := r.threads.StartThread(ctx, &heddlev1.StartThreadRequest{Settings: workspaceWrite("never")})
	_, forked := r.threads.ForkThread(ctx, &heddlev1.ForkThreadRequest{ThreadId: th.GetId()})
	for name, err := range map[string]error{"start": started, "fork": forked} {
		if !errdefs.Is(err, errdefs.InvalidConfig) || !strings.Contains(err.Error(), "`must`") || strings.Contains(err.Error(), "`may`") {
			t.Errorf("%s without the server: %v", name, err)
		}
	}
	list, err := r.threads.ListThreads(ctx, &heddlev1.ListThreadsRequest{})
	if err != nil || len(list.GetThreads()) != 1 {
		t.Errorf("left %v, %v", list.GetThreads(), err)
	}
	write(false)
	if _, err := r.threads.StartThread(ctx, &heddlev1.StartThreadRequest{Settings: workspaceWrite("never")}); err != nil {
		t.Errorf("the server is not required: %v", err)
	}
}

// A thread that was let go is loaded only with the servers that it must have, and
// each attempt starts them anew.
func TestRequiredServersOfALoadedThread(t *testing.T) {
	r, restart := durable(t)
	web, down := mcpServer(t)
	r.configure(fmt.Sprintf("mcp_servers.must = { url = %q, required = true }\n", web))
	r.model.script(speak("m", "ok"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	f.turnEnd()
	restart()
	ctx, _ = r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	down.Store(true)
	if _, err := r.threads.LoadThread(ctx, &heddlev1.LoadThreadRequest{ThreadId: th.GetId()}); !errdefs.Is(err, errdefs.InvalidConfig) || !strings.Contains(err.Error(), "`must`") {
		t.Errorf("loaded without the server: %v", err)
	}
	down.Store(false)
	if _, err := r.threads.LoadThread(ctx, &heddlev1.LoadThreadRequest{ThreadId: th.GetId()}); err != nil {
		t.Errorf("loaded with the server: %v", err)
	}
}

// The config's tone is that of threads which name none themselves.
func TestPersonality(t *testing.T) {
	r := newRig(t)
	r.configure("personality = \"friendly\"\n")
	ctx, _ := r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	for own, want := range map[string]string{"": "Your tone is friendly", "pragmatic": "Your tone is pragmatic"} {
		s := workspaceWrite("never")
		s.Personality = own
		resp, err := r.threads.StartThread(ctx, &heddlev1.StartThreadRequest{Settings: s})
		if err != nil {
			t.Fatal(err)
		}
		r.model.script(speak("m", "ok"))
		f := r.follow(resp.GetThread().GetId(), 1)
		r.startTurn(ctx, resp.GetThread().GetId(), "go")
		f.turnEnd()
		wantShown(t, r.last(), []string{want})
		if n := strings.Count(shown(r.last()), "<personality>"); n != 1 {
			t.Errorf("%d tones", n)
		}
	}
}
