package agent

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// inspectWait bounds the look at the workspace before a turn's first request.
	inspectWait = 10 * time.Second
	// prewarmWait bounds the preparation of a sandbox.
	prewarmWait  = 30 * time.Second
	defaultShell = "/bin/bash"
)

// Instructions say which instruction files of a workspace count.
type Instructions struct {
	// Names of files; the first that exists in a folder counts.
	Names []string
	// RootMarkers are names of entries, one of which marks the topmost folder that is
	// looked at; without, that is the thread's folder.
	RootMarkers []string
	// MaxBytes of all together; 0 means that none count.
	MaxBytes int64
}

// InstructionsOf finds them in the settings of a thread.
type InstructionsOf func(ctx context.Context, settings *heddlev1.ThreadSettings, sessionID string) (Instructions, error)

// Look looks at the workspace of a thread that is about to be created by a
// session.
func (a *Agent) Look(ctx context.Context, row *heddlev1.Thread, sessionID string) (*executorv1.Inspection, error) {
	lt := newLive(a, row.GetId())
	lt.fill(row, 0)
	return lt.inspect(ctx, sessionID)
}

// Prewarm makes a thread's sandbox and its login environment ready without
// waiting for them, and records which sandbox is in force. The session is the
// one whose environment commands will have.
func (a *Agent) Prewarm(ctx context.Context, threadID, sessionID string) error {
	lt, err := a.thread(ctx, threadID)
	if err != nil {
		return err
	}
	a.wg.Go(func() {
		ctx, cancel := context.WithTimeout(a.ctx, prewarmWait)
		defer cancel()
		if _, err := lt.startServers(ctx, sessionID); err != nil {
			a.cfg.Logger.Warn("start MCP servers", "thread", threadID, "error", err)
		}
	})
	a.wg.Go(func() {
		ctx, cancel := context.WithTimeout(a.ctx, prewarmWait)
		defer cancel()
		s := lt.currentSettings()
		prepare := &executorv1.Prepare{}
		// Without settings that hold, the turn will say so; the sandbox is made ready all the same.
		if rt, err := a.cfg.Resolver.Resolve(ctx, s, sessionID); err == nil {
			prepare.Shell, prepare.Env = lt.shell(), rt.Env
		}
		res, err := lt.act(ctx, &executorv1.Action{
			Policy: proto.CloneOf(s.GetSandbox()), Workspace: s.GetCwd(), Kind: &executorv1.Action_Prepare{Prepare: prepare},
		})
		report := res.GetPrepared().GetReport()
		switch {
		case err != nil:
			a.cfg.Logger.Info("prewarm", "thread", threadID, "error", err)
		case res.GetError().GetCode() == "cancelled":
		case res.GetError() != nil:
			a.cfg.Logger.Warn("prewarm", "thread", threadID, "code", res.GetError().GetCode(), "error", res.GetError().GetMessage())
		case report != nil && lt.newReport(report):
			lt.note(&heddlev1.Event{Payload: &heddlev1.Event_SandboxReported{SandboxReported: &heddlev1.SandboxReported{Report: report}}})
		}
	})
	return nil
}

// newReport keeps the report and tells whether it differs from the last one.
func (lt *live) newReport(r *heddlev1.SandboxReport) bool {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	if proto.Equal(lt.report, r) {
		return false
	}
	lt.report = proto.CloneOf(r)
	return true
}

func (lt *live) inspect(ctx context.Context, sessionID string) (*executorv1.Inspection, error) {
	s := lt.currentSettings()
	lt.mu.Lock()
	known := lt.inspection
	if lt.inspected != s.GetCwd() {
		known = nil
	}
	lt.mu.Unlock()
	if known != nil {
		return known, nil
	}
	wanted, err := lt.agent.cfg.Instructions(ctx, s, sessionID)
	if err != nil {
		return nil, err
	}
	paths := folders(s.GetCwd(), s.GetSandbox())
	res, err := lt.act(ctx, &executorv1.Action{
		Policy: proto.CloneOf(s.GetSandbox()), Workspace: s.GetCwd(),
		Kind: &executorv1.Action_Inspect{Inspect: &executorv1.Inspect{
			Cwd: s.GetCwd(), InstructionNames: wanted.Names, RootMarkers: wanted.RootMarkers, MaxBytes: wanted.MaxBytes, Places: paths,
		}},
	})
	if err != nil {
		return nil, err
	}
	if why := res.GetError(); why != nil {
		return nil, &inspectError{why}
	}
	lt.mu.Lock()
	lt.inspection, lt.inspected = res.GetInspection(), s.GetCwd()
	owned := lt.epoch > 0
	lt.mu.Unlock()
	if owned {
		seen := &heddlev1.WorkspaceSeen{Git: res.GetInspection().GetGit()}
		for _, f := range res.GetInspection().GetInstructions() {
			seen.InstructionSources = append(seen.InstructionSources, f.GetPath())
		}
		lt.note(&heddlev1.Event{Payload: &heddlev1.Event_WorkspaceSeen{WorkspaceSeen: seen}})
		if err := lt.notePlaces(ctx, paths, res.GetInspection().GetPlaces()); err != nil {
			return nil, err
		}
	}
	return res.GetInspection(), nil
}

type inspectError struct{ why *heddlev1.ActionError }

func (e *inspectError) Error() string { return "look at the workspace: " + e.why.GetMessage() }

// shell is the shell that commands run in.
func (lt *live) shell() string {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	if s := lt.inspection.GetShell(); s != "" {
		return s
	}
	return defaultShell
}

// warnOnce reports whether the warning was not shown in this thread before.
func (lt *live) warnOnce(text string) bool {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	if lt.warned[text] || len(lt.warned) > 256 {
		return false
	}
	lt.warned[text] = true
	return true
}
