package agent

import (
	"errors"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/prompt"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// compactIfNeeded replaces the history by a summary when the last model call
// came near the limit, before the turn's own input.
func (t *turn) compactIfNeeded() error {
	limit := t.rt.AutoCompactLimit
	t.lt.mu.Lock()
	used := t.lt.usage.GetLast().GetTotalTokens()
	t.lt.mu.Unlock()
	if limit <= 0 || used < limit || len(t.history) == 0 {
		return nil
	}
	return t.compact()
}

// compact asks the model for a summary and lets it stand for the history,
// together with what the person said.
func (t *turn) compact() error {
	item := &heddlev1.Item{
		Id: newID(), TurnId: t.id(), StartedAtMs: t.agent.now(), Status: heddlev1.ItemStatus_ITEM_STATUS_IN_PROGRESS,
		Content: &heddlev1.Item_ContextCompaction{ContextCompaction: &heddlev1.ContextCompaction{}},
	}
	t.takeInbox()
	t.record(itemStarted(item))
	if len(t.history) == 0 {
		item.Status, item.CompletedAtMs = heddlev1.ItemStatus_ITEM_STATUS_COMPLETED, t.agent.now()
		t.record(itemCompleted(item))
		return nil
	}
	summary, usage, err := t.summarize()
	item.CompletedAtMs = t.agent.now()
	if err != nil {
		item.Status = heddlev1.ItemStatus_ITEM_STATUS_FAILED
		t.record(itemCompleted(item))
		return err
	}
	item.Status = heddlev1.ItemStatus_ITEM_STATUS_COMPLETED
	entries := append(leading(t.history), prompt.Summary(summary))
	t.history = entries
	events := []*heddlev1.Event{{TurnId: t.id(), Payload: &heddlev1.Event_HistoryAppended{
		HistoryAppended: &heddlev1.HistoryAppended{Entries: entries, Replace: true, Private: t.private}}}, itemCompleted(item)}
	if usage != nil {
		events = append(events, usageUpdated(t.id(), t.lt.addUsage(usage, t.rt.Model.ContextWindow)))
	}
	t.record(events...)
	return nil
}

func (t *turn) summarize() (string, *heddlev1.TokenUsage, error) {
	r := t.request()
	r.Input = append(append([]*heddlev1.HistoryEntry(nil), t.history...), prompt.Compact(t.rt.CompactPrompt))
	r.Tools, r.OutputSchema = nil, nil
	for attempt := 1; ; attempt++ {
		text, usage, err := t.collect(t.ctx, r)
		var me *model.Error
		if err == nil || !errors.As(err, &me) || me.Retry == model.RetryNone || attempt > t.rt.StreamMaxRetries {
			return text, usage, err
		}
		if err := t.pause(attempt); err != nil && !errors.Is(err, errSteered) {
			return "", nil, err
		}
	}
}

// maxKeptUserBytes bounds what is kept of the person's own words.
const maxKeptUserBytes = 80 << 10

// leading keeps the developer messages and the person's messages, the latest of
// them where they are too many.
func leading(history []*heddlev1.HistoryEntry) []*heddlev1.HistoryEntry {
	budget := maxKeptUserBytes
	keep := make([]bool, len(history))
	for i := len(history) - 1; i >= 0; i-- {
		m := history[i].GetMessage()
		switch m.GetRole() {
		case "developer":
			keep[i] = true
		case "user":
			budget -= len(messageText(m))
			keep[i] = budget >= 0
		}
	}
	var kept []*heddlev1.HistoryEntry
	for i, k := range keep {
		if k {
			kept = append(kept, history[i])
		}
	}
	return kept
}
