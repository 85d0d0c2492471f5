package settings

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/heddle-dev/heddle/controlplane/config"
	"github.com/heddle-dev/heddle/controlplane/mcp"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Servers implements agent.ServersOf. A server that cannot be started as it is
// written is among them with its problem.
func (r *Resolver) Servers(ctx context.Context, s *heddlev1.ThreadSettings, sessionID string) ([]mcp.Server, error) {
	c, err := r.LoadFor(ctx, sessionID, s.GetCwd(), s.GetConfig())
	if err != nil {
		return nil, err
	}
	cwd := s.GetCwd()
	if cwd == "" {
		cwd = "/"
		if sess := r.session(sessionID); sess != nil && sess.Cwd != "" {
			cwd = sess.Cwd
		}
	}
	env := r.Env(sessionID)
	var list []mcp.Server
	for _, m := range c.MCPServers() {
		list = append(list, mcpServer(c, &m, cwd, env))
	}
	return list, nil
}

func mcpServer(c *config.Config, m *config.MCPServer, cwd string, env map[string]string) mcp.Server {
	out := mcp.Server{
		Name: m.Name, StartupTimeout: m.StartupTimeout, ToolTimeout: m.ToolTimeout, Enabled: m.EnabledTools, Disabled: m.DisabledTools,
		Approval: m.Approval, ToolApproval: m.ToolApproval, Problem: m.Problem, Required: m.Required, Scopes: m.Scopes, CallbackPort: c.MCPCallbackPort(),
	}
	if m.URL != "" {
		out.URL, out.Headers = m.URL, map[string]string{}
		for k, v := range m.HTTPHeaders {
			out.Headers[k] = v
		}
		for k, name := range m.EnvHTTPHeaders {
			if env[name] != "" {
				out.Headers[k] = env[name]
			}
		}
		if name := m.BearerTokenEnvVar; name != "" {
			if env[name] == "" && out.Problem == "" {
				out.Problem = fmt.Sprintf("the variable %s, which bearer_token_env_var names, is not set", name)
			}
			out.Headers["Authorization"] = "Bearer " + env[name]
		}
		return out
	}
	out.Argv = append([]string{m.Command}, m.Args...)
	out.Cwd = cwd
	if m.Cwd != "" {
		out.Cwd = m.Cwd
		if rest, ok := strings.CutPrefix(m.Cwd, "~/"); ok && env["HOME"] != "" {
			out.Cwd = path.Join(env["HOME"], rest)
		} else if !path.IsAbs(m.Cwd) {
			out.Cwd = path.Join(cwd, m.Cwd)
		}
	}
	set := map[string]string{}
	for _, name := range m.EnvVars {
		if v, ok := env[name]; ok {
			set[name] = v
		}
	}
	for k, v := range m.Env {
		set[k] = v
	}
	// A server gets what every program needs and what its table names: keys of
	// model providers and other secrets are not its business.
	out.Env = config.FilterEnv(config.EnvPolicy{Inherit: "core", Set: set}, env)
	level := m.Sandbox
	if level == "" {
		level = "danger-full-access"
	}
	policy, err := c.SandboxFor(level)
	if err != nil && out.Problem == "" {
		out.Problem = err.Error()
	}
	if err == nil {
		policy.Limits, policy.DenyRead = c.Limits(), c.DenyRead()
		policy.LandlockFallback = c.LandlockFallback()
	}
	out.Policy = policy
	return out
}
