package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/model/dialogue"
	"github.com/heddle-dev/heddle/controlplane/agent/model/httpstream"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Forms of reasoning: the member of a message in which the service gave it.
const (
	formReasoning        = "chat/reasoning"
	formReasoningContent = "chat/reasoning_content"
	// formContent is a part of the content; no service takes it back.
	formContent = "chat/content"
)

// maxItems bounds the output items of one answer.
const maxItems = 1024

var errNoEnd = errors.New("stream closed before the answer was finished")

// openItem is the message or reasoning that is being streamed.
type openItem struct {
	id   string
	kind model.ItemKind
	form string
	text strings.Builder
}

// pendingCall is a tool call that arrives in pieces.
type pendingCall struct {
	index    int
	id, name string
	args     strings.Builder
}

// decoder turns chunks into model events.
type decoder struct {
	yield func(model.Event) error
	names dialogue.Names

	id    string
	open  *openItem
	items int
	// blank is white space that a message began with; nothing is shown of a message
	// that holds nothing else.
	blank  strings.Builder
	calls  []*pendingCall
	reason string
	usage  *usage
}

func newDecoder(yield func(model.Event) error, tools []model.Tool) *decoder {
	return &decoder{yield: yield, names: dialogue.NamesOf(tools)}
}

// decode reads a whole answer. It is complete with [DONE] or a finish reason: not
// every service sends both.
func (d *decoder) decode(a *httpstream.Answer) error {
	done := false
	err := a.Events(func(name string, data []byte) (bool, error) {
		if strings.TrimSpace(string(data)) == "[DONE]" {
			done = true
			return true, nil
		}
		finished := d.reason
		if err := d.event(name, data); err != nil {
			return false, err
		}
		if d.reason != "" && finished == "" {
			a.Linger()
		}
		return false, nil
	}, errNoEnd)
	var merr *model.Error
	if err != nil && (d.reason == "" || errors.As(err, &merr) || !a.Ended(err)) {
		return err
	}
	if !done && d.reason == "" {
		return errNoEnd
	}
	return d.finish()
}

// event handles one chunk. One that cannot be read is ignored: the answer's end
// decides whether anything that matters was lost.
func (d *decoder) event(name string, data []byte) error {
	var c chunk
	// A member of another type than expected is left out, not the whole chunk.
	var odd *json.UnmarshalTypeError
	if err := json.Unmarshal(data, &c); err != nil && !errors.As(err, &odd) {
		return nil
	}
	if len(c.Error) > 0 && string(c.Error) != "null" {
		return streamError(c.Error)
	}
	if name == "error" {
		return streamError(data)
	}
	if c.ID != "" && d.id == "" {
		d.id = valid(c.ID)
	}
	if c.Usage != nil {
		d.usage = c.Usage
	}
	for i := range c.Choices {
		if err := d.choice(&c.Choices[i]); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) choice(c *choice) error {
	if c.Index != 0 {
		return nil
	}
	piece := c.Delta
	if piece == nil {
		piece = c.Message
	}
	if piece != nil {
		if err := d.piece(piece); err != nil {
			return err
		}
	}
	if c.FinishReason != "" {
		d.reason = c.FinishReason
	}
	return nil
}

func (d *decoder) piece(p *delta) error {
	thoughts, form := p.Thoughts, formReasoningContent
	if thoughts == "" {
		thoughts, form = p.Reasoning, formReasoning
	}
	text, more := contentOf(p.Content)
	if thoughts == "" {
		thoughts, form = more, formContent
	}
	if err := d.reasoning(thoughts, form); err != nil {
		return err
	}
	if err := d.text(text + p.Refusal); err != nil {
		return err
	}
	for i := range p.ToolCalls {
		if err := d.call(&p.ToolCalls[i]); err != nil {
			return err
		}
	}
	if f := p.FunctionCall; f != nil {
		zero := 0
		return d.call(&callDelta{Index: &zero, Function: *f})
	}
	return nil
}

func (d *decoder) reasoning(text, form string) error {
	if text == "" {
		return nil
	}
	text = valid(text)
	o, err := d.item(model.KindReasoning)
	if err != nil {
		return err
	}
	if o.form == "" {
		o.form = form
	}
	o.text.WriteString(text)
	return d.yield(model.ReasoningDelta{ItemID: o.id, Text: text})
}

func (d *decoder) text(text string) error {
	if text == "" {
		return nil
	}
	text = valid(text)
	if d.open == nil || d.open.kind != model.KindMessage {
		if strings.TrimSpace(text) == "" {
			d.blank.WriteString(text)
			return nil
		}
		text = d.blank.String() + text
		d.blank.Reset()
	}
	o, err := d.item(model.KindMessage)
	if err != nil {
		return err
	}
	o.text.WriteString(text)
	return d.yield(model.TextDelta{ItemID: o.id, Text: text})
}

// item returns the open item of a kind; one of another kind ends first.
func (d *decoder) item(kind model.ItemKind) (*openItem, error) {
	if d.open != nil && d.open.kind == kind {
		return d.open, nil
	}
	if err := d.close(); err != nil {
		return nil, err
	}
	if err := d.count(); err != nil {
		return nil, err
	}
	prefix := "msg_"
	if kind == model.KindReasoning {
		prefix = "rs_"
	}
	d.open = &openItem{id: prefix + uuid.NewString(), kind: kind}
	return d.open, d.yield(model.ItemStarted{ID: d.open.id, Kind: kind})
}

func (d *decoder) count() error {
	if d.items++; d.items > maxItems {
		return &model.Error{Kind: model.KindOther, Message: fmt.Sprintf("the model's answer has more than %d items", maxItems)}
	}
	return nil
}

// close ends the open item.
func (d *decoder) close() error {
	o := d.open
	if o == nil {
		return nil
	}
	d.open = nil
	done := model.ItemDone{ID: o.id, Kind: o.kind}
	if o.kind == model.KindReasoning {
		done.Entry = &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Reasoning{Reasoning: &heddlev1.HistoryReasoning{
			Id: o.id, Content: []string{o.text.String()}, Form: o.form}}}
	} else {
		done.Entry = &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Message{Message: &heddlev1.HistoryMessage{
			Role: "assistant", Id: o.id, Parts: []*heddlev1.HistoryPart{{Part: &heddlev1.HistoryPart_Text{Text: o.text.String()}}}}}}
	}
	return d.yield(done)
}

