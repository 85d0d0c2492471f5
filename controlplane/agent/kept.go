package agent

import (
	"context"
	"strings"

	"github.com/heddle-dev/heddle/controlplane/approval"
)

// What belongs to an open question and to a thread's approvals, and is in no
// event, is kept beside the log: it is nobody's to see.

func envKey(threadID, approvalID string) string { return "asked/env/" + threadID + "/" + approvalID }

// keepEnv keeps the environment that a question is about until it is acted on:
// what was approved is what runs, also after a restart with another client.
func (t *turn) keepEnv(approvalID string, env []string) {
	if t.lt.ephemeral || t.agent.cfg.Marks == nil {
		return
	}
	if err := t.agent.cfg.Marks.SetMeta(context.WithoutCancel(t.ctx), envKey(t.lt.id, approvalID), []byte(strings.Join(env, "\x00"))); err != nil {
		t.agent.cfg.Logger.Error("keep the environment of a question", "thread", t.lt.id, "approval", approvalID, "error", err)
	}
}

// keptEnv is that environment; nil when none is kept.
func (t *turn) keptEnv(approvalID string) []string {
	if approvalID == "" || t.lt.ephemeral || t.agent.cfg.Marks == nil {
		return nil
	}
	v, err := t.agent.cfg.Marks.Meta(context.WithoutCancel(t.ctx), envKey(t.lt.id, approvalID))
	if err != nil {
		t.agent.cfg.Logger.Error("read the environment of a question", "thread", t.lt.id, "approval", approvalID, "error", err)
	}
	if len(v) == 0 {
		return nil
	}
	return strings.Split(string(v), "\x00")
}

// dropEnv forgets it, unless ctx says that the turn goes on later.
func (t *turn) dropEnv(ctx context.Context, approvalID string) {
	if approvalID == "" || suspended(ctx) || t.lt.ephemeral || t.agent.cfg.Marks == nil {
		return
	}
	if err := t.agent.cfg.Marks.SetMeta(context.WithoutCancel(ctx), envKey(t.lt.id, approvalID), nil); err != nil {
		t.agent.cfg.Logger.Error("forget the environment of a question", "thread", t.lt.id, "approval", approvalID, "error", err)
	}
}

func memoryKey(threadID string) string { return "accepted/" + threadID }

// remembered is what was accepted for the session in this thread, read once. It
// belongs to the thread, not to a run of the control plane, whose restarts
// nobody sees.
func (lt *live) remembered() *approval.Memory {
	lt.recall.Do(func() {
		if lt.ephemeral || lt.agent.cfg.Marks == nil {
			return
		}
		v, err := lt.agent.cfg.Marks.Meta(context.WithoutCancel(lt.agent.ctx), memoryKey(lt.id))
		if err != nil {
			// It is asked again.
			lt.agent.cfg.Logger.Error("read what was accepted", "thread", lt.id, "error", err)
		}
		lt.memory.Load(v)
	})
	return &lt.memory
}

// remember adds to it, durably.
func (lt *live) remember(add func(*approval.Memory)) {
	m := lt.remembered()
	add(m)
	if lt.ephemeral || lt.agent.cfg.Marks == nil {
		return
	}
	if err := lt.agent.cfg.Marks.SetMeta(context.WithoutCancel(lt.agent.ctx), memoryKey(lt.id), m.Bytes()); err != nil {
		lt.agent.cfg.Logger.Error("keep what was accepted", "thread", lt.id, "error", err)
	}
}

// Forget drops what is kept for a thread that was deleted.
func (a *Agent) Forget(ctx context.Context, threadID string) error {
	if a.cfg.Marks == nil {
		return nil
	}
	return a.cfg.Marks.SetMeta(ctx, memoryKey(threadID), nil)
}
