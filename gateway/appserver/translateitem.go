package appserver

import (
	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// openItem is an item that was not completed yet.
type openItem struct {
	prefix []byte
	// item is as it was started, nil if its start was not seen.
	item *heddlev1.Item
	// text is what was shown of a message.
	text   []byte
	output outputView
}

func (tr *translator) itemStarted(e *heddlev1.Event, it *heddlev1.Item, emit func(note) error) error {
	if tr.global {
		return nil
	}
	tr.items[it.GetId()] = &openItem{
		prefix: deltaPrefix(tr.thread, e.GetTurnId(), it.GetId()), item: it,
		text: []byte(it.GetAgentMessage().GetText() + it.GetPlan().GetText()),
	}
	return emit(note{method: "item/started", seq: e.GetSeq(), params: struct {
		turnRef
		Item        any   `json:"item"`
		StartedAtMs int64 `json:"startedAtMs"`
	}{turnRef{tr.thread, e.GetTurnId()}, protocol.FromItem(it, tr.opts), it.GetStartedAtMs()}})
}

// open returns the item's state, also for one that started before the cursor.
func (tr *translator) open(e *heddlev1.Event, id string) *openItem {
	o := tr.items[id]
	if o == nil {
		o = &openItem{prefix: deltaPrefix(tr.thread, e.GetTurnId(), id)}
		tr.items[id] = o
	}
	return o
}

func (tr *translator) itemDelta(e *heddlev1.Event, d *heddlev1.ItemDelta, emit func(note) error) error {
	if tr.global {
		return nil
	}
	o := tr.open(e, d.GetItemId())
	n := note{seq: e.GetSeq()}
	switch p := d.GetDelta().(type) {
	case *heddlev1.ItemDelta_AgentText:
		n.method, n.body = "item/agentMessage/delta", delta(o.prefix, p.AgentText, "", 0)
		o.show(p.AgentText)
	case *heddlev1.ItemDelta_PlanText:
		n.method, n.body = "item/plan/delta", delta(o.prefix, p.PlanText, "", 0)
		o.show(p.PlanText)
	case *heddlev1.ItemDelta_SummaryText:
		n.method, n.body = "item/reasoning/summaryTextDelta", delta(o.prefix, p.SummaryText.GetText(), "summaryIndex", p.SummaryText.GetIndex())
	case *heddlev1.ItemDelta_ReasoningText:
		n.method, n.body = "item/reasoning/textDelta", delta(o.prefix, p.ReasoningText.GetText(), "contentIndex", p.ReasoningText.GetIndex())
	case *heddlev1.ItemDelta_SummaryPart:
		n.method = "item/reasoning/summaryPartAdded"
		n.params = struct {
			itemRef
			SummaryIndex int32 `json:"summaryIndex"`
		}{itemRef{tr.thread, e.GetTurnId(), d.GetItemId()}, p.SummaryPart}
	default:
		return nil
	}
	return emit(n)
}

// show notes shown text, of which the beginning must be known.
func (o *openItem) show(text string) {
	if o.item != nil {
		o.text = append(o.text, text...)
	}
}

// itemCompleted shows what the deltas left out before the item itself: the tail
// of the output, and text whose deltas were compacted away.
func (tr *translator) itemCompleted(e *heddlev1.Event, it *heddlev1.Item, emit func(note) error) error {
	if tr.global {
		return nil
	}
	if o := tr.items[it.GetId()]; o != nil {
		delete(tr.items, it.GetId())
		if rest := o.output.flush(); len(rest) > 0 {
			if err := emit(note{method: outputMethod, body: delta(o.prefix, rest, "", 0)}); err != nil {
				return err
			}
		}
		method, text := "item/agentMessage/delta", it.GetAgentMessage().GetText()
		if it.GetPlan() != nil {
			method, text = "item/plan/delta", it.GetPlan().GetText()
		}
		if o.item != nil && len(o.text) < len(text) {
			if err := emit(note{method: method, body: delta(o.prefix, protocol.Clip(text[len(o.text):]), "", 0)}); err != nil {
				return err
			}
		}
	}
	return emit(note{method: "item/completed", seq: e.GetSeq(), params: struct {
		turnRef
		Item              any    `json:"item"`
		CompletedAtMs     int64  `json:"completedAtMs"`
		ContentTokenCount *int64 `json:"contentTokenCount"`
	}{turnRef{tr.thread, e.GetTurnId()}, protocol.FromItem(it, tr.opts), it.GetCompletedAtMs(), nil}})
}
