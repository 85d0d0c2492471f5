package scripted

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// chunkSize is about how much text one delta holds.
const chunkSize = 24

// player plays the steps of one reply.
type player struct {
	ctx   context.Context
	yield func(model.Event) error
	found map[string]string
	// bytes counts what was said, for the usage.
	bytes int
}

func (p *player) step(s *step) error {
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	switch s.set[0] {
	case "say":
		return p.say(s)
	case "think":
		return p.think(s)
	case "call":
		args, err := arguments(s.Args, p.found)
		if err != nil {
			return &model.Error{Kind: model.KindOther, Message: fmt.Sprintf("script: arguments of %s: %v", s.Call, err)}
		}
		return p.call(&heddlev1.ToolCall{CallId: s.ID, Name: s.Call, Namespace: s.Namespace, Arguments: args})
	case "patch":
		return p.call(&heddlev1.ToolCall{CallId: s.ID, Name: "apply_patch", Arguments: fill(s.Patch, p.found), Freeform: true})
	case "wait":
		return pause(p.ctx, time.Duration(s.Wait))
	}
	return s.Fail.err()
}

func (f *failure) err() *model.Error {
	switch f.kind {
	case "status":
		return model.Refused(f.Status, f.Body, "scripted", 0)
	case "incomplete":
		return model.Incomplete(f.Reason)
	case "failed":
		return model.Failed(f.Code, f.Message)
	}
	return model.Disconnected("the script cut the stream")
}

func newID(prefix string) string { return prefix + "_" + uuid.NewString() }

func (p *player) say(s *step) error {
	id := s.ID
	if id == "" {
		id = newID("msg")
	}
	if err := p.yield(model.ItemStarted{ID: id, Kind: model.KindMessage, Phase: s.Phase}); err != nil {
		return err
	}
	var text strings.Builder
	for _, c := range s.Say.split(p.found) {
		text.WriteString(c)
		if err := p.yield(model.TextDelta{ItemID: id, Text: c}); err != nil {
			return err
		}
		if s.Pace > 0 {
			if err := pause(p.ctx, time.Duration(s.Pace)); err != nil {
				return err
			}
		}
	}
	p.bytes += text.Len()
	return p.yield(model.ItemDone{ID: id, Kind: model.KindMessage, Entry: &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Message{Message: &heddlev1.HistoryMessage{
		Role: "assistant", Id: id, Phase: s.Phase, Parts: []*heddlev1.HistoryPart{{Part: &heddlev1.HistoryPart_Text{Text: text.String()}}},
	}}}})
}

// split gives the chunks of the script, or cuts its text at spaces.
func (c chunks) split(found map[string]string) []string {
	var out []string
	for _, part := range c.parts {
		part = fill(part, found)
		if c.given {
			out = append(out, part)
			continue
		}
		for len(part) > chunkSize {
			cut := strings.IndexByte(part[chunkSize:], ' ')
			if cut < 0 {
				break
			}
			out = append(out, part[:chunkSize+cut+1])
			part = part[chunkSize+cut+1:]
		}
		if part != "" {
			out = append(out, part)
		}
	}
	return out
}

func (p *player) think(s *step) error {
	id := s.ID
	if id == "" {
		id = newID("rs")
	}
	if err := p.yield(model.ItemStarted{ID: id, Kind: model.KindReasoning}); err != nil {
		return err
	}
	r := &heddlev1.HistoryReasoning{Id: id}
	for i, part := range s.Think.parts {
		part = fill(part, p.found)
		p.bytes += len(part)
		if err := p.yield(model.SummaryPart{ItemID: id, Index: int32(i)}); err != nil {
			return err
		}
		if err := p.yield(model.SummaryDelta{ItemID: id, Index: int32(i), Text: part}); err != nil {
			return err
		}
		r.Summary = append(r.Summary, part)
	}
	for i, part := range s.Raw.parts {
		p.bytes += len(part)
		if err := p.yield(model.ReasoningDelta{ItemID: id, Index: int32(i), Text: part}); err != nil {
			return err
		}
		r.Content = append(r.Content, part)
	}
	return p.yield(model.ItemDone{ID: id, Kind: model.KindReasoning, Entry: &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Reasoning{Reasoning: r}}})
}

func (p *player) call(c *heddlev1.ToolCall) error {
	if c.GetCallId() == "" {
		c.CallId = newID("call")
	}
	c.Id = newID("fc")
	p.bytes += len(c.GetArguments())
	if err := p.yield(model.ItemStarted{ID: c.GetId(), Kind: model.KindToolCall, CallID: c.GetCallId(), Name: c.GetName()}); err != nil {
		return err
	}
	return p.yield(model.ItemDone{ID: c.GetId(), Kind: model.KindToolCall, Entry: &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_ToolCall{ToolCall: c}}})
}

// arguments encodes a step's args; a text is sent as it is, so that a script can
// send broken JSON on purpose.
func arguments(args any, found map[string]string) (string, error) {
	if s, ok := args.(string); ok {
		return fill(s, found), nil
	}
	if args == nil {
		return "{}", nil
	}
	raw, err := json.Marshal(fillAll(args, found))
	return string(raw), err
}

// fillAll replaces variables in every text of a value. A text that is nothing but
// a variable with digits becomes a number, which session ids are.
func fillAll(v any, found map[string]string) any {
	switch x := v.(type) {
	case string:
		s := fill(x, found)
		if s != x && variable.FindString(x) == x {
			if n, err := strconv.ParseInt(s, 10, 64); err == nil {
				return n
			}
		}
		return s
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = fillAll(e, found)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(x))
		for k, e := range x {
			out[k] = fillAll(e, found)
		}
		return out
	}
	return v
}
