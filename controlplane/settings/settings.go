// Package settings finds what is in force for a thread: the thread's own
// settings over the session's overrides over the home's config over built-in
// values, and the model client and environment that follow from them.
//
// A Resolver holds no state of its own beside its parts and is safe for
// concurrent use. Config files are read anew each time, so that an edit holds
// for the next turn.
package settings

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/heddle-dev/heddle/controlplane/agent"
	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/tool"
	"github.com/heddle-dev/heddle/controlplane/approval"
	"github.com/heddle-dev/heddle/controlplane/config"
	"github.com/heddle-dev/heddle/controlplane/hook"
	"github.com/heddle-dev/heddle/controlplane/session"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// approvalTimeoutKey is the config key of the deadline of approvals, in seconds.
const approvalTimeoutKey = "approval_timeout_secs"

// Clients opens model clients.
type Clients interface {
	// Client returns the client of a provider; getenv looks variables up in the
	// session's environment, then in the control plane's own.
	Client(p config.Provider, getenv func(string) string) (model.Client, error)
}

// Config configures a Resolver.
type Config struct {
	Home     config.Home
	Sessions *session.Registry
	Models   *model.Catalog
	Clients  Clients
	// Env is the control plane's own environment, used where no session brings
	// one.
	Env     map[string]string
	Version string
	// ApprovalTimeout is the deadline of approvals where the config sets none.
	ApprovalTimeout time.Duration
	// Account holds the key of a login; nil means that there is none.
	Account *config.Account
	// ReadFirst reads the first of some files that exists, on an executor; path
	// is empty when there is none. Nil means that no project's config is read.
	ReadFirst func(ctx context.Context, sessionID string, paths []string) (path string, data []byte, err error)
	// Logger; nil discards.
	Logger *slog.Logger
}

// projectWait bounds the reading of a project's config, so that a thread starts
// without it rather than not at all.
const projectWait = 5 * time.Second

// Resolver finds effective settings.
type Resolver struct{ cfg Config }

// New returns a Resolver.
func New(cfg Config) *Resolver {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Resolver{cfg: cfg}
}

// Load returns the effective config for a session and a thread's own config
// keys, without that of a project. A session that is not known (any more) counts
// as none.
func (r *Resolver) Load(sessionID, cwd string, thread *structpb.Struct) (*config.Config, error) {
	return r.load(r.options(sessionID, cwd, thread))
}

// LoadFor is Load with the config of the project around cwd, when that is
// trusted. A project's config that cannot be read is left out, with a warning in
// the log.
func (r *Resolver) LoadFor(ctx context.Context, sessionID, cwd string, thread *structpb.Struct) (*config.Config, error) {
	o := r.options(sessionID, cwd, thread)
	c, err := r.load(o)
	if err != nil || r.cfg.ReadFirst == nil {
		return c, err
	}
	files := c.ProjectFiles(o.Cwd)
	if len(files) == 0 {
		return c, nil
	}
	ctx, cancel := context.WithTimeout(ctx, projectWait)
	defer cancel()
	path, data, err := r.cfg.ReadFirst(ctx, sessionID, files)
	if err != nil {
		r.cfg.Logger.Warn("read a project's config", "cwd", o.Cwd, "error", err)
		return c, nil
	}
	if path == "" {
		return c, nil
	}
	o.Project = &config.Project{Dir: filepath.Dir(path), Data: data}
	return r.load(o)
}

func (r *Resolver) options(sessionID, cwd string, thread *structpb.Struct) config.Options {
	o := config.Options{Home: r.cfg.Home, Env: r.cfg.Env, Cwd: cwd}
	if thread != nil {
		o.Thread = thread.AsMap()
	}
	if s := r.session(sessionID); s != nil {
		o.Env, o.Profile, o.IgnoreUserConfig = s.Env, s.Profile, s.IgnoreUserConfig
		if s.Overrides != nil {
			o.Overrides = s.Overrides.AsMap()
		}
		if cwd == "" {
			o.Cwd = s.Cwd
		}
	}
	return o
}

func (r *Resolver) load(o config.Options) (*config.Config, error) {
	c, err := config.Load(o)
	if err != nil {
		return nil, errdefs.New(errdefs.InvalidConfig, "%w", err)
	}
	return c, nil
}

