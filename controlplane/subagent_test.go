package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/config"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// agentModel answers by the last task in a request, of a person or an agent, and
// by how many results there are behind it.
type agentModel struct {
	mu       sync.Mutex
	requests []model.Request
	scripts  map[string]func(results []string) reply
}

func (m *agentModel) Client(config.Provider, func(string) string) (model.Client, error) {
	return m, nil
}

func (m *agentModel) Stream(ctx context.Context, req model.Request, yield func(model.Event) error) error {
	said, results := "", []string{}
	for _, e := range req.Input {
		switch {
		case m.isTask(e):
			said, results = e.GetMessage().GetParts()[0].GetText(), nil
		case e.GetToolOutput() != nil:
			results = append(results, e.GetToolOutput().GetParts()[0].GetText())
		}
	}
	m.mu.Lock()
	m.requests = append(m.requests, req)
	next := m.scripts[said]
	m.mu.Unlock()
	if next == nil {
		return &model.Error{Kind: model.KindOther, Message: "no script for " + said}
	}
	return next(results)(ctx, yield)
}

func (m *agentModel) isTask(e *heddlev1.HistoryEntry) bool {
	return e.GetMessage().GetRole() == "user" && m.scripts[e.GetMessage().GetParts()[0].GetText()] != nil
}

func (m *agentModel) offered(said, name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.requests {
		for _, e := range r.Input {
			if m.isTask(e) && e.GetMessage().GetParts()[0].GetText() == said {
				for _, t := range r.Tools {
					if t.Name == name {
						return true
					}
				}
			}
		}
	}
	return false
}

func agentCall(id, name string, args map[string]any) reply {
	b, _ := json.Marshal(args)
	return calls(&heddlev1.ToolCall{CallId: id, Namespace: "multi_agent_v1", Name: name, Arguments: string(b)})
}

