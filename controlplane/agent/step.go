package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/tool"
	"github.com/heddle-dev/heddle/proto/failpoint"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Backoff of a stream that is asked for again.
const (
	backoffBase = 200 * time.Millisecond
	backoffMax  = 10 * time.Second
)

// modelStep asks the model until one stream completes, and commits what it
// said together with the intents of its calls. It returns the calls, ready to
// run; errSteered means that new input came first.
func (t *turn) modelStep() ([]*call, error) {
	if t.takeOverrides() {
		if err := t.resolve(); err != nil {
			return nil, err
		}
	}
	for attempt := 1; ; attempt++ {
		s, err := t.ask()
		if err == nil {
			return t.commitStep(s)
		}
		if err := t.abandon(s, err); err != nil {
			return nil, err
		}
		if cause := context.Cause(t.ctx); cause != nil {
			return nil, cause
		}
		var me *model.Error
		if !errors.As(err, &me) || me.Retry == model.RetryNone || attempt > t.rt.StreamMaxRetries {
			return nil, err
		}
		t.record(errorRaised(t.id(), &heddlev1.TurnError{
			Message: fmt.Sprintf("Reconnecting... %d/%d", attempt, t.rt.StreamMaxRetries),
			Kind:    model.KindStreamDisconnected, AdditionalDetails: cmp.Or(me.Details, me.Message),
		}, true))
		if err := t.pause(attempt); err != nil {
			return nil, err
		}
	}
}

// pause waits before the next attempt; new input ends the wait.
func (t *turn) pause(attempt int) error {
	ctx, drop, err := t.openRequest()
	if err != nil {
		return err
	}
	defer drop()
	d := min(backoffBase<<min(attempt-1, 10), backoffMax)
	d += rand.N(d/10 + 1)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// openRequest makes a context that new input ends. It fails with errSteered
// when input waits already.
func (t *turn) openRequest() (context.Context, func(), error) {
	ctx, cancel := context.WithCancelCause(t.ctx)
	t.mu.Lock()
	waiting := len(t.inputs) > 0
	t.dropRequest = cancel
	t.mu.Unlock()
	if waiting {
		cancel(errSteered)
		return nil, nil, errSteered
	}
	return ctx, func() {
		t.mu.Lock()
		t.dropRequest = nil
		t.mu.Unlock()
		cancel(nil)
	}, nil
}

// ask sends one request and shows what comes. The step is returned with the
// error too, since it holds what was shown.
func (t *turn) ask() (*step, error) {
	s := &step{t: t, open: map[string]*openItem{}}
	ctx, drop, err := t.openRequest()
	if err != nil {
		return s, err
	}
	defer drop()
	err = t.rt.Client.Stream(ctx, t.request(), s.handle)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return s, err
	}
	return s, nil
}

func (t *turn) request() model.Request {
	settings := t.settings()
	r := model.Request{
		Model: t.rt.Model.ID, Input: t.history, Tools: tool.Specs(t.toolOptions()), ParallelToolCalls: t.rt.Model.ParallelToolCalls,
		Effort: t.rt.Effort, Summary: t.rt.Summary, Verbosity: t.rt.Verbosity, ServiceTier: t.rt.ServiceTier,
		ThreadID: t.lt.id, SessionID: t.lt.id, Originator: t.lt.originator, UserAgent: t.rt.UserAgent,
	}
	if r.Originator != "" {
		r.UserAgent = r.Originator + "/" + strings.TrimPrefix(t.rt.UserAgent, "heddle/") + " (" + t.rt.UserAgent + ")"
	}
	if m := settings.GetModel(); m != "" {
		r.Model = m
	}
	if schema := t.row.GetOutputSchema(); schema != nil {
		r.OutputSchema = schema.AsMap()
	}
	return r
}

// step is what one model stream said.
type step struct {
	t    *turn
	open map[string]*openItem
	// order is the order of open items.
	order   []string
	entries []*heddlev1.HistoryEntry
	calls   []*heddlev1.ToolCall
	usage   *heddlev1.TokenUsage
}

// openItem is an item of which the model still speaks.
type openItem struct {
	item *heddlev1.Item
	text strings.Builder
	// summary and content are the parts of a reasoning item.
	summary []string
	content []string
	// hidden items are not shown; plan is set where a message may hold a plan.
	hidden bool
	plan   *planView
}