// call adds a piece of a tool call.
func (d *decoder) call(p *callDelta) error {
	c := d.callFor(p)
	if c == nil {
		if err := d.count(); err != nil {
			return err
		}
		c = &pendingCall{index: len(d.calls), id: valid(p.ID)}
		if p.Index != nil {
			c.index = *p.Index
		}
		d.calls = append(d.calls, c)
	}
	if c.name != "" && p.Function.Name != "" && json.Valid([]byte(c.args.String())) {
		return nil // the whole call again
	}
	if c.id == "" {
		c.id = valid(p.ID)
	}
	if c.name == "" {
		c.name = valid(p.Function.Name)
	}
	args := gjson.ParseBytes(p.Function.Arguments)
	switch {
	case args.Type == gjson.String:
		c.args.WriteString(valid(args.Str))
	case args.IsObject():
		c.args.WriteString(valid(args.Raw))
	}
	return nil
}

// callFor finds the call that a piece belongs to; nil for a new one. A service may
// number its calls, name them, do both, or neither; and some give every call the
// number 0.
func (d *decoder) callFor(p *callDelta) *pendingCall {
	if len(d.calls) == 0 {
		return nil
	}
	if p.Index != nil {
		for i := len(d.calls) - 1; i >= 0; i-- {
			c := d.calls[i]
			if c.index != *p.Index {
				continue
			}
			if p.ID != "" && c.id != "" && p.ID != c.id && p.Function.Name != "" {
				return nil
			}
			return c
		}
		return nil
	}
	for _, c := range d.calls {
		if p.ID != "" && c.id == p.ID {
			return c
		}
	}
	if p.ID != "" || p.Function.Name != "" {
		return nil
	}
	return d.calls[len(d.calls)-1]
}

// finish ends the answer, as its finish reason says. A reason "stop" beside tool
// calls is common and means the calls.
func (d *decoder) finish() error {
	if err := d.close(); err != nil {
		return err
	}
	switch d.reason {
	case "length", "max_tokens":
		return model.Incomplete("max_output_tokens")
	case "content_filter":
		return model.Refusal("the service's content filter ended the answer")
	case "error":
		return model.FailedBy("server_error", 0, "the service ended the answer with an error")
	}
	seen := map[string]bool{}
	for _, c := range d.calls {
		if err := d.endCall(c, seen); err != nil {
			return err
		}
	}
	done := model.Completed{ResponseID: d.id}
	if done.ResponseID == "" {
		done.ResponseID = "chatcmpl_" + uuid.NewString()
	}
	if u := d.usage; u != nil {
		done.Usage = &heddlev1.TokenUsage{
			InputTokens: max(u.Prompt, 0), CachedInputTokens: max(u.PromptDetails.Cached, u.CacheHit, 0), CacheWriteInputTokens: max(u.PromptDetails.CacheWrite, 0),
			OutputTokens: max(u.Completion, 0), ReasoningOutputTokens: max(u.CompletionDetails.Reasoning, 0),
			TotalTokens: max(u.Total, u.Prompt+u.Completion, 0),
		}
	}
	return d.yield(done)
}

// endCall announces a whole call. Without a name there is nothing to call; the
// same id again is the same call, whatever its arguments say.
func (d *decoder) endCall(c *pendingCall, seen map[string]bool) error {
	if c.name == "" || (c.id != "" && seen[c.id]) {
		return nil
	}
	if c.id == "" {
		c.id = "call_" + strings.ReplaceAll(uuid.NewString(), "-", "")
	}
	seen[c.id] = true
	args := c.args.String()
	if strings.TrimSpace(args) == "" {
		args = "{}"
	}
	namespace, name := d.names.Split(c.name)
	id := "fc_" + c.id
	if err := d.yield(model.ItemStarted{ID: id, Kind: model.KindToolCall, CallID: c.id, Name: name}); err != nil {
		return err
	}
	return d.yield(model.ItemDone{ID: id, Kind: model.KindToolCall, Entry: &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_ToolCall{
		ToolCall: &heddlev1.ToolCall{Id: id, CallId: c.id, Namespace: namespace, Name: name, Arguments: args}}}})
}

// streamError maps an error object that came instead of a chunk.
func streamError(raw []byte) error {
	v := gjson.ParseBytes(raw)
	if inner := v.Get("error"); inner.Exists() {
		v = inner
	}
	if v.Type == gjson.String {
		return model.FailedBy("", 0, valid(v.Str))
	}
	kind, status := v.Get("type").String(), 0
	switch code := v.Get("code"); code.Type {
	case gjson.Number:
		status = int(code.Num)
	case gjson.String:
		if code.Str != "" {
			kind = code.Str
		}
	}
	return model.FailedBy(valid(kind), status, valid(v.Get("message").String()))
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