func (r *Resolver) session(id string) *session.Session {
	if id == "" {
		return nil
	}
	s, err := r.cfg.Sessions.Get(id)
	if err != nil {
		return nil
	}
	return s
}

// Env is the environment of a session, unfiltered.
func (r *Resolver) Env(sessionID string) map[string]string {
	if s := r.session(sessionID); s != nil && len(s.Env) > 0 {
		return s.Env
	}
	return r.cfg.Env
}

// Complete fills the empty fields of a new thread's settings.
func (r *Resolver) Complete(ctx context.Context, sessionID string, given *heddlev1.ThreadSettings) (*heddlev1.ThreadSettings, error) {
	s := agent.MergeSettings(nil, given)
	if s.Cwd == "" {
		if sess := r.session(sessionID); sess != nil {
			s.Cwd = sess.Cwd
		}
	}
	if !strings.HasPrefix(s.GetCwd(), "/") {
		return nil, errdefs.New(errdefs.InvalidArgument, "cwd %q is not an absolute path", s.GetCwd())
	}
	c, err := r.LoadFor(ctx, sessionID, s.GetCwd(), s.GetConfig())
	if err != nil {
		return nil, err
	}
	if err := c.Unread(); err != nil {
		// A thread with the defaults would speak to another provider than the one that
		// the file names.
		return nil, errdefs.New(errdefs.InvalidConfig, "failed to load configuration: %w", err)
	}
	fill(&s.ModelProvider, c.ModelProvider())
	fill(&s.Model, c.Model())
	if p, err := c.Provider(s.GetModelProvider()); err == nil && s.Model == "" && p.WireAPI == "scripted" {
		s.Model = "scripted"
	}
	fill(&s.Model, r.cfg.Models.Default().ID)
	if s.ApprovalPolicy == "" {
		policy, granular := c.ApprovalPolicy()
		s.ApprovalPolicy = policy
		if granular != nil {
			g, err := structpb.NewStruct(granular)
			if err != nil {
				return nil, errdefs.New(errdefs.InvalidConfig, "approval_policy.granular: %w", err)
			}
			s.GranularApproval = g
		}
	}
	if !approval.KnownPolicy(s.ApprovalPolicy) {
		return nil, errdefs.New(errdefs.InvalidArgument, "approval policy %q is not known", s.ApprovalPolicy)
	}
	fill(&s.ApprovalsReviewer, c.ApprovalsReviewer())
	fill(&s.ReasoningEffort, c.ReasoningEffort())
	fill(&s.ReasoningSummary, c.ReasoningSummary())
	fill(&s.Verbosity, c.Verbosity())
	fill(&s.Personality, c.Personality())
	fill(&s.ServiceTier, c.ServiceTier())
	fill(&s.DeveloperInstructions, c.DeveloperInstructions())
	base, err := c.BaseInstructions()
	if err != nil {
		return nil, errdefs.New(errdefs.InvalidConfig, "failed to load configuration: %w", err)
	}
	fill(&s.BaseInstructions, base)
	if err := completeSandbox(c, s); err != nil {
		return nil, err
	}
	return s, nil
}

// KnownProvider fails with InvalidConfig when there is no provider of the name
// that settings have.
func (r *Resolver) KnownProvider(ctx context.Context, sessionID string, s *heddlev1.ThreadSettings) error {
	c, err := r.LoadFor(ctx, sessionID, s.GetCwd(), s.GetConfig())
	if err != nil {
		return err
	}
	if slices.Contains(c.ProviderIDs(), s.GetModelProvider()) {
		return nil
	}
	_, err = c.Provider(s.GetModelProvider())
	return errdefs.New(errdefs.InvalidConfig, "%w", err)
}

