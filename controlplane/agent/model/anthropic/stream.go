package anthropic

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/model/dialogue"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Forms of reasoning: the kinds of blocks in which the service gives it.
const (
	formThinking = "anthropic/thinking"
	formRedacted = "anthropic/redacted_thinking"
)

// maxItems bounds the blocks of one answer.
const maxItems = 1024

var errNoStop = errors.New("stream closed before message_stop")

// wireEvent holds the fields of an event that are used.
type wireEvent struct {
	Type    string `json:"type"`
	Index   int    `json:"index"`
	Message struct {
		ID    string `json:"id"`
		Usage *usage `json:"usage"`
	} `json:"message"`
	Block *wireBlock `json:"content_block"`
	Delta wireDelta  `json:"delta"`
	Usage *usage     `json:"usage"`
	Error struct {
		Type    string `json:"type"`
		Message string `json:"message"`
	} `json:"error"`
}

type wireBlock struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	Signature string          `json:"signature"`
	Data      string          `json:"data"`
	Input     json.RawMessage `json:"input"`
}

type wireDelta struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	Thinking    string `json:"thinking"`
	Signature   string `json:"signature"`
	PartialJSON string `json:"partial_json"`
	StopReason  string `json:"stop_reason"`
}

// usage is cumulative; a missing member says nothing new.
type usage struct {
	Input      *int64 `json:"input_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
	Output     *int64 `json:"output_tokens"`
}

// openBlock is a block that is being streamed.
type openBlock struct {
	id, kind  string
	call      *wireBlock
	text      strings.Builder
	signature strings.Builder
}

// decoder turns wire events into model events.
type decoder struct {
	yield  func(model.Event) error
	names  dialogue.Names
	blocks map[int]*openBlock
	count  int
	calls  map[string]bool
	id     string
	stop   string
	used   bool
	usage  heddlev1.TokenUsage
}

func newDecoder(yield func(model.Event) error, tools []model.Tool) *decoder {
	return &decoder{yield: yield, names: dialogue.NamesOf(tools), blocks: map[int]*openBlock{}, calls: map[string]bool{}}
}

// event handles one event. Events that are unknown or cannot be read are ignored:
// the answer's end decides whether anything that matters was lost.
func (d *decoder) event(name string, data []byte) (end bool, err error) {
	if name == "ping" {
		return false, nil
	}
	var ev wireEvent
	var odd *json.UnmarshalTypeError
	if err := json.Unmarshal(data, &ev); err != nil && !errors.As(err, &odd) {
		return false, nil
	}
	if ev.Type == "" {
		ev.Type = name
	}
	switch ev.Type {
	case "message_start":
		d.id = valid(ev.Message.ID)
		d.spend(ev.Message.Usage)
	case "content_block_start":
		return false, d.start(ev.Index, ev.Block)
	case "content_block_delta":
		return false, d.delta(ev.Index, &ev.Delta)
	case "content_block_stop":
		return false, d.finish(ev.Index)
	case "message_delta":
		if ev.Delta.StopReason != "" {
			d.stop = ev.Delta.StopReason
		}
		d.spend(ev.Usage)
	case "message_stop":
		return true, d.complete()
	case "error":
		return true, model.FailedBy(valid(ev.Error.Type), 0, valid(ev.Error.Message))
	}
	return false, nil
}

func (d *decoder) start(index int, b *wireBlock) error {
	if b == nil || d.blocks[index] != nil {
		return nil
	}
	if d.count++; d.count > maxItems {
		return &model.Error{Kind: model.KindOther, Message: fmt.Sprintf("the model's answer has more than %d items", maxItems)}
	}
	o := &openBlock{kind: b.Type, call: b}
	switch b.Type {
	case "text":
		// The item begins with its first text: the service takes no empty block back.
		d.blocks[index] = o
		return d.text(o, b.Text)
	case "thinking", "redacted_thinking":
		o.id = "rs_" + uuid.NewString()
		o.signature.WriteString(b.Signature + b.Data)
		d.blocks[index] = o
		if err := d.yield(model.ItemStarted{ID: o.id, Kind: model.KindReasoning}); err != nil {
			return err
		}
		return d.thinking(o, b.Thinking)
	case "tool_use":
		d.blocks[index] = o
	}
	return nil
}

func (d *decoder) delta(index int, x *wireDelta) error {
	o := d.blocks[index]
	if o == nil {
		return nil
	}
	switch {
	case x.Type == "text_delta" && o.kind == "text":
		return d.text(o, x.Text)
	case x.Type == "thinking_delta" && o.kind == "thinking":
		return d.thinking(o, x.Thinking)
	case x.Type == "signature_delta" && o.kind == "thinking":
		o.signature.WriteString(x.Signature)
	case x.Type == "input_json_delta" && o.kind == "tool_use":
		o.text.WriteString(valid(x.PartialJSON))
	}
	return nil
}

func (d *decoder) text(o *openBlock, text string) error {
	if text == "" {
		return nil
	}
	if o.id == "" {
		o.id = "msg_" + uuid.NewString()
		if err := d.yield(model.ItemStarted{ID: o.id, Kind: model.KindMessage}); err != nil {
			return err
		}
	}
	text = valid(text)
	o.text.WriteString(text)
	return d.yield(model.TextDelta{ItemID: o.id, Text: text})
}

func (d *decoder) thinking(o *openBlock, text string) error {
	if text == "" {
		return nil
	}
	if o.text.Len() == 0 {
		if err := d.yield(model.SummaryPart{ItemID: o.id}); err != nil {
			return err
		}
	}
	text = valid(text)
	o.text.WriteString(text)
	return d.yield(model.SummaryDelta{ItemID: o.id, Text: text})
}

// finish announces a whole block.
func (d *decoder) finish(index int) error {
	o := d.blocks[index]
	if o == nil {
		return nil
	}
	delete(d.blocks, index)
	switch o.kind {
	case "text":
		if o.id == "" {
			return nil
		}
		return d.yield(model.ItemDone{ID: o.id, Kind: model.KindMessage, Entry: &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Message{
			Message: &heddlev1.HistoryMessage{Role: "assistant", Id: o.id, Parts: []*heddlev1.HistoryPart{{Part: &heddlev1.HistoryPart_Text{Text: o.text.String()}}}}}}})
	case "tool_use":
		return d.call(o)
	}
	r := &heddlev1.HistoryReasoning{Id: o.id, EncryptedContent: valid(o.signature.String()), Form: formThinking}
	if o.kind == "redacted_thinking" {
		r.Form = formRedacted
	}
	if o.text.Len() > 0 {
		r.Summary = []string{o.text.String()}
	}
	return d.yield(model.ItemDone{ID: o.id, Kind: model.KindReasoning, Entry: &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Reasoning{Reasoning: r}}})
}

// call announces a whole tool call. The same id again is the same call, whatever
// its arguments say.
func (d *decoder) call(o *openBlock) error {
	callID := valid(o.call.ID)
	if callID == "" {
		callID = "toolu_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	}
	if o.call.Name == "" || d.calls[callID] {
		return nil
	}
	d.calls[callID] = true
	args := o.text.String()
	if strings.TrimSpace(args) == "" {
		// Without pieces the arguments are those of the start, or none.
		args = "{}"
		if json.Valid(o.call.Input) && len(o.call.Input) > 0 && o.call.Input[0] == '{' {
			args = valid(string(o.call.Input))
		}
	}
	namespace, name := d.names.Split(valid(o.call.Name))
	id := "fc_" + callID
	if err := d.yield(model.ItemStarted{ID: id, Kind: model.KindToolCall, CallID: callID, Name: name}); err != nil {
		return err
	}
	return d.yield(model.ItemDone{ID: id, Kind: model.KindToolCall, Entry: &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_ToolCall{
		ToolCall: &heddlev1.ToolCall{Id: id, CallId: callID, Namespace: namespace, Name: name, Arguments: args}}}})
}

// complete ends the answer, as its stop reason says. Blocks that the service left
// open end with what was streamed; a tool call that was not done stays away.
func (d *decoder) complete() error {
	for i := 0; len(d.blocks) > 0 && i <= maxItems; i++ {
		if o := d.blocks[i]; o != nil && o.kind != "tool_use" {
			if err := d.finish(i); err != nil {
				return err
			}
		}
		delete(d.blocks, i)
	}
	switch d.stop {
	case "max_tokens":
		return model.Incomplete("max_output_tokens")
	case "refusal":
		return model.Refusal("the model refused to answer")
	case "model_context_window_exceeded":
		return model.Failed("context_length_exceeded", "")
	}
	done := model.Completed{ResponseID: d.id}
	if done.ResponseID == "" {
		done.ResponseID = "msg_" + uuid.NewString()
	}
	if d.used {
		u := &heddlev1.TokenUsage{
			CachedInputTokens: d.usage.CachedInputTokens, CacheWriteInputTokens: d.usage.CacheWriteInputTokens, OutputTokens: d.usage.OutputTokens,
			// The service counts what it read from and wrote to its cache apart.
			InputTokens: d.usage.InputTokens + d.usage.CachedInputTokens + d.usage.CacheWriteInputTokens,
		}
		u.TotalTokens = u.InputTokens + u.OutputTokens
		done.Usage = u
	}
	return d.yield(done)
}

// spend takes over what a usage says.
func (d *decoder) spend(u *usage) {
	if u == nil {
		return
	}
	d.used = true
	set := func(dst *int64, n *int64) {
		if n != nil {
			*dst = max(*n, 0)
		}
	}
	set(&d.usage.InputTokens, u.Input)
	set(&d.usage.CachedInputTokens, u.CacheRead)
	set(&d.usage.CacheWriteInputTokens, u.CacheWrite)
	set(&d.usage.OutputTokens, u.Output)
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
