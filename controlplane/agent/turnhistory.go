package agent

import (
	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/agent/prompt"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// remember adds to what the model is shown and returns the event for it.
func (t *turn) remember(entries ...*heddlev1.HistoryEntry) *heddlev1.Event {
	t.history = append(t.history, entries...)
	t.mu.Lock()
	t.witnessed = t.history[:len(t.history):len(t.history)]
	t.mu.Unlock()
	ev := historyAppended(t.row.GetId(), entries...)
	ev.GetHistoryAppended().Private = t.private
	return ev
}

// readHistory reads what the model is shown. Entries that were injected before
// are in the store.
func (t *turn) readHistory() error {
	t.lt.telling.Lock()
	defer t.lt.telling.Unlock()
	history, err := t.agent.store.History(t.ctx, t.lt.id)
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.inbox = nil
	t.mu.Unlock()
	if !t.private {
		t.history = history
		t.mu.Lock()
		t.witnessed = history[:len(history):len(history)]
		t.mu.Unlock()
		return nil
	}
	t.outer = history
	if t.resume != nil {
		t.history = t.resume.private
	}
	return nil
}

// answerOpenCalls gives every call in the history a result, as services demand:
// a fork of a running turn ends where its calls still ran.
func (t *turn) answerOpenCalls() {
	open := map[string]*heddlev1.ToolCall{}
	var order []string
	for _, e := range t.history {
		if c := e.GetToolCall(); c != nil {
			open[c.GetCallId()] = c
			order = append(order, c.GetCallId())
		}
		delete(open, e.GetToolOutput().GetCallId())
	}
	var entries []*heddlev1.HistoryEntry
	for _, id := range order {
		if c := open[id]; c != nil {
			entries = append(entries, outputEntry(c, text("aborted").parts))
			delete(open, id)
		}
	}
	if len(entries) > 0 {
		t.record(t.remember(entries...))
	}
}

// takeInput shows an input to client and model.
func (t *turn) takeInput(in *heddlev1.UserMessage) {
	events := t.tellSurroundings()
	if len(in.GetParts()) > 0 {
		in = t.withImages(in)
		events = append(events, t.shown(in, t.skillEntries(in)...)...)
	}
	if len(events) > 0 {
		t.record(events...)
	}
}

// shown is an input as an item and for the model, with what goes with it.
func (t *turn) shown(in *heddlev1.UserMessage, with ...*heddlev1.HistoryEntry) []*heddlev1.Event {
	now := t.agent.now()
	item := &heddlev1.Item{
		Id: newID(), TurnId: t.id(), StartedAtMs: now, Status: heddlev1.ItemStatus_ITEM_STATUS_COMPLETED,
		Content: &heddlev1.Item_UserMessage{UserMessage: withoutImageBytes(in)},
	}
	started := itemStarted(item)
	item.CompletedAtMs = now
	return []*heddlev1.Event{started, itemCompleted(item), t.remember(append([]*heddlev1.HistoryEntry{prompt.UserInput(in)}, with...)...)}
}

// withoutImageBytes is the message as items show it.
func withoutImageBytes(in *heddlev1.UserMessage) *heddlev1.UserMessage {
	shown := proto.CloneOf(in)
	for _, p := range shown.GetParts() {
		p.ImageData = nil
	}
	return shown
}
