package agent

import (
	"context"
	"strings"

	"github.com/heddle-dev/heddle/controlplane/agent/prompt"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Inject adds entries to what a thread's model is shown, durably. A running turn
// shows them with its next request.
func (a *Agent) Inject(ctx context.Context, threadID string, entries []*heddlev1.HistoryEntry) error {
	lt, err := a.acquired(ctx, threadID)
	if err != nil {
		return err
	}
	defer lt.release()
	if t := lt.current(); t != nil && t.snapshot().GetKind() == kindCompact && !t.ending() {
		return errdefs.New(errdefs.Busy, "the history of thread %s is being compacted", threadID)
	}
	return a.tell(ctx, lt, entries...)
}

// tell records entries and gives them to the turn that runs, if any.
func (a *Agent) tell(ctx context.Context, lt *live, entries ...*heddlev1.HistoryEntry) error {
	// A turn that reads its history meanwhile must not miss them nor see them twice.
	lt.telling.Lock()
	defer lt.telling.Unlock()
	if t := lt.current(); t != nil {
		t.mu.Lock()
		t.inbox = append(t.inbox, entries...)
		t.mu.Unlock()
	}
	return lt.persist(ctx, historyAppended("", entries...))
}

// takeInbox adds what was injected since the last request. It is recorded
// already.
func (t *turn) takeInbox() {
	t.mu.Lock()
	entries := t.inbox
	t.inbox = nil
	t.mu.Unlock()
	if t.private {
		t.outer = append(t.outer, entries...)
		return
	}
	t.history = append(t.history, entries...)
}

// introduced reports whether a history begins with what a thread's model is
// told first. What was injected into an empty thread does not count.
func introduced(history []*heddlev1.HistoryEntry, base string) bool {
	if base == "" {
		base = prompt.Base()
	}
	for _, e := range history {
		m := e.GetMessage()
		switch m.GetRole() {
		case "developer":
			if messageText(m) == base {
				return true
			}
		case "user":
			for _, p := range m.GetParts() {
				if strings.HasPrefix(p.GetText(), "<environment_context>") {
					return true
				}
			}
		}
	}
	return false
}

// Revert takes a turn and all later ones back, durably. A running turn is
// interrupted first.
func (a *Agent) Revert(ctx context.Context, threadID, beforeTurnID string) error {
	lt, err := a.acquired(ctx, threadID)
	if err != nil {
		return err
	}
	defer lt.release()
	from, err := a.store.Turn(ctx, threadID, beforeTurnID)
	if err != nil {
		return err
	}
	if t := lt.current(); t != nil {
		t.interrupt(causeThreadClosed)
		if err := t.awaitEnd(ctx); err != nil {
			return err
		}
	}
	row, err := a.store.Thread(ctx, threadID)
	if err != nil {
		return err
	}
	reverted := &heddlev1.ThreadReverted{BeforeTurnId: beforeTurnID, FirstOrdinal: from.GetOrdinal(), LastOrdinal: row.GetTurnCount(), Preview: row.GetPreview()}
	first, err := a.store.ListTurns(ctx, &heddlev1.ListTurnsRequest{ThreadId: threadID, PageSize: 1, Ascending: true, View: heddlev1.ItemsView_ITEMS_VIEW_NONE})
	if err != nil {
		return err
	}
	if len(first.GetTurns()) == 0 || first.GetTurns()[0].GetTurn().GetOrdinal() >= from.GetOrdinal() {
		reverted.Preview = ""
	}
	if err := lt.persist(ctx, &heddlev1.Event{Payload: &heddlev1.Event_ThreadReverted{ThreadReverted: reverted}}); err != nil {
		return err
	}
	lt.mu.Lock()
	// What the model was told of its surroundings may be gone: all is told again.
	lt.told, lt.loaded = &prompt.Context{}, nil
	lt.mu.Unlock()
	return nil
}
