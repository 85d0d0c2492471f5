package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/heddle-dev/heddle/cmd/heddle/internal/execmode"
	"github.com/heddle-dev/heddle/controlplane/config"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// options checks the flags and builds what the run needs from them.
func (f *execFlags) options(prompt string, resume *execmode.Resume) (execmode.Options, error) {
	var none execmode.Options
	if !slices.Contains([]string{"auto", "always", "never"}, f.color) {
		return none, fmt.Errorf("--color %s: want auto, always or never", f.color)
	}
	cwd, err := workFolder(f.cd, f.connect == "")
	if err != nil {
		return none, err
	}
	overrides, notes, err := f.overrides()
	if err != nil {
		return none, err
	}
	env := environ()
	if key := env["CODEX_API_KEY"]; key != "" {
		env["OPENAI_API_KEY"] = key
	}
	effective, err := f.effective(cwd, env, overrides)
	if err != nil {
		return none, err
	}
	if f.oss {
		if err := f.localProvider(effective, overrides); err != nil {
			return none, err
		}
		if effective, err = f.effective(cwd, env, overrides); err != nil {
			return none, err
		}
	}
	if f.connect == "" && !f.skipGit && !f.bypass && !execmode.InRepository(cwd) && effective.TrustLevel(cwd) != "trusted" {
		return none, &exitError{code: exitFailed, err: errors.New(notTrusted)} //nolint:staticcheck // the text is API: callers look for it
	}
	if f.oss && f.connect == "" {
		if err := probe(effective); err != nil {
			return none, &exitError{code: exitFailed, err: err}
		}
	}
	if f.trust && f.connect != "" {
		return none, errors.New("--trust is about this home's config: it does not go with --connect")
	}
	if f.trust {
		if err := saveTrust(cwd, env); err != nil {
			return none, &exitError{code: exitFailed, err: err}
		}
	}
	attach, err := f.session.attach(cwd, env, overrides)
	if err != nil {
		return none, err
	}
	attach.OnDisconnect = heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT
	opts := execmode.Options{
		Attach: attach, Resume: resume, JSON: f.json || f.legacyJSON, LastMessageFile: f.lastMessage, Notes: notes,
		Thread: f.thread(cwd, env, effective, resume != nil),
	}
	if resume != nil {
		switch {
		case resume.ID != "" || resume.Cwd == "*":
			resume.Cwd = ""
		default:
			resume.Cwd = cwd
		}
	}
	if f.review != nil {
		opts.Review = f.review
		return opts, nil
	}
	if opts.Input, err = execmode.Message(prompt, f.images); err != nil {
		return none, err
	}
	if f.schema != "" {
		if opts.Schema, err = execmode.ReadSchema(f.schema); err != nil {
			return none, err
		}
	}
	return opts, nil
}

// overrides are the config keys of the command line, with notes on folders that
// are not there.
func (f *execFlags) overrides() (keys map[string]any, notes []string, err error) {
	if keys, err = f.session.overrides(); err != nil {
		return nil, nil, err
	}
	level, err := f.level()
	if err != nil {
		return nil, nil, err
	}
	if len(f.addDirs) > 0 {
		roots, err := absolute(f.addDirs)
		if err != nil {
			return nil, nil, err
		}
		if f.connect == "" {
			notes = missing(roots)
		}
		const key = "sandbox_workspace_write.writable_roots"
		keys[key] = append(roots, listOf(keys[key])...)
	}
	if level != "" {
		keys["sandbox_mode"] = level
	}
	if f.model != "" {
		keys["model"] = f.model
	}
	if f.approveForMe {
		keys["approval_policy"], keys["approvals_reviewer"] = "on-request", "auto_review"
	}
	if _, given := keys["approval_policy"]; !given || f.bypass {
		keys["approval_policy"] = "never"
	}
	return keys, notes, nil
}

// level is the sandbox level of the command line; empty for none.
func (f *execFlags) level() (string, error) {
	switch {
	case f.approveForMe && (f.sandbox != "" || f.fullAuto || f.bypass):
		return "", errors.New("--approve-for-me means workspace-write: leave --sandbox, --full-auto and --dangerously-bypass-approvals-and-sandbox out")
	case f.approveForMe:
		return "workspace-write", nil
	case f.bypass:
		return "danger-full-access", nil
	case f.sandbox == "" && f.fullAuto:
		return "workspace-write", nil
	case f.sandbox == "", slices.Contains([]string{"read-only", "workspace-write", "danger-full-access"}, f.sandbox):
		return f.sandbox, nil
	}
	return "", fmt.Errorf("--sandbox %s: want read-only, workspace-write or danger-full-access", f.sandbox)
}