func agentRig(t *testing.T, extra string, scripts map[string]func([]string) reply) (*rig, *agentModel) {
	t.Helper()
	m := &agentModel{scripts: scripts}
	r := newRig(t, func(c *Config) {
		c.Clients = m
		if err := os.WriteFile(filepath.Join(c.Home.Dir, "config.toml"), []byte("[features]\nmulti_agent = true\n"+extra), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	return r, m
}

func idOf(t *testing.T, results []string) string {
	t.Helper()
	var v struct {
		ID       string `json:"agent_id"`
		Nickname string `json:"nickname"`
	}
	if len(results) == 0 || json.Unmarshal([]byte(results[0]), &v) != nil || v.ID == "" || v.Nickname == "" {
		t.Errorf("results %q", results)
	}
	return v.ID
}

// A model starts an agent, waits for it, sends it more, and closes it.
func TestSubAgent(t *testing.T) {
	var told []string
	r, m := agentRig(t, "", map[string]func([]string) reply{
		"parent": func(res []string) reply {
			told = res
			switch len(res) {
			case 0:
				return agentCall("c1", "spawn_agent", map[string]any{"message": "child"})
			case 1:
				return agentCall("c2", "wait_agent", map[string]any{"targets": []string{idOf(t, res)}})
			case 2:
				return agentCall("c3", "send_input", map[string]any{"target": idOf(t, res), "message": "more"})
			case 3:
				return agentCall("c4", "wait_agent", map[string]any{"targets": []string{idOf(t, res)}})
			case 4:
				return agentCall("c5", "close_agent", map[string]any{"target": idOf(t, res)})
			case 5:
				return agentCall("c6", "send_input", map[string]any{"target": idOf(t, res), "message": "late"})
			case 6:
				return agentCall("c7", "wait_agent", map[string]any{"targets": []string{"01a22cea-0000-7000-8000-000000000000"}})
			}
			return speak("m", "done")
		},
		"child": func([]string) reply { return speak("k1", "first") },
		"more":  func([]string) reply { return speak("k2", "second") },
	})
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	turn := r.startTurn(ctx, th.GetId(), "parent")
	if end := f.turnEnd(); end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Fatal(end)
	}
	id := idOf(t, told)
	want := []string{id, `{"completed":"first"}`, "submission_id", `{"completed":"second"}`, `"previous_status":{"completed":"second"}`, "is closed", `"not_found"`}
	for i, w := range want {
		if i >= len(told) || !strings.Contains(told[i], w) {
			t.Fatalf("told %q, want %q in %d", told, w, i)
		}
	}
	var tools []string
	for _, e := range f.seen {
		if a := e.GetItemCompleted().GetItem().GetAgentCall(); a != nil {
			tools = append(tools, fmt.Sprint(a.GetTool(), " ", e.GetItemCompleted().GetItem().GetStatus() == heddlev1.ItemStatus_ITEM_STATUS_COMPLETED, " ", a.GetStates()[id].GetStatus()))
		}
	}
	if got := strings.Join(tools, ", "); got != "spawnAgent true pendingInit, wait true completed, sendInput true completed, wait true completed, closeAgent true completed, sendInput false , wait true " {
		t.Errorf("items %s", got)
	}
	child, err := r.threads.GetThread(ctx, &heddlev1.GetThreadRequest{ThreadId: id})
	if c := child.GetThread(); err != nil || c.GetParentThreadId() != th.GetId() || c.GetAgentDepth() != 1 || c.GetAgentNickname() == "" || c.GetTurnCount() != 2 || c.GetSettings().GetCwd() != "/work" {
		t.Errorf("child %v, %v", child, err)
	}
	turns, err := r.threads.ListTurns(ctx, &heddlev1.ListTurnsRequest{ThreadId: id, PageSize: 5})
	if err != nil || len(turns.GetTurns()) != 2 || turns.GetTurns()[0].GetTurn().GetRootTurnId() != turn.GetId() {
		t.Errorf("turns %v, %v", turns, err)
	}
	if !m.offered("parent", "spawn_agent") || m.offered("child", "spawn_agent") {
		t.Error("the tools are offered to the wrong agents")
	}
}

// Without the feature there are no such tools.
func TestNoSubAgents(t *testing.T) {
	m := &agentModel{scripts: map[string]func([]string) reply{"parent": func(res []string) reply {
		if len(res) == 0 {
			return agentCall("c1", "spawn_agent", map[string]any{"message": "child"})
		}
		return speak("m", res[0])
	}}}
	r := newRig(t, func(c *Config) { c.Clients = m })
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "parent")
	if end := f.turnEnd(); end.GetLastAgentMessage().GetAgentMessage().GetText() != "unsupported call: spawn_agent" || m.offered("parent", "spawn_agent") {
		t.Errorf("turn %v", end)
	}
}

// The number of open agents is bounded; closing one makes room.
func TestSubAgentLimit(t *testing.T) {
	var told []string
	r, _ := agentRig(t, "[agents]\nmax_threads = 1\n", map[string]func([]string) reply{
		"parent": func(res []string) reply {
			told = res
			switch len(res) {
			case 0, 1, 3:
				return agentCall(fmt.Sprint("c", len(res)), "spawn_agent", map[string]any{"message": "child"})
			case 2:
				return agentCall("c2", "close_agent", map[string]any{"target": idOf(t, res)})
			}
			return speak("m", "done")
		},
		"child": func([]string) reply { return speak("k", "ok") },
	})
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "parent")
	f.turnEnd()
	if len(told) != 4 || !strings.Contains(told[1], "max_threads") || !strings.Contains(told[3], "agent_id") {
		t.Errorf("told %q", told)
	}
}

// Who interrupts an agent stops all that works for it; its own end does not.
func TestInterruptReachesSubAgents(t *testing.T) {
	busy := make(chan struct{})
	r, _ := agentRig(t, "", map[string]func([]string) reply{
		"parent": func(res []string) reply {
			if len(res) == 0 {
				return agentCall("c1", "spawn_agent", map[string]any{"message": "child"})
			}
			return agentCall("c2", "wait_agent", map[string]any{"targets": []string{idOf(t, res)}, "timeout_ms": 600000})
		},
		"child": func([]string) reply {
			return func(ctx context.Context, _ func(model.Event) error) error {
				close(busy)
				<-ctx.Done()
				return context.Cause(ctx)
			}
		},
	})
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	turn := r.startTurn(ctx, th.GetId(), "parent")
	<-busy
	spawned := f.until(func(e *heddlev1.Event) bool { return e.GetItemCompleted().GetItem().GetAgentCall() != nil })
	child := spawned.GetItemCompleted().GetItem().GetAgentCall().GetReceiverThreadIds()[0]
	cf := r.follow(child, 1)
	if _, err := r.turns.InterruptTurn(ctx, &heddlev1.InterruptTurnRequest{ThreadId: th.GetId(), TurnId: turn.GetId()}); err != nil {
		t.Fatal(err)
	}
	if end := cf.turnEnd(); end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED {
		t.Errorf("child %v", end)
	}
	if end := f.turnEnd(); end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED {
		t.Errorf("parent %v", end)
	}
}