// Patch completes settings that were given for an existing thread: a sandbox
// level without details takes those of the config.
func (r *Resolver) Patch(ctx context.Context, sessionID string, given *heddlev1.ThreadSettings) (*heddlev1.ThreadSettings, error) {
	if given == nil {
		return nil, nil
	}
	s := agent.MergeSettings(nil, given)
	if s.ApprovalPolicy != "" && !approval.KnownPolicy(s.ApprovalPolicy) {
		return nil, errdefs.New(errdefs.InvalidArgument, "approval policy %q is not known", s.ApprovalPolicy)
	}
	if s.Cwd != "" && !strings.HasPrefix(s.Cwd, "/") {
		return nil, errdefs.New(errdefs.InvalidArgument, "cwd %q is not an absolute path", s.Cwd)
	}
	if s.Sandbox == nil {
		return s, nil
	}
	c, err := r.LoadFor(ctx, sessionID, s.GetCwd(), s.GetConfig())
	if err != nil {
		return nil, err
	}
	return s, completeSandbox(c, s)
}

// completeSandbox fills a policy of which only the level was given, and puts the
// configured limits and git mode on it.
func completeSandbox(c *config.Config, s *heddlev1.ThreadSettings) error {
	err := fillSandbox(c, s)
	if err == nil {
		s.Sandbox.Limits, s.Sandbox.DenyRead = c.Limits(), c.DenyRead()
		s.Sandbox.LandlockFallback = c.LandlockFallback()
		s.Sandbox.Git = c.GitMode(s.Sandbox.Level)
	}
	return err
}

// fillSandbox fills a policy whose network is unspecified.
func fillSandbox(c *config.Config, s *heddlev1.ThreadSettings) error {
	if s.Sandbox == nil || s.Sandbox.Level == heddlev1.SandboxLevel_SANDBOX_LEVEL_UNSPECIFIED {
		s.Sandbox = c.SandboxPolicy()
		return nil
	}
	if s.Sandbox.Network != heddlev1.NetworkMode_NETWORK_MODE_UNSPECIFIED {
		c.Network(s.Sandbox)
		return nil
	}
	mode := map[heddlev1.SandboxLevel]string{
		heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY:       "read-only",
		heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE: "workspace-write",
		heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS:     "danger-full-access",
	}[s.Sandbox.Level]
	if mode == "" {
		s.Sandbox.Network = heddlev1.NetworkMode_NETWORK_MODE_OFF
		return nil
	}
	p, err := c.SandboxFor(mode)
	if err != nil {
		return errdefs.New(errdefs.InvalidConfig, "%w", err)
	}
	p.WritableRoots = append(p.WritableRoots, s.Sandbox.WritableRoots...)
	s.Sandbox = p
	return nil
}

// Resolve implements agent.Resolver.
func (r *Resolver) Resolve(ctx context.Context, s *heddlev1.ThreadSettings, sessionID string) (*agent.Runtime, error) {
	c, err := r.LoadFor(ctx, sessionID, s.GetCwd(), s.GetConfig())
	if err != nil {
		return nil, err
	}
	p, err := c.Provider(s.GetModelProvider())
	if err != nil {
		return nil, errdefs.New(errdefs.InvalidConfig, "%w", err)
	}
	if p, err = r.withLogin(p); err != nil {
		return nil, err
	}
	env := r.Env(sessionID)
	client, err := r.cfg.Clients.Client(p, func(name string) string {
		if v, ok := env[name]; ok {
			return v
		}
		return r.cfg.Env[name]
	})
	if err != nil {
		return nil, err
	}
	info, warning := r.cfg.Models.Lookup(s.GetModel(), model.Overrides{ContextWindow: c.ModelContextWindow(), AutoCompactLimit: c.AutoCompactLimit()})
	// Only the Responses API has freeform tools and a search of its own.
	full := p.WireAPI == config.WireResponses || p.WireAPI == config.WireScripted
	freeform := info.FreeformPatch && full
	shell := c.FeatureOn("shell_tool")
	rt := &agent.Runtime{
		Client: client, Model: info, Warning: warning, Provider: p.ID, ReviewModel: c.ReviewModel(),
		ServiceTier:      requestTier(s),
		StreamMaxRetries: p.StreamMaxRetries, AutoCompactLimit: info.AutoCompactLimit, CompactPrompt: c.CompactPrompt(),
		Env:             commandEnv(config.FilterEnv(c.EnvPolicy(), env)),
		ApprovalTimeout: r.cfg.ApprovalTimeout,
		IgnoreRules:     c.IgnoresRules(),
		UserAgent:       "heddle/" + r.cfg.Version,
		Tools: tool.Options{
			NoEnvironment: !shell, FreeformPatch: shell && freeform, FunctionPatch: shell && !freeform, UpdatePlan: c.ToolEnabled("update_plan"),
			ViewImage: shell && slices.Contains(info.Modalities, "image") && c.FeatureOn("view_image_tool"), RequestUserInput: c.FeatureOn("plan_questions"), Goals: c.FeatureOn("goals"),
			RequestPermissions: shell && c.FeatureOn("request_permissions_tool"),
			Escalation:         s.GetApprovalPolicy() != approval.Never,
		},
	}
	if full {
		rt.Tools.WebSearch = search(c, s)
	}
	rt.Hooks, rt.HookWarnings = hook.Of(c)
	if c.FeatureOn("multi_agent") {
		rt.Agents = agents(c)
	}
	if c.FeatureOn("skills") {
		rt.SkillEnabled, rt.SkillRoots = c.SkillEnabled, c.SkillRoots()
	}
	if !c.FeatureOn("auto_compaction") {
		rt.AutoCompactLimit = 0
	}
	// For a model that is not known, what the user set is sent: these services say
	// when they do not take it.
	if info.Reasoning || !full {
		rt.Effort, rt.Summary = s.GetReasoningEffort(), s.GetReasoningSummary()
	}
	if info.Verbosity {
		rt.Verbosity = s.GetVerbosity()
	}
	if secs, ok := c.Value(approvalTimeoutKey).(int64); ok && secs > 0 {
		rt.ApprovalTimeout = time.Duration(secs) * time.Second
	}
	return rt, nil
}