// effective reads the config as the control plane will, so that a mistake in it
// is told before anything starts. A value that cannot be used ends the run: its
// default may allow more than what was meant.
func (f *execFlags) effective(cwd string, env map[string]string, overrides map[string]any) (*config.Config, error) {
	home, err := config.ResolveHome(env)
	if err != nil {
		return nil, err
	}
	cfg, err := config.Load(config.Options{
		Home: home, Env: env, Profile: f.session.profile, Overrides: overrides, Cwd: cwd,
		IgnoreUserConfig: f.session.ignoreUserConfig, Strict: f.session.strict,
	})
	if err != nil {
		return nil, err
	}
	if err := unusable(cfg); err != nil {
		return nil, err
	}
	return cfg, nil
}

// unusable is the first value of the config that cannot be used, nil if there is
// none.
func unusable(cfg *config.Config) error {
	for _, w := range cfg.Warnings() {
		if !strings.HasPrefix(w.GetSummary(), "Unknown ") {
			w.Summary = strings.TrimSuffix(w.GetSummary(), "; using defaults")
			return &config.Error{Warning: w}
		}
	}
	_, err := cfg.Provider(cfg.ModelProvider())
	return err
}

// thread describes the thread. Settings of a resumed thread are its own; only
// what was asked for here is laid over them.
func (f *execFlags) thread(cwd string, env map[string]string, cfg *config.Config, resumed bool) *heddlev1.StartThreadRequest {
	policy, granular := cfg.ApprovalPolicy()
	settings := &heddlev1.ThreadSettings{ApprovalPolicy: policy}
	if granular != nil {
		settings.ApprovalPolicy = "" // the session's config says it in full
	}
	if !resumed || f.cd != "" {
		settings.Cwd = cwd
	}
	if resumed {
		settings.Model = f.model
		if f.oss {
			settings.Model, settings.ModelProvider = cfg.Model(), cfg.ModelProvider()
		}
		if f.approveForMe {
			settings.ApprovalsReviewer = "auto_review"
		}
		if f.approveForMe || f.sandbox != "" || f.fullAuto || f.bypass || len(f.addDirs) > 0 {
			settings.Sandbox = cfg.SandboxPolicy()
		}
	}
	originator := env["CODEX_INTERNAL_ORIGINATOR_OVERRIDE"]
	if originator == "" {
		originator = "heddle_exec"
	}
	return &heddlev1.StartThreadRequest{
		Settings: settings, Ephemeral: f.ephemeral, Source: "exec", ThreadSource: f.threadSource,
		Originator: originator, Version: buildVersion(),
	}
}

// workFolder returns the folder to work in. One of another machine cannot be
// looked at from here.
func workFolder(dir string, here bool) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("working folder: %w", err)
	}
	if !here {
		return abs, nil
	}
	info, err := os.Stat(abs)
	if err != nil {
		return "", fmt.Errorf("working folder: %w", err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("working folder %s is not a folder", abs)
	}
	return abs, nil
}

func absolute(paths []string) ([]any, error) {
	var out []any
	for _, p := range paths {
		abs, err := filepath.Abs(p)
		if err != nil {
			return nil, fmt.Errorf("--add-dir %s: %w", p, err)
		}
		out = append(out, abs)
	}
	return out, nil
}

// missing warns of folders that were named and are not there.
func missing(dirs []any) (notes []string) {
	for _, dir := range dirs {
		path := fmt.Sprint(dir)
		if info, err := os.Stat(path); err != nil {
			notes = append(notes, fmt.Sprintf("--add-dir %s: %v", path, cause(err)))
		} else if !info.IsDir() {
			notes = append(notes, fmt.Sprintf("--add-dir %s: not a folder", path))
		}
	}
	return notes
}

// cause leaves the path out of an error; the caller names it.
func cause(err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err
	}
	return err
}

func listOf(v any) []any {
	list, _ := v.([]any)
	return list
}
