package agent

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/approval"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// resumption is what a turn did before a restart, read from its events.
type resumption struct {
	started bool
	// first is the turn's input unless it was shown, steers are the accepted ones
	// that were not.
	first  *heddlev1.UserMessage
	steers []*heddlev1.UserMessage
	// prompted is whether hooks ran for inputs, which they can refuse.
	prompted bool
	last     *heddlev1.Item
	// private are a reviewer's entries; entered and left say which review items
	// were shown.
	private       []*heddlev1.HistoryEntry
	entered, left bool
	// shell is true when the turn's own command was begun.
	shell bool
	// hooks are the last runs of the turn's hooks by id: how they ended, or that
	// they were started.
	hooks map[string]*heddlev1.HookRun
	// continued is how often stop hooks made the turn go on.
	continued int
	// diff is the last one that was shown.
	diff string
	// base is the commit that the diff is against.
	base string
	// open are model items that were not completed, with what was shown of them.
	open []*heddlev1.Item
	// calls are the turn's tool calls by id, order the same in call order.
	calls map[string]*pastCall
	order []*pastCall
	// asked are the pending questions by item.
	asked map[string]*approval.Pending
	// waiting is true until the client came back or is given up; guarded by the
	// turn's lock.
	waiting bool
}

// pastCall is one tool call and how far it got.
type pastCall struct {
	req *heddlev1.ToolCall
	// answered is true when the model's history holds its result.
	answered bool
	item     *heddlev1.Item
	ended    bool
	intents  map[string]*heddlev1.ActionIntent
	resolved map[string]bool
	decided  *heddlev1.Approval
}

// readPast folds the events of an open turn.
func (a *Agent) readPast(ctx context.Context, threadID string, row *heddlev1.Turn) (*resumption, error) {
	p := &resumption{calls: map[string]*pastCall{}, hooks: map[string]*heddlev1.HookRun{}, asked: map[string]*approval.Pending{}, waiting: true}
	items := map[string]*heddlev1.Item{}
	after := row.GetFirstSeq() - 1
	for {
		events, head, err := a.store.Events(ctx, threadID, after, 0)
		if err != nil {
			return nil, err
		}
		for _, ev := range events {
			if ev.GetTurnId() == row.GetId() {
				p.add(ev, items)
			}
			after = max(ev.GetSeq(), ev.GetRangeCompacted().GetLastSeq())
		}
		if len(events) == 0 || after >= head {
			break
		}
	}
	for _, item := range items {
		if item.GetAgentMessage() != nil || item.GetReasoning() != nil || item.GetWebSearch() != nil || item.GetContextCompaction() != nil || item.GetPlan() != nil || item.GetReviewMode() != nil {
			p.open = append(p.open, item)
		}
	}
	return p, nil
}

func (p *resumption) add(ev *heddlev1.Event, items map[string]*heddlev1.Item) {
	switch e := ev.GetPayload().(type) {
	case *heddlev1.Event_TurnAccepted:
		if len(e.TurnAccepted.GetInput().GetParts()) > 0 {
			p.first = e.TurnAccepted.GetInput()
		}
	case *heddlev1.Event_TurnStarted:
		p.started = true
	case *heddlev1.Event_SteerAccepted:
		p.steers = append(p.steers, e.SteerAccepted.GetInput())
	case *heddlev1.Event_HistoryAppended:
		p.history(e.HistoryAppended)
	case *heddlev1.Event_ItemStarted:
		p.itemStarted(proto.CloneOf(e.ItemStarted.GetItem()), items)
	case *heddlev1.Event_ItemDelta:
		ShowDelta(items[e.ItemDelta.GetItemId()], e.ItemDelta)
	case *heddlev1.Event_ItemCompleted:
		p.itemCompleted(e.ItemCompleted.GetItem(), items)
	case *heddlev1.Event_HookStarted:
		p.hook(e.HookStarted.GetRun())
	case *heddlev1.Event_HookCompleted:
		p.hook(e.HookCompleted.GetRun())
	case *heddlev1.Event_DiffUpdated:
		p.diff, p.base = e.DiffUpdated.GetDiff(), e.DiffUpdated.GetBaseCommit()
	case *heddlev1.Event_ActionsIntended:
		for _, i := range e.ActionsIntended.GetActions() {
			if c := p.calls[i.GetCallId()]; c != nil {
				c.intents[i.GetActionId()] = i
				if c.item == nil {
					c.item = items[i.GetItemId()]
				}
			}
		}
	case *heddlev1.Event_ActionsResolved:
		for _, id := range e.ActionsResolved.GetActionIds() {
			for _, c := range p.order {
				if c.intents[id] != nil {
					c.resolved[id] = true
				}
			}
		}
	case *heddlev1.Event_ApprovalResolved:
		a := e.ApprovalResolved.GetApproval()
		for _, c := range p.order {
			if c.item.GetId() == a.GetItemId() && c.item != nil || (a.GetUserInput() != nil || a.GetPermissions() != nil) && c.req.GetCallId() == a.GetItemId() {
				c.decided = a
			}
		}
	}
}

