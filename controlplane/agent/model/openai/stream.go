package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/model/httpstream"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// maxItems bounds the output items of one answer.
	maxItems = 1024
	// maxParts bounds the index of a part within an item.
	maxParts = 4096
)

// openItem is an output item that began and is not done.
type openItem struct {
	id    string
	kind  model.ItemKind
	phase string
	// text is what was streamed of a message, for a service that completes the
	// response without completing the message.
	text strings.Builder
	done bool
}

// decoder turns wire events into model events.
type decoder struct {
	yield func(model.Event) error
	items map[string]*openItem
	order []*openItem
	// byIndex finds the item of an event without an item id.
	byIndex map[int]*openItem
	calls   map[string]bool
}

var errNoCompletion = errors.New("stream closed before response.completed")

// decode reads a whole answer. nil means that it was completed.
func decode(a *httpstream.Answer, yield func(model.Event) error) error {
	return a.Events(newDecoder(yield).event, errNoCompletion)
}

func newDecoder(yield func(model.Event) error) *decoder {
	return &decoder{yield: yield, items: map[string]*openItem{}, byIndex: map[int]*openItem{}, calls: map[string]bool{}}
}

// event handles one event. Events that are unknown or cannot be read are ignored:
// the answer's end decides whether anything that matters was lost.
func (d *decoder) event(name string, data []byte) (end bool, err error) {
	if name == "" {
		name = gjson.GetBytes(data, "type").Str
	}
	if ignored[name] {
		return false, nil
	}
	var ev wireEvent
	if deltas[name] {
		if !ev.fast(name, data) {
			return false, nil
		}
	} else if json.Unmarshal(data, &ev) != nil {
		return false, nil
	}
	if ev.Type == "" {
		ev.Type = name
	}
	switch ev.Type {
	case "response.output_text.delta", "response.refusal.delta":
		return false, d.text(&ev)
	case "response.reasoning_summary_text.delta":
		return false, d.indexed(&ev, ev.SummaryIndex, func(id string, i int32) model.Event {
			return model.SummaryDelta{ItemID: id, Index: i, Text: ev.Delta}
		})
	case "response.reasoning_text.delta":
		return false, d.indexed(&ev, ev.ContentIndex, func(id string, i int32) model.Event {
			return model.ReasoningDelta{ItemID: id, Index: i, Text: ev.Delta}
		})
	case "response.reasoning_summary_part.added":
		return false, d.indexed(&ev, ev.SummaryIndex, func(id string, i int32) model.Event {
			return model.SummaryPart{ItemID: id, Index: i}
		})
	case "response.output_item.added":
		var it wireItem
		if json.Unmarshal(ev.Item, &it) != nil {
			return false, nil
		}
		_, err := d.start(&it, ev.OutputIndex)
		return false, err
	case "response.output_item.done":
		var it wireItem
		if json.Unmarshal(ev.Item, &it) != nil {
			return false, nil
		}
		return false, d.finish(&it, ev.OutputIndex)
	case "response.completed":
		return true, d.complete(ev.Response)
	case "response.failed", "response.incomplete", "error":
		return true, d.fail(&ev)
	}
	return false, nil
}

// find returns the open item of a delta, starting it when the service did not
// announce it; nil when it is done or of another kind.
func (d *decoder) find(ev *wireEvent, kind model.ItemKind) (*openItem, error) {
	it := d.items[ev.ItemID]
	if it == nil && ev.ItemID == "" {
		it = d.byIndex[ev.OutputIndex]
	}
	if it == nil {
		typ := "message"
		if kind == model.KindReasoning {
			typ = "reasoning"
		}
		var err error
		if it, err = d.start(&wireItem{Type: typ, ID: ev.ItemID, Role: "assistant"}, ev.OutputIndex); err != nil {
			return nil, err
		}
	}
	if it == nil || it.done || it.kind != kind {
		return nil, nil
	}
	return it, nil
}

func (d *decoder) text(ev *wireEvent) error {
	it, err := d.find(ev, model.KindMessage)
	if it == nil || err != nil || ev.Delta == "" {
		return err
	}
	it.text.WriteString(ev.Delta)
	return d.yield(model.TextDelta{ItemID: it.id, Text: ev.Delta})
}