// handle shows one event of the stream.
func (s *step) handle(ev model.Event) error {
	switch e := ev.(type) {
	case model.ItemStarted:
		s.begin(e)
	case model.TextDelta:
		if o := s.find(e.ItemID, model.KindMessage); o != nil {
			s.say(o, e.Text)
		}
	case model.SummaryPart:
		if o := s.find(e.ItemID, model.KindReasoning); o != nil {
			o.summary = grow(o.summary, e.Index)
			s.delta(o, &heddlev1.ItemDelta{Delta: &heddlev1.ItemDelta_SummaryPart{SummaryPart: e.Index}})
		}
	case model.SummaryDelta:
		if o := s.find(e.ItemID, model.KindReasoning); o != nil {
			o.summary = grow(o.summary, e.Index)
			o.summary[e.Index] += e.Text
			s.delta(o, &heddlev1.ItemDelta{Delta: &heddlev1.ItemDelta_SummaryText{SummaryText: &heddlev1.IndexedText{Index: e.Index, Text: e.Text}}})
		}
	case model.ReasoningDelta:
		if o := s.find(e.ItemID, model.KindReasoning); o != nil {
			o.content = grow(o.content, e.Index)
			o.content[e.Index] += e.Text
			s.delta(o, &heddlev1.ItemDelta{Delta: &heddlev1.ItemDelta_ReasoningText{ReasoningText: &heddlev1.IndexedText{Index: e.Index, Text: e.Text}}})
		}
	case model.ItemDone:
		s.done(e)
	case model.Completed:
		s.usage = e.Usage
	}
	return nil
}

// maxParts bounds the parts of a reasoning item.
const maxParts = 4096

func grow(parts []string, index int32) []string {
	for int32(len(parts)) <= min(index, maxParts-1) {
		parts = append(parts, "")
	}
	return parts
}

func (s *step) delta(o *openItem, d *heddlev1.ItemDelta) {
	if o.hidden {
		return
	}
	d.ItemId = o.item.GetId()
	s.t.record(itemDelta(s.t.id(), d))
}

// find returns an open item; one that was never announced is begun.
func (s *step) find(id string, kind model.ItemKind) *openItem {
	if o := s.open[id]; o != nil {
		return o
	}
	s.begin(model.ItemStarted{ID: id, Kind: kind})
	return s.open[id]
}

func (s *step) begin(e model.ItemStarted) {
	if s.open[e.ID] != nil || e.Kind == model.KindToolCall {
		return
	}
	item := s.t.begunItem(e.ID)
	switch e.Kind {
	case model.KindMessage:
		item.Content = &heddlev1.Item_AgentMessage{AgentMessage: &heddlev1.AgentMessage{Phase: e.Phase}}
	case model.KindReasoning:
		item.Content = &heddlev1.Item_Reasoning{Reasoning: &heddlev1.Reasoning{}}
	case model.KindWebSearch:
		item.Content = &heddlev1.Item_WebSearch{WebSearch: &heddlev1.WebSearch{}}
	default:
		return
	}
	o := &openItem{item: item, hidden: s.t.private && e.Kind == model.KindMessage}
	if e.Kind == model.KindMessage && planning(s.t.settings()) {
		o.plan = &planView{}
	}
	s.open[e.ID] = o
	s.order = append(s.order, e.ID)
	if !o.hidden {
		s.t.record(itemStarted(item))
	}
}

func (s *step) done(e model.ItemDone) {
	if e.Entry != nil {
		s.entries = append(s.entries, e.Entry)
	}
	if c := e.Entry.GetToolCall(); c != nil {
		s.calls = append(s.calls, c)
		return
	}
	o := s.find(e.ID, e.Kind)
	if o == nil {
		return
	}
	switch e.Kind {
	case model.KindMessage:
		m := o.item.GetAgentMessage()
		m.Text = s.finalText(o, messageText(e.Entry.GetMessage()))
		if p := e.Entry.GetMessage().GetPhase(); p != "" {
			m.Phase = p
		}
	case model.KindReasoning:
		r := o.item.GetReasoning()
		r.Summary = e.Entry.GetReasoning().GetSummary()
		r.Content = e.Entry.GetReasoning().GetContent()
	case model.KindWebSearch:
		o.item.Content = &heddlev1.Item_WebSearch{WebSearch: e.WebSearch}
	}
	s.complete(e.ID, o)
}

// complete closes an open item.
func (s *step) complete(id string, o *openItem) {
	delete(s.open, id)
	if o.hidden {
		s.t.verdict = o.item.GetAgentMessage().GetText()
		return
	}
	o.item.Status = heddlev1.ItemStatus_ITEM_STATUS_COMPLETED
	o.item.CompletedAtMs = s.t.agent.now()
	if o.item.GetAgentMessage() != nil {
		s.t.last = o.item
	}
	s.t.record(itemCompleted(o.item))
}