func (p *resumption) history(h *heddlev1.HistoryAppended) {
	if h.GetPrivate() && h.GetReplace() {
		p.private = nil
	}
	if h.GetPrivate() {
		p.private = append(p.private, h.GetEntries()...)
	}
	for _, entry := range h.GetEntries() {
		if c := entry.GetToolCall(); c != nil {
			pc := &pastCall{req: c, intents: map[string]*heddlev1.ActionIntent{}, resolved: map[string]bool{}}
			p.calls[c.GetCallId()] = pc
			p.order = append(p.order, pc)
		}
		if o := entry.GetToolOutput(); o != nil {
			if c := p.calls[o.GetCallId()]; c != nil {
				c.answered = true
			}
		}
	}
}

func (p *resumption) itemStarted(item *heddlev1.Item, items map[string]*heddlev1.Item) {
	items[item.GetId()] = item
	if item.GetHookPrompt() != nil {
		p.continued++
	}
	if item.GetUserMessage() != nil {
		p.inputShown(item.GetUserMessage())
		return
	}
	if m := item.GetReviewMode(); m != nil {
		p.entered, p.left = p.entered || m.GetEntered(), p.left || !m.GetEntered()
	}
	if item.GetCommandExecution().GetSource() == sourceUser {
		p.shell = true
		return
	}
	if item.GetCommandExecution() == nil && item.GetFileChange() == nil && item.GetDynamicToolCall() == nil && item.GetMcpToolCall() == nil && item.GetAgentCall() == nil {
		return
	}
	if c := p.calls[item.GetId()]; c != nil && c.item == nil {
		c.item = item
		return
	}
	// The item has an id of its own where the call's was taken.
	for _, c := range p.order {
		if c.item == nil && !c.answered {
			c.item = item
			return
		}
	}
}

func (p *resumption) itemCompleted(item *heddlev1.Item, items map[string]*heddlev1.Item) {
	delete(items, item.GetId())
	if item.GetAgentMessage() != nil {
		p.last = item
	}
	for _, c := range p.order {
		if c.item.GetId() == item.GetId() && c.item != nil {
			c.item, c.ended = proto.CloneOf(item), true
		}
	}
}

// ShowDelta adds an increment to the item that it belongs to.
func ShowDelta(item *heddlev1.Item, d *heddlev1.ItemDelta) {
	if m := item.GetAgentMessage(); m != nil {
		m.Text += d.GetAgentText()
	}
	if m := item.GetPlan(); m != nil {
		m.Text += d.GetPlanText()
	}
	r := item.GetReasoning()
	if r == nil {
		return
	}
	switch k := d.GetDelta().(type) {
	case *heddlev1.ItemDelta_SummaryPart:
		r.Summary = grow(r.Summary, k.SummaryPart)
	case *heddlev1.ItemDelta_SummaryText:
		r.Summary = grow(r.Summary, k.SummaryText.GetIndex())
		r.Summary[k.SummaryText.GetIndex()] += k.SummaryText.GetText()
	case *heddlev1.ItemDelta_ReasoningText:
		r.Content = grow(r.Content, k.ReasoningText.GetIndex())
		r.Content[k.ReasoningText.GetIndex()] += k.ReasoningText.GetText()
	}
}

// intent returns the unresolved intent of a kind.
func (c *pastCall) intent(kind string) *heddlev1.ActionIntent {
	for id, i := range c.intents {
		if i.GetKind() == kind && !c.resolved[id] {
			return i
		}
	}
	return nil
}
