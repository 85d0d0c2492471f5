package agent

import (
	"strings"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	planOpen  = "<proposed_plan>"
	planClose = "</proposed_plan>"
)

// planning reports whether a thread is in plan mode.
func planning(s *heddlev1.ThreadSettings) bool {
	return s.GetCollaborationMode().GetFields()["mode"].GetStringValue() == "plan"
}

// modeInstructions are the client's own instructions for the mode.
func modeInstructions(s *heddlev1.ThreadSettings) string {
	return s.GetCollaborationMode().GetFields()["settings"].GetStructValue().GetFields()["developer_instructions"].GetStringValue()
}

// planView separates a plan from the rest of a message while it streams. The
// tags stand on lines of their own.
type planView struct {
	// fed is all the text so far.
	fed strings.Builder
	// line is the beginning of a line that may still become a tag; midLine is
	// true when the current line cannot.
	line    string
	midLine bool
	inside  bool
	// item is the plan that is open.
	item *heddlev1.Item
}

// piece is text of the message or of the plan, or the start or end of a plan.
type piece struct {
	text        string
	inside      bool
	open, close bool
}

// feed takes more text and returns what is known of it.
func (p *planView) feed(text string) []piece {
	p.fed.WriteString(text)
	var out []piece
	for text != "" {
		chunk := text
		if i := strings.IndexByte(text, '\n'); i >= 0 {
			chunk = text[:i+1]
		}
		text = text[len(chunk):]
		if p.midLine {
			out = append(out, piece{text: chunk, inside: p.inside})
			p.midLine = !strings.HasSuffix(chunk, "\n")
			continue
		}
		p.line += chunk
		out = append(out, p.judge(false)...)
	}
	return out
}

// judge decides about the line, if it can. last is true at the end of the text.
func (p *planView) judge(last bool) []piece {
	tag := planOpen
	if p.inside {
		tag = planClose
	}
	whole := last || strings.HasSuffix(p.line, "\n")
	trimmed := strings.TrimRight(p.line, " \t\r\n")
	switch {
	case p.line == "":
		return nil
	case trimmed == tag && whole:
		p.line, p.inside = "", !p.inside
		return []piece{{open: p.inside, close: !p.inside}}
	case !whole && (trimmed == tag || strings.HasPrefix(tag, p.line)):
		return nil
	}
	out := []piece{{text: p.line, inside: p.inside}}
	p.line, p.midLine = "", !whole
	return out
}

// end is what was held back at the end of the text; a plan without an end tag
// ends there.
func (p *planView) end() []piece {
	out := p.judge(true)
	if p.inside {
		p.inside = false
		out = append(out, piece{close: true})
	}
	return out
}

// say shows more text of a message.
func (s *step) say(o *openItem, text string) {
	if o.plan != nil {
		s.sayPieces(o, o.plan.feed(text))
		return
	}
	o.text.WriteString(text)
	s.delta(o, &heddlev1.ItemDelta{Delta: &heddlev1.ItemDelta_AgentText{AgentText: text}})
}

func (s *step) sayPieces(o *openItem, pieces []piece) {
	for _, p := range pieces {
		switch {
		case p.open:
			o.plan.item = &heddlev1.Item{
				Id: newID(), TurnId: s.t.id(), StartedAtMs: s.t.agent.now(), Status: heddlev1.ItemStatus_ITEM_STATUS_IN_PROGRESS,
				Content: &heddlev1.Item_Plan{Plan: &heddlev1.PlanText{}},
			}
			s.t.record(itemStarted(o.plan.item))
		case p.close:
			s.closePlan(o)
		case p.inside:
			o.plan.item.GetPlan().Text += p.text
			s.t.record(itemDelta(s.t.id(), &heddlev1.ItemDelta{ItemId: o.plan.item.GetId(), Delta: &heddlev1.ItemDelta_PlanText{PlanText: p.text}}))
		default:
			o.text.WriteString(p.text)
			s.delta(o, &heddlev1.ItemDelta{Delta: &heddlev1.ItemDelta_AgentText{AgentText: p.text}})
		}
	}
}

// closePlan completes the plan that is open, if any.
func (s *step) closePlan(o *openItem) {
	if o.plan == nil || o.plan.item == nil {
		return
	}
	item := o.plan.item
	o.plan.item = nil
	item.Status, item.CompletedAtMs = heddlev1.ItemStatus_ITEM_STATUS_COMPLETED, s.t.agent.now()
	s.t.record(itemCompleted(item))
}

// finalText is what a message's item shows in the end, of its whole text.
func (s *step) finalText(o *openItem, whole string) string {
	if o.plan == nil {
		return whole
	}
	if rest, ok := strings.CutPrefix(whole, o.plan.fed.String()); ok {
		s.sayPieces(o, o.plan.feed(rest))
		s.sayPieces(o, o.plan.end())
		return o.text.String()
	}
	// What was streamed is not what came in the end: the end counts.
	s.closePlan(o)
	view := &planView{}
	var text strings.Builder
	for _, p := range append(view.feed(whole), view.end()...) {
		if !p.inside {
			text.WriteString(p.text)
		}
	}
	return text.String()
}
