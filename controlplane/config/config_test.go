package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// home makes a home with a config file.
func home(t *testing.T, src string) Home {
	t.Helper()
	h := Home{Dir: t.TempDir()}
	if err := os.WriteFile(h.Path(), []byte(src), 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

func load(t *testing.T, o Options) *Config {
	t.Helper()
	c, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestResolveHome(t *testing.T) {
	tests := []struct {
		env  map[string]string
		want Home
		fail bool
	}{
		{map[string]string{"HEDDLE_HOME": "/h", "CODEX_HOME": "/c", "HOME": "/u"}, Home{Dir: "/h"}, false},
		{map[string]string{"CODEX_HOME": "/c", "HOME": "/u"}, Home{Dir: "/c/heddle", LowerConfig: "/c/config.toml"}, false},
		{map[string]string{"HOME": "/u"}, Home{Dir: "/u/.heddle"}, false},
		{nil, Home{}, true},
		{map[string]string{"HOME": "relative"}, Home{}, true},
	}
	for _, tt := range tests {
		got, err := ResolveHome(tt.env)
		if got != tt.want || (err != nil) != tt.fail {
			t.Errorf("ResolveHome(%v) = %+v, %v", tt.env, got, err)
		}
	}
}

func TestDefaults(t *testing.T) {
	c := load(t, Options{Home: Home{Dir: t.TempDir()}})
	policy, granular := c.ApprovalPolicy()
	if policy != "on-request" || granular != nil || c.ModelProvider() != "openai" || c.Model() != "" || c.ApprovalsReviewer() != "user" || c.ThreadUnloadDelay() != 30*time.Minute {
		t.Errorf("policy %q, provider %q", policy, c.ModelProvider())
	}
	p := c.SandboxPolicy()
	if p.GetLevel() != heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY || p.GetNetwork() != heddlev1.NetworkMode_NETWORK_MODE_OFF {
		t.Errorf("sandbox %v", p)
	}
	full := c.Full()
	if v, ok := full["approval_policy"]; !ok || v != nil || len(full) != len(clientKeys) {
		t.Errorf("full %v", full)
	}
	if c.ToolEnabled("update_plan") || len(c.Warnings()) != 0 || len(c.Layers()) != 0 {
		t.Errorf("warnings %v", c.Warnings())
	}
}

func TestValues(t *testing.T) {
	c := load(t, Options{Env: map[string]string{"HOME": "/u"}, Home: home(t, `
model = "m"
model_provider = "mock"
model_reasoning_effort = "high"
model_reasoning_summary = "concise"
model_verbosity = "low"
model_context_window = 1000
model_auto_compact_token_limit = 900
service_tier = "flex"
developer_instructions = "dev"
instructions = "base"
sandbox_mode = "workspace-write"
approvals_reviewer = "auto_review"
thread_unload_delay_secs = 2
[approval_policy.granular]
sandbox_approval = true
rules = false
mcp_elicitations = false
[sandbox_workspace_write]
network_access = true
writable_roots = ["/a/../b", "~/w"]
tmp = "host"
exclude_slash_tmp = true
[tools.update_plan]
enabled = true
[tools]
view_image = true
[features]
x = true
[projects."/p"]
trust_level = "trusted"
[projects."/p/q"]
trust_level = "untrusted"
`)})
	if len(c.Warnings()) != 0 {
		t.Fatalf("warnings %v", c.Warnings())
	}
	policy, granular := c.ApprovalPolicy()
	if policy != "granular" || granular["sandbox_approval"] != true {
		t.Errorf("%q %v", policy, granular)
	}
	if got := []string{c.Model(), c.ModelProvider(), c.ReasoningEffort(), c.ReasoningSummary(), c.Verbosity(), c.ServiceTier(), c.DeveloperInstructions(), c.Value("instructions").(string), c.ApprovalsReviewer()}; !slices.Equal(got, []string{"m", "mock", "high", "concise", "low", "flex", "dev", "base", "auto_review"}) {
		t.Errorf("got %q", got)
	}
	if c.ModelContextWindow() != 1000 || c.AutoCompactLimit() != 900 || c.ThreadUnloadDelay() != 2*time.Second {
		t.Error("numbers")
	}
	p := c.SandboxPolicy()
	if p.GetLevel() != heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE || p.GetNetwork() != heddlev1.NetworkMode_NETWORK_MODE_FULL || !p.GetHostTmp() || !p.GetExcludeSlashTmp() || !slices.Equal(p.GetWritableRoots(), []string{"/b", "/u/w"}) {
		t.Errorf("sandbox %v", p)
	}
	if p.GetGit() != heddlev1.GitMode_GIT_MODE_UNSPECIFIED || c.GitMode(heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE) != p.GetGit() {
		t.Errorf("git %v", p.GetGit())
	}
	if p, err := c.SandboxFor("danger-full-access"); err != nil || p.GetNetwork() != heddlev1.NetworkMode_NETWORK_MODE_FULL {
		t.Errorf("%v %v", p, err)
	}
	if _, err := c.SandboxFor("none"); err == nil {
		t.Error("an unknown mode was accepted")
	}
	if on, set := c.Feature("x"); !on || !set {
		t.Error("feature x")
	}
	if !c.ToolEnabled("update_plan") || !c.ToolEnabled("view_image") || c.ToolEnabled("other") {
		t.Error("tools")
	}
	for dir, want := range map[string]string{"/p": "trusted", "/p/sub/x": "trusted", "/p/q/r": "untrusted", "/other": "", "": ""} {
		if got := c.TrustLevel(dir); got != want {
			t.Errorf("trust of %q is %q, want %q", dir, got, want)
		}
	}
	if c.Value(`projects."/p".trust_level`) != "trusted" || c.Value("sandbox_workspace_write.tmp") != "host" || c.Value("a..b") != nil {
		t.Error("Value")
	}
}

func TestLayers(t *testing.T) {
	h := home(t, `
model = "user"
model_verbosity = "low"
profile = "p"
[profiles.p]
model_reasoning_effort = "high"
[profiles.q]
model = "from-q"
[projects."/ws"]
trust_level = "trusted"
[shell_environment_policy]
exclude = ["A*"]
`)
	h.LowerConfig = filepath.Join(t.TempDir(), "config.toml")
	if err := os.WriteFile(h.LowerConfig, []byte("model = \"lower\"\nreview_model = \"lower\"\nshell_environment_policy.inherit = \"core\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	project := &Project{Dir: "/ws/.heddle", Data: []byte("model_verbosity = \"high\"\nopenai_base_url = \"http://evil\"\n[model_providers.x]\nbase_url = \"http://evil\"\n")}
	c := load(t, Options{
		Home: h, Cwd: "/ws/sub", Project: project,
		Overrides: map[string]any{"model": "session", "shell_environment_policy.set": map[string]any{"K": "v"}},
		Thread:    map[string]any{"model_context_window": 5000.0, "shell_environment_policy.inherit": "none", "nothing": nil},
	})
	for key, want := range map[string]any{
		"model": "session", "review_model": "lower", "model_verbosity": "high", "model_reasoning_effort": "high", "model_context_window": int64(5000),
		"shell_environment_policy.inherit": "none", "openai_base_url": nil, "model_providers": nil,
	} {
		if got := c.Value(key); got != want {
			t.Errorf("%s = %v, want %v", key, got, want)
		}
	}
	var kinds []string
	for _, l := range c.Layers() {
		kinds = append(kinds, l.Kind)
		if !strings.HasPrefix(l.Version, "sha256:") {
			t.Errorf("version %q", l.Version)
		}
	}
	if !slices.Equal(kinds, []string{"thread", "session", "project", "user", "user"}) {
		t.Fatalf("layers %v", kinds)
	}
	if c.Layers()[3].File != h.Path() || c.Layers()[2].File != "/ws/.heddle/config.toml" {
		t.Errorf("files %q %q", c.Layers()[3].File, c.Layers()[2].File)
	}
	for key, want := range map[string]int{"model": 1, "review_model": 4, "model_verbosity": 2, "model_reasoning_effort": 3, "model_context_window": 0, "shell_environment_policy.exclude": 3, "shell_environment_policy.set.K": 1} {
		if got, ok := c.Origins()[key]; !ok || got != want {
			t.Errorf("origin of %s is %d (%v), want %d", key, got, ok, want)
		}
	}
	if len(c.Warnings()) != 2 || !strings.Contains(c.Warnings()[0].GetDetails(), "project") {
		t.Errorf("warnings %v", c.Warnings())
	}

	// Another profile, no trust, no user config.
	if c := load(t, Options{Home: h, Profile: "q"}); c.Model() != "from-q" || c.ReasoningEffort() != "" {
		t.Errorf("profile q: %q", c.Model())
	}
	// A thread may ask for another one than its session.
	if c := load(t, Options{Home: h, Thread: map[string]any{"profile": "q"}}); c.Model() != "from-q" {
		t.Errorf("profile q of a thread: %q", c.Model())
	}
	if c := load(t, Options{Home: h, Cwd: "/elsewhere", Project: project}); c.Verbosity() != "low" {
		t.Error("the config of an untrusted project was used")
	}
	if c := load(t, Options{Home: h, Cwd: "/ws", Project: project, IgnoreUserConfig: true}); c.Model() != "" || c.Verbosity() != "" {
		t.Errorf("user config was not ignored: %v", c.Tree())
	}
	_, err := Load(Options{Home: h, Profile: "none"})
	if err == nil || !strings.Contains(err.Error(), `"none"`) || !strings.Contains(err.Error(), h.Path()) {
		t.Errorf("got %v", err)
	}
	// A profile must not stand over the session's own values.
	if c := load(t, Options{Home: Home{Dir: t.TempDir()}, Profile: "z", Overrides: map[string]any{"profiles.z.model": "z", "profiles.z.model_verbosity": "low", "model": "mine"}}); c.Model() != "mine" || c.Verbosity() != "low" {
		t.Errorf("got %v", c.Tree())
	}
}

func TestWarnings(t *testing.T) {
	tests := []struct {
		name, src    string
		line, column int32
		summary      string
		details      string
	}{
		{"does not parse", "model = \"a\"\nthis is = = not toml\n", 2, 6, "Invalid configuration", "correct the line"},
		{"unknown key", "model = \"a\"\nmodle = \"x\"\n", 2, 1, `Unknown configuration key "modle"`, `did you mean "model"?`},
		{"unknown nested key", "[sandbox_workspace_write]\n  network = true\n", 2, 3, `Unknown configuration key "sandbox_workspace_write.network"`, "unknown key"},
		{"wrong value", "\n  approval_policy = \"sometimes\"\n", 2, 3, `Invalid configuration: key "approval_policy"`, `"sometimes" is not one of untrusted, on-request, never`},
		{"wrong type", "sandbox_workspace_write = { network_access = \"yes\" }\n", 1, 29, `key "sandbox_workspace_write.network_access"`, `"yes" is not true or false`},
		{"negative", "[model_providers.x]\nbase_url = \"http://h\"\nrequest_max_retries = -1\n", 3, 1, `key "model_providers.x.request_max_retries"`, "at least 0"},
		{"list", "shell_environment_policy.exclude = [1]\n", 1, 1, `key "shell_environment_policy.exclude"`, "list of texts"},
		{"map", "[shell_environment_policy]\nset = {A = 1}\n", 2, 8, `key "shell_environment_policy.set.A"`, "quotes"},
		{"table", "tools = 7\n", 1, 1, `key "tools"`, "not a table"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := home(t, tt.src)
			c := load(t, Options{Home: h})
			if len(c.Warnings()) != 1 {
				t.Fatalf("warnings %v", c.Warnings())
			}
			w := c.Warnings()[0]
			if w.GetPath() != h.Path() || w.GetLine() != tt.line || w.GetColumn() != tt.column || !strings.Contains(w.GetSummary(), tt.summary) || !strings.Contains(w.GetDetails(), tt.details) {
				t.Errorf("got %v", w)
			}
			_, err := Load(Options{Home: h, Strict: true})
			var ce *Error
			if !errors.As(err, &ce) || !strings.HasPrefix(err.Error(), h.Path()+":") || strings.Contains(err.Error(), "\n") {
				t.Errorf("strict: %v", err)
			}
			if got := Check(h.Path(), []byte(tt.src)); len(got) != 1 {
				t.Errorf("Check: %v", got)
			}
		})
	}
	// What is wrong is not used, the rest is.
	c := load(t, Options{Home: home(t, "model = \"a\"\nsandbox_mode = \"everything\"\n[sandbox_workspace_write]\nnetwork_access = 1\nwritable_roots = [\"/r\"]\n")})
	if c.Model() != "a" || c.Value("sandbox_mode") != nil || c.Value("sandbox_workspace_write.network_access") != nil || len(c.Warnings()) != 2 {
		t.Errorf("tree %v", c.Tree())
	}
	// A folder in place of the file is a warning, not a crash.
	h := Home{Dir: t.TempDir()}
	if err := os.Mkdir(h.Path(), 0o700); err != nil {
		t.Fatal(err)
	}
	if c := load(t, Options{Home: h}); len(c.Warnings()) != 1 {
		t.Errorf("warnings %v", c.Warnings())
	}
}

func TestOverrideErrors(t *testing.T) {
	for key, value := range map[string]any{"approval_policy": "sometimes", "model": 7.0, "a..b": "x", `projects."/x`: "y"} {
		if _, err := Load(Options{Overrides: map[string]any{key: value}, Home: Home{Dir: t.TempDir()}}); err == nil {
			t.Errorf("override %s was accepted", key)
		}
		if _, err := Load(Options{Thread: map[string]any{key: value}, Home: Home{Dir: t.TempDir()}}); err == nil {
			t.Errorf("thread config %s was accepted", key)
		}
	}
	c := load(t, Options{Overrides: map[string]any{"whatever": 1}, Home: Home{Dir: t.TempDir()}})
	if len(c.Warnings()) != 1 {
		t.Errorf("warnings %v", c.Warnings())
	}
	if _, err := Load(Options{Overrides: map[string]any{"whatever": 1}, Home: Home{Dir: t.TempDir()}, Strict: true}); err == nil {
		t.Error("strict accepts an unknown override")
	}
}

func TestParseOverride(t *testing.T) {
	tests := []struct {
		in    string
		key   string
		value any
	}{
		{`model="x"`, "model", "x"}, {"model=gpt-5", "model", "gpt-5"}, {"a.b=true", "a.b", true}, {"n = 3", "n", int64(3)},
		{`l=["x", 2]`, "l", []any{"x", int64(2)}}, {`t={a="b=c"}`, "t", map[string]any{"a": "b=c"}}, {`projects."/a=b".trust_level=trusted`, `projects."/a=b".trust_level`, "trusted"},
		{"url=http://h/?a=b", "url", "http://h/?a=b"}, {"s='it", "s", "it"}, {"e=", "e", ""}, {"m=a\nb = 1", "m", "a\nb = 1"},
	}
	for _, tt := range tests {
		key, value, err := ParseOverride(tt.in)
		if err != nil || key != tt.key || !reflect.DeepEqual(value, tt.value) {
			t.Errorf("ParseOverride(%q) = %q, %#v, %v", tt.in, key, value, err)
		}
	}
	for _, bad := range []string{"", "novalue", "=x", "a..b=1", `"open=1`} {
		if _, _, err := ParseOverride(bad); err == nil {
			t.Errorf("ParseOverride(%q) was accepted", bad)
		}
	}
}

func TestProviders(t *testing.T) {
	h := home(t, `
[model_providers.mock]
name = "Mock"
base_url = "http://h/v1"
env_key = "MOCK_KEY"
request_max_retries = 0
stream_max_retries = 1000000
stream_idle_timeout_ms = 600
http_headers = { A = "b" }
env_http_headers = { C = "C_TOKEN_VAR" }
query_params = { q = "1" }
[model_providers.play]
wire_api = "scripted"
script = "s.yaml"
[model_providers.odd]
base_url = "http://h"
wire_api = "graphql"
[model_providers.chat]
base_url = "http://h"
wire_api = "chat"
[model_providers.claude]
wire_api = "anthropic"
[model_providers.claudelike]
wire_api = "anthropic"
base_url = "http://h/anthropic"
[model_providers.ollama]
base_url = "http://big:11434/v1"
[model_providers.empty]
name = "Empty"
`)
	c := load(t, Options{Home: h, Env: map[string]string{"OPENAI_BASE_URL": "http://proxy/v1"}})
	p, err := c.Provider("mock")
	want := Provider{
		ID: "mock", Name: "Mock", BaseURL: "http://h/v1", EnvKey: "MOCK_KEY", WireAPI: "responses", HTTPHeaders: map[string]string{"A": "b"},
		EnvHTTPHeaders: map[string]string{"C": "C_TOKEN_VAR"}, QueryParams: map[string]string{"q": "1"}, StreamMaxRetries: 100, StreamIdleTimeout: 600 * time.Millisecond, Source: h.Path(),
	}
	if err != nil || !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v, %v", p, err)
	}
	if p, err := c.Provider("play"); err != nil || p.Script != filepath.Join(h.Dir, "s.yaml") || p.RequestMaxRetries != 4 || p.StreamMaxRetries != 5 || p.StreamIdleTimeout != 300*time.Second {
		t.Errorf("got %+v, %v", p, err)
	}
	if p, err := c.Provider("openai"); err != nil || p.BaseURL != "http://proxy/v1" || p.EnvKey != "OPENAI_API_KEY" {
		t.Errorf("got %+v, %v", p, err)
	}
	if p, err := c.Provider("scripted"); err != nil || p.WireAPI != "scripted" || p.Script != "" {
		t.Errorf("got %+v, %v", p, err)
	}
	for id, want := range map[string]string{"odd": `use "responses", "chat", "anthropic" or "scripted"`, "empty": "base_url", "none": "known: anthropic, chat, claude, claudelike, empty, lmstudio, mock, odd, ollama, openai, play, scripted"} {
		_, err := c.Provider(id)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"`+id+`"`) || strings.Contains(err.Error(), "\n") {
			t.Errorf("provider %s: %v", id, err)
		}
	}
	for id, want := range map[string]string{
		"chat":       "chat http://h ",
		"anthropic":  "anthropic https://api.anthropic.com/v1 ANTHROPIC_API_KEY",
		"claude":     "anthropic https://api.anthropic.com/v1 ANTHROPIC_API_KEY",
		"claudelike": "anthropic http://h/anthropic ",
		"ollama":     "chat http://big:11434/v1 ",
		"lmstudio":   "chat http://localhost:1234/v1 ",
	} {
		p, err := c.Provider(id)
		if got := p.WireAPI + " " + p.BaseURL + " " + p.EnvKey; err != nil || got != want {
			t.Errorf("provider %s: %q, %v", id, got, err)
		}
	}
	if got := c.ProviderEnvKeys(); !slices.Equal(got, []string{"ANTHROPIC_API_KEY", "C_TOKEN_VAR", "MOCK_KEY", "OPENAI_API_KEY"}) {
		t.Errorf("keys %q", got)
	}
	c = load(t, Options{Home: h, Overrides: map[string]any{"openai_base_url": "http://mine"}, Env: map[string]string{"OPENAI_BASE_URL": "http://proxy/v1"}})
	if p, _ := c.Provider("openai"); p.BaseURL != "http://mine" {
		t.Errorf("got %q", p.BaseURL)
	}
}

// What names a provider that there is not is what has to be changed.
func TestUnknownProviderBlamesItsSource(t *testing.T) {
	h := home(t, "model = \"m\"\nmodel_provider = \"gone\"\n")
	for name, tt := range map[string]struct {
		o        Options
		id       string
		want     []string
		wantFile bool
	}{
		"file":               {Options{Home: h}, "gone", []string{":2:", "change model_provider"}, true},
		"override":           {Options{Home: h, Overrides: map[string]any{"model_provider": "nope"}}, "nope", []string{"-c model_provider=nope"}, false},
		"config of a thread": {Options{Home: h, Thread: map[string]any{"model_provider": "nope"}}, "nope", []string{"came with the thread"}, false},
		"thread":             {Options{Home: h}, "old", []string{"the thread", `"old"`}, false},
	} {
		_, err := load(t, tt.o).Provider(tt.id)
		for _, w := range tt.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v lacks %q", name, err, w)
			}
		}
		if err != nil && strings.Contains(err.Error(), h.Path()) != tt.wantFile {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFilterEnv(t *testing.T) {
	env := map[string]string{
		"PATH": "/bin", "HOME": "/u", "PLAIN": "1", "API_KEY": "x", "my_secret_value": "x", "GH_TOKEN": "x", "DB_PASSWORD": "x", "AWS_CREDENTIALS": "x",
		"HEDDLE_HOME": "x", "PROVIDER_VAR": "x", "WC_SECRET_KEY": "x", "": "x", "A=B": "x", "ZERO": "a\x00b", "BASH_FUNC_x%%": "() { :; }",
	}
	tests := []struct {
		name string
		p    EnvPolicy
		want []string
	}{
		{"default", EnvPolicy{ProviderKeys: []string{"PROVIDER_VAR"}}, []string{"BASH_FUNC_x%%=() { :; }", "HOME=/u", "PATH=/bin", "PLAIN=1"}},
		{"core", EnvPolicy{Inherit: "core"}, []string{"HOME=/u", "PATH=/bin"}},
		{"none and set", EnvPolicy{Inherit: "none", Set: map[string]string{"API_KEY": "given", "B": "2"}}, []string{"API_KEY=given", "B=2"}},
		{"exclude", EnvPolicy{Exclude: []string{"pl*", "H?ME", "BASH*", "PROVIDER_VAR"}}, []string{"PATH=/bin"}},
		{"include only", EnvPolicy{IncludeOnly: []string{"P*"}, Set: map[string]string{"X": "1"}, ProviderKeys: []string{"PROVIDER_VAR"}}, []string{"PATH=/bin", "PLAIN=1"}},
		{"no default excludes", EnvPolicy{IgnoreDefaultExcludes: true, Exclude: []string{"*_*"}}, []string{"HOME=/u", "PATH=/bin", "PLAIN=1"}},
	}
	for _, tt := range tests {
		if got := FilterEnv(tt.p, env); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	c := load(t, Options{Home: home(t, "[shell_environment_policy]\ninherit = \"core\"\nignore_default_excludes = true\nexclude = [\"A\"]\ninclude_only = [\"B\"]\nset = {C = \"d\"}\n")})
	want := EnvPolicy{Inherit: "core", IgnoreDefaultExcludes: true, Exclude: []string{"A"}, Set: map[string]string{"C": "d"}, IncludeOnly: []string{"B"}, ProviderKeys: []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY"}}
	if got := c.EnvPolicy(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}

func TestWildcard(t *testing.T) {
	tests := []struct {
		pattern, s string
		want       bool
	}{
		{"*", "", true}, {"", "", true}, {"", "a", false}, {"a*c", "abc", true}, {"a*c", "abd", false}, {"*KEY*", "MY_KEY_2", true}, {"?", "", false},
		{"a?c", "abc", true}, {"***", "x", true}, {"*a*b", "xaybzb", true}, {"[ab]", "a", false}, {"a*", "b", false},
	}
	for _, tt := range tests {
		if got := wildcard(tt.pattern, tt.s); got != tt.want {
			t.Errorf("wildcard(%q, %q) = %v", tt.pattern, tt.s, got)
		}
	}
}

func TestKeys(t *testing.T) {
	for _, k := range []string{"a", "a.b", `projects."/a.b/c d".trust_level`, `x.'it"s'`} {
		parts, err := splitKey(k)
		if err != nil || joinKey(parts) != k {
			t.Errorf("%q became %q, %v", k, joinKey(parts), err)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte("model = 1\n[profiles.x]\nmodel='a'\n"), "a.b=1")
	f.Add([]byte("[[model_providers]]\nx=1\n[a.'b c']\n\"q\\u0041\"={z=[{}]}\n"), `x."y"=[1]`)
	f.Add([]byte("approval_policy = {granular={rules=1}}\ntools.x.enabled=1979-05-27"), "=")
	f.Fuzz(func(t *testing.T, data []byte, over string) {
		s, err := parseFile("user", "f", data, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range check(schema(), s.layer.Tree, nil) {
			if !p.unknown {
				t.Errorf("a wrong value was kept: %v", p)
			}
		}
		c := &Config{tree: map[string]any{}, origins: map[string]int{}}
		c.lay([]*source{s})
		c.SandboxPolicy()
		c.EnvPolicy()
		for id := range c.providers() {
			_, _ = c.Provider(id)
		}
		if key, value, err := ParseOverride(over); err == nil {
			_, _ = Load(Options{Overrides: map[string]any{key: value}, IgnoreUserConfig: true})
		}
	})
}

func TestGitMode(t *testing.T) {
	c, err := Load(Options{Home: Home{Dir: t.TempDir()}, Cwd: "/", Overrides: map[string]any{"sandbox_workspace_write": map[string]any{"git": "commit"}}})
	if err != nil {
		t.Fatal(err)
	}
	for mode, want := range map[string]heddlev1.GitMode{"workspace-write": heddlev1.GitMode_GIT_MODE_COMMIT, "read-only": heddlev1.GitMode_GIT_MODE_UNSPECIFIED} {
		if p, err := c.SandboxFor(mode); err != nil || p.GetGit() != want {
			t.Errorf("%s: %v, %v", mode, p, err)
		}
	}
}

// Where nothing is set the trust of the project decides, as in the reference.
func TestTrustChoosesTheDefaults(t *testing.T) {
	const set = "[projects.\"/p\"]\ntrust_level = \"trusted\"\n[projects.\"/p/q\"]\ntrust_level = \"untrusted\"\n"
	ww, ro := heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE, heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY
	for _, row := range []struct {
		cwd, before, asks string
		level             heddlev1.SandboxLevel
	}{
		{"/other", "", "on-request", ro},
		{"", "", "on-request", ro},
		{"/p/sub", "", "on-request", ww},
		{"/p/q", "", "untrusted", ww},
		{"/p/q", "approval_policy = \"never\"\nsandbox_mode = \"read-only\"\n", "never", ro},
		{"/other", "sandbox_mode = \"workspace-write\"\n", "on-request", ww},
	} {
		h := Home{Dir: t.TempDir()}
		if err := os.WriteFile(h.Path(), []byte(row.before+set), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(Options{Home: h, Cwd: row.cwd})
		if err != nil {
			t.Fatal(err)
		}
		if asks, _ := c.ApprovalPolicy(); asks != row.asks || c.SandboxPolicy().GetLevel() != row.level {
			t.Errorf("%q with %q: %s, %v; want %s, %v", row.cwd, row.before, asks, c.SandboxPolicy().GetLevel(), row.asks, row.level)
		}
	}
}
