package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

const (
	// maxMCPServers bounds the servers of one config.
	maxMCPServers     = 32
	defaultMCPStartup = 10 * time.Second
	defaultMCPTool    = 60 * time.Second
	maxMCPTimeout     = time.Hour
)

// Ways in which the tools of an MCP server are approved.
const (
	// MCPAuto asks for tools that are not marked as only reading.
	MCPAuto = "auto"
	// MCPPrompt asks for every call.
	MCPPrompt = "prompt"
	// MCPApprove asks for none.
	MCPApprove = "approve"
)

// MCPServer is one table of mcp_servers.
type MCPServer struct {
	Name string

	// Command with Args runs as a process that speaks over its standard streams.
	Command string
	Args    []string
	// Env is set for it beside a few variables that every program needs; EnvVars
	// are names that are passed on from the session's environment.
	Env     map[string]string
	EnvVars []string
	// Cwd is empty for the thread's folder.
	Cwd string
	// Sandbox is a level ("read-only", "workspace-write", "danger-full-access").
	Sandbox string

	// URL is that of a server that is reached over streamable HTTP.
	URL               string
	BearerTokenEnvVar string
	HTTPHeaders       map[string]string
	EnvHTTPHeaders    map[string]string
	// Scopes are asked for in a login.
	Scopes []string

	StartupTimeout time.Duration
	ToolTimeout    time.Duration
	// EnabledTools are the only ones that are offered, when not nil; those of
	// DisabledTools are never.
	EnabledTools  []string
	DisabledTools []string
	// Approval and, by tool, ToolApproval are MCPAuto, MCPPrompt or MCPApprove.
	Approval     string
	ToolApproval map[string]string

	// Required means that no thread starts without the server.
	Required bool
	// Problem says why the server cannot be started as it is written.
	Problem string
}

// MCPServers are the enabled servers, sorted by name. One that is written wrong
// is among them with its problem.
func (c *Config) MCPServers() []MCPServer {
	all, _ := lookup(c.tree, "mcp_servers").(map[string]any)
	var list []MCPServer
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t, ok := all[name].(map[string]any)
		if enabled, set := t["enabled"].(bool); !ok || set && !enabled {
			continue
		}
		if len(list) == maxMCPServers {
			break
		}
		list = append(list, mcpServer(name, t))
	}
	return list
}

// MCPCallbackPort is the port on which a browser comes back after a login at an
// MCP server; 0 means any.
func (c *Config) MCPCallbackPort() int {
	if n, ok := c.Value("mcp_oauth_callback_port").(int64); ok && n < 1<<16 {
		return int(n)
	}
	return 0
}

func mcpServer(name string, t map[string]any) MCPServer {
	str := func(key string) string {
		s, _ := t[key].(string)
		return s
	}
	s := MCPServer{
		Name: name, Command: str("command"), Args: texts(t["args"]), Env: textsByKey(t["env"]), EnvVars: envVars(t["env_vars"]), Cwd: str("cwd"),
		Sandbox: str("sandbox"), URL: str("url"), BearerTokenEnvVar: str("bearer_token_env_var"),
		HTTPHeaders: textsByKey(t["http_headers"]), EnvHTTPHeaders: textsByKey(t["env_http_headers"]),
		StartupTimeout: seconds(t["startup_timeout_sec"], defaultMCPStartup), ToolTimeout: seconds(t["tool_timeout_sec"], defaultMCPTool),
		Scopes: texts(t["scopes"]), DisabledTools: texts(t["disabled_tools"]), Approval: str("default_tools_approval_mode"), ToolApproval: map[string]string{},
	}
	if n, ok := t["startup_timeout_ms"].(int64); ok && n > 0 && t["startup_timeout_sec"] == nil {
		s.StartupTimeout = min(time.Duration(min(n, math.MaxInt32))*time.Millisecond, maxMCPTimeout)
	}
	s.Required, _ = t["required"].(bool)
	if t["enabled_tools"] != nil {
		s.EnabledTools = texts(t["enabled_tools"])
	}
	tools, _ := t["tools"].(map[string]any)
	for tool, v := range tools {
		m, _ := v.(map[string]any)
		if mode, ok := m["approval_mode"].(string); ok {
			s.ToolApproval[tool] = mode
		}
	}
	s.Problem = s.problem()
	return s
}

func (s *MCPServer) problem() string {
	table := "mcp_servers." + joinKey([]string{s.Name})
	switch {
	case (s.Command == "") == (s.URL == ""):
		return table + " needs either command or url"
	case s.URL != "" && !strings.HasPrefix(s.URL, "http://") && !strings.HasPrefix(s.URL, "https://"):
		return fmt.Sprintf("%s.url %q does not begin with http:// or https://", table, s.URL)
	case s.Approval != "" && !knownApproval(s.Approval):
		return fmt.Sprintf("%s.default_tools_approval_mode %q is not one of auto, prompt, approve", table, s.Approval)
	}
	for tool, mode := range s.ToolApproval {
		if !knownApproval(mode) {
			return fmt.Sprintf("%s.tools.%s.approval_mode %q is not one of auto, prompt, approve", table, tool, mode)
		}
	}
	return ""
}

func knownApproval(mode string) bool {
	return mode == MCPAuto || mode == MCPPrompt || mode == MCPApprove
}

// seconds reads a duration that may have a fraction.
func seconds(v any, otherwise time.Duration) time.Duration {
	var s float64
	switch n := v.(type) {
	case int64:
		s = float64(n)
	case float64:
		s = n
	}
	if !(s > 0) {
		return otherwise
	}
	return time.Duration(min(s, maxMCPTimeout.Seconds()) * float64(time.Second))
}

// envVars reads names, each a text or a table with a name.
func envVars(v any) []string {
	l, _ := v.([]any)
	var out []string
	for _, e := range l {
		switch x := e.(type) {
		case string:
			out = append(out, x)
		case map[string]any:
			if name, ok := x["name"].(string); ok {
				out = append(out, name)
			}
		}
	}
	return out
}