// closePartial completes what is still open with what was shown of it.
func (s *step) closePartial() []*openItem {
	var closed []*openItem
	for _, id := range s.order {
		o := s.open[id]
		if o == nil {
			continue
		}
		if m := o.item.GetAgentMessage(); m != nil {
			m.Text = o.text.String()
			s.closePlan(o)
		}
		if r := o.item.GetReasoning(); r != nil {
			r.Summary, r.Content = o.summary, o.content
		}
		s.complete(id, o)
		closed = append(closed, o)
	}
	return closed
}

// abandon closes what a broken stream left open. Whole messages stay in the
// history; a partial one does only where the person stopped the model, who has
// read it. Calls are dropped: none has been acted on.
func (t *turn) abandon(s *step, cause error) error {
	if errors.Is(cause, ErrSuspended) || errors.Is(context.Cause(t.ctx), ErrSuspended) {
		return ErrSuspended
	}
	partial := s.closePartial()
	var kept []*heddlev1.HistoryEntry
	for _, e := range s.entries {
		if e.GetMessage() != nil {
			kept = append(kept, e)
		}
	}
	if _, ok := errors.AsType[*interruption](cause); ok {
		for _, o := range partial {
			if text := o.item.GetAgentMessage().GetText(); text != "" {
				kept = append(kept, &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Message{Message: &heddlev1.HistoryMessage{
					Role: "assistant", Parts: []*heddlev1.HistoryPart{{Part: &heddlev1.HistoryPart_Text{Text: text}}}}}})
			}
		}
	}
	if len(kept) > 0 {
		t.record(t.remember(kept...))
	}
	return nil
}

// commitStep records a completed stream. With calls it is the one durable
// commit of the step; without, the end of the turn is.
func (t *turn) commitStep(s *step) ([]*call, error) {
	s.closePartial()
	entries, calls, ready := t.dropRepeated(s.entries, s.calls)
	if t.repeats > maxRepeats {
		return nil, fmt.Errorf("the model repeated calls %d times that were already made", t.repeats)
	}
	var events []*heddlev1.Event
	if len(entries) > 0 {
		events = append(events, t.remember(entries...))
	}
	if s.usage != nil {
		events = append(events, usageUpdated(t.id(), t.lt.addUsage(s.usage, t.rt.Model.ContextWindow)))
	}
	for _, c := range calls {
		r := t.hookedCall(c)
		events = append(events, r.events...)
		ready = append(ready, r)
	}
	if len(ready) == 0 {
		if len(events) > 0 {
			t.record(events...)
		}
		return nil, nil
	}
	if err := t.commit(events...); err != nil {
		for _, r := range ready {
			r.discard()
		}
		return nil, err
	}
	failpoint.Hit("agent/step-committed")
	return ready, nil
}

// maxRepeats bounds the calls of one turn that only repeat an earlier id.
const maxRepeats = 16

// dropRepeated keeps one call per id: one id is one run, whatever its arguments.
// A repetition within a stream is dropped; one of an earlier step's call gets an
// id of its own, since its model waits for an answer, and is not run.
func (t *turn) dropRepeated(entries []*heddlev1.HistoryEntry, calls []*heddlev1.ToolCall) (kept []*heddlev1.HistoryEntry, run []*heddlev1.ToolCall, told []*call) {
	here := map[string]bool{}
	dropped := map[*heddlev1.ToolCall]bool{}
	for _, c := range calls {
		if c.GetCallId() == "" {
			c.CallId = "call_" + newID()
		}
		id := c.GetCallId()
		switch {
		case here[id]:
			dropped[c] = true
		case t.seen[id] > 0:
			t.repeats++
			c.CallId = fmt.Sprintf("%s-again-%d", id, t.seen[id])
			told = append(told, said(c, fmt.Sprintf("call id %s was used before in this turn; the call was not run again", id)))
		default:
			run = append(run, c)
		}
		here[id] = true
		t.seen[id]++
	}
	for _, e := range entries {
		if c := e.GetToolCall(); c == nil || !dropped[c] {
			kept = append(kept, e)
		}
	}
	return kept, run, told
}

func messageText(m *heddlev1.HistoryMessage) string {
	var b strings.Builder
	for _, p := range m.GetParts() {
		b.WriteString(p.GetText())
	}
	return b.String()
}
