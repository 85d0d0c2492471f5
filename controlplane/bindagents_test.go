package controlplane

import (
	"context"
	"sync"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// What is taken from a thread is taken from its running agents by their next
// command, however deep they stand; what it is given is not given to them.
func TestRunningAgentsAreBoundByTheirParent(t *testing.T) {
	var mu sync.Mutex
	var ids []string
	ready, goOn := make(chan struct{}), make(chan struct{})
	spawn := func(task string) func([]string) reply {
		return func(res []string) reply {
			if len(res) == 0 {
				return agentCall("s-"+task, "spawn_agent", map[string]any{"message": task})
			}
			mu.Lock()
			defer mu.Unlock()
			if len(res) == 1 {
				ids = append(ids, idOf(t, res))
			}
			return agentCall("w-"+task, "wait_agent", map[string]any{"targets": []string{idOf(t, res)}, "timeout_ms": 600000})
		}
	}
	waited := func(next func([]string) reply) func([]string) reply {
		return func(res []string) reply {
			if len(res) > 1 {
				return speak("m", "done")
			}
			return next(res)
		}
	}
	r, _ := agentRig(t, "[agents]\nmax_depth = 2\n", map[string]func([]string) reply{
		"parent": waited(spawn("child")),
		"child":  waited(spawn("grandchild")),
		"grandchild": func(res []string) reply {
			if len(res) > 0 {
				return speak("k", "ok")
			}
			return func(ctx context.Context, yield func(model.Event) error) error {
				close(ready)
				select {
				case <-goOn:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				return calls(shell("k0", "echo ran"))(ctx, yield)
			}
		},
	})
	full := workspaceWrite("never")
	full.Sandbox = &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS, Network: heddlev1.NetworkMode_NETWORK_MODE_FULL}
	ctx, th := r.thread(full)
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "parent")
	<-ready
	readOnly := &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY, Network: heddlev1.NetworkMode_NETWORK_MODE_OFF}
	for _, policy := range []*heddlev1.SandboxPolicy{readOnly, full.GetSandbox()} {
		if _, err := r.threads.UpdateSettings(ctx, &heddlev1.UpdateSettingsRequest{ThreadId: th.GetId(), Settings: &heddlev1.ThreadSettings{Sandbox: policy}}); err != nil {
			t.Fatal(err)
		}
	}
	close(goOn)
	f.turnEnd()
	mu.Lock()
	defer mu.Unlock()
	if len(ids) != 2 {
		t.Fatalf("agents %v", ids)
	}
	for _, id := range ids {
		if s := r.row(id).GetSettings(); s.GetSandbox().GetLevel() != heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY {
			t.Errorf("agent %s works under %v", id, s.GetSandbox())
		}
	}
	if n := r.exec.did(func(a *executorv1.Action) bool {
		return isProcess(a) && a.GetPolicy().GetLevel() == heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY
	}); n != 1 {
		t.Errorf("%d commands at read-only", n)
	}
}