func (d *decoder) indexed(ev *wireEvent, index int32, make func(string, int32) model.Event) error {
	if index < 0 || index > maxParts {
		return nil
	}
	it, err := d.find(ev, model.KindReasoning)
	if it == nil || err != nil {
		return err
	}
	return d.yield(make(it.id, index))
}

func kindOf(typ string) (model.ItemKind, bool) {
	switch typ {
	case "message":
		return model.KindMessage, true
	case "reasoning":
		return model.KindReasoning, true
	case "function_call", "custom_tool_call":
		return model.KindToolCall, true
	case "web_search_call":
		return model.KindWebSearch, true
	}
	return 0, false
}

// start records and announces an item; nil for a kind that is not known.
func (d *decoder) start(it *wireItem, index int) (*openItem, error) {
	kind, known := kindOf(it.Type)
	if !known {
		return nil, nil
	}
	if it.ID == "" {
		it.ID = strings.ReplaceAll(it.Type, "_", "") + "_" + uuid.NewString()
	}
	if o := d.items[it.ID]; o != nil {
		return o, nil
	}
	if len(d.order) >= maxItems {
		return nil, &model.Error{Kind: model.KindOther, Message: fmt.Sprintf("the model's answer has more than %d items", maxItems)}
	}
	o := &openItem{id: it.ID, kind: kind, phase: it.Phase}
	d.items[it.ID], d.byIndex[index] = o, o
	d.order = append(d.order, o)
	return o, d.yield(model.ItemStarted{ID: it.ID, Kind: kind, Phase: it.Phase, CallID: it.CallID, Name: it.Name})
}

// finish announces a whole item, once.
func (d *decoder) finish(it *wireItem, index int) error {
	if it.ID == "" {
		// A service without item ids: the item that began at this place.
		if o := d.byIndex[index]; o != nil && !o.done {
			it.ID = o.id
		}
	}
	o, err := d.start(it, index)
	if o == nil || err != nil || o.done {
		return err
	}
	o.done = true
	done := model.ItemDone{ID: o.id, Kind: o.kind}
	switch o.kind {
	case model.KindMessage:
		done.Entry = messageEntry(o.id, it.Phase, partsText(it.Content))
	case model.KindReasoning:
		done.Entry = reasoningEntry(it)
	case model.KindWebSearch:
		done.WebSearch = webSearch(it.Action)
	case model.KindToolCall:
		// The same call id again is the same call, whatever its arguments say.
		if it.CallID == "" || d.calls[it.CallID] {
			return nil
		}
		d.calls[it.CallID] = true
		done.Entry = callEntry(it)
	}
	return d.yield(done)
}

// complete ends the stream; messages that the service left open end with what was
// streamed. A tool call that was not done stays away.
func (d *decoder) complete(raw json.RawMessage) error {
	for _, o := range d.order {
		if o.done || o.kind != model.KindMessage {
			continue
		}
		o.done = true
		if err := d.yield(model.ItemDone{ID: o.id, Kind: o.kind, Entry: messageEntry(o.id, o.phase, o.text.String())}); err != nil {
			return err
		}
	}
	var r wireResponse
	_ = json.Unmarshal(raw, &r)
	done := model.Completed{ResponseID: r.ID}
	if u := r.Usage; u != nil {
		done.Usage = &heddlev1.TokenUsage{
			TotalTokens:           max(u.Total, 0),
			InputTokens:           max(u.Input, 0),
			CachedInputTokens:     max(u.InputDetails.Cached, 0),
			CacheWriteInputTokens: max(u.InputDetails.CacheWrite, 0),
			OutputTokens:          max(u.Output, 0),
			ReasoningOutputTokens: max(u.OutputDetails.Reasoning, 0),
		}
	}
	return d.yield(done)
}

func (d *decoder) fail(ev *wireEvent) error {
	var r wireResponse
	_ = json.Unmarshal(ev.Response, &r)
	if ev.Type == "response.incomplete" {
		reason := ""
		if r.Incomplete != nil {
			reason = r.Incomplete.Reason
		}
		return model.Incomplete(reason)
	}
	e := wireError{Code: ev.Code, Message: ev.Message}
	switch {
	case r.Error != nil:
		e = *r.Error
	case ev.Error != nil:
		e = *ev.Error
	}
	return model.Failed(e.Code, e.Message)
}