// Instructions implements agent.InstructionsOf.
func (r *Resolver) Instructions(ctx context.Context, s *heddlev1.ThreadSettings, sessionID string) (agent.Instructions, error) {
	c, err := r.LoadFor(ctx, sessionID, s.GetCwd(), s.GetConfig())
	if err != nil {
		return agent.Instructions{}, err
	}
	return agent.Instructions{Names: c.ProjectDocNames(), RootMarkers: c.ProjectRootMarkers(), MaxBytes: c.ProjectDocMaxBytes()}, nil
}

// search is what the search of a thread's service sees. Where commands reach any
// host anyhow it need not keep to what is stored.
func search(c *config.Config, s *heddlev1.ThreadSettings) model.Search {
	mode := model.Search(c.WebSearch())
	if mode == model.SearchCached && s.GetSandbox().GetLevel() == heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS {
		return model.SearchLive
	}
	return mode
}

// agents are the limits of sub-agents: of the table [agents], else six that may
// not start others.
func agents(c *config.Config) agent.Agents {
	a := agent.Agents{Max: 6, Depth: 1}
	if n, ok := c.Value("agents.max_threads").(int64); ok && n > 0 {
		a.Max = int(min(n, 64))
	}
	if n, ok := c.Value("agents.max_depth").(int64); ok && n >= 0 {
		a.Depth = int(min(n, 8))
	}
	return a
}

// quiet are variables that keep programs from paging, colouring and asking.
var quiet = map[string]string{
	"NO_COLOR": "1", "TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "GH_PAGER": "cat", "COLORTERM": "", "GIT_TERMINAL_PROMPT": "0",
}

// commandEnv lays the quiet variables over a filtered environment.
func commandEnv(env []string) []string {
	m := map[string]string{}
	for _, kv := range env {
		k, v, _ := strings.Cut(kv, "=")
		m[k] = v
	}
	maps.Copy(m, quiet)
	if m["LANG"] == "" && m["LC_ALL"] == "" {
		m["LANG"] = "C.UTF-8"
	}
	out := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return out
}

// requestTier is the tier that a model is asked with; none asks for the service's
// default, which not every service knows by a name.
func requestTier(s *heddlev1.ThreadSettings) string {
	if s.GetServiceTier() == "default" {
		return ""
	}
	return s.GetServiceTier()
}

func fill(field *string, value string) {
	if *field == "" {
		*field = value
	}
}
