// Package dialogue folds a thread's history into the strict alternation of user
// and assistant that the Chat Completions and Messages APIs demand, and gives
// tools the flat names that they know.
//
// It is pure. Nothing of the history is lost: what stands between a call and its
// result moves behind the result, a lost result becomes "aborted", a result
// without a call is left out.
package dialogue

import (
	"encoding/json"
	"strings"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Message is one message of the dialogue. A user's holds Results, then Parts; an
// assistant's holds Blocks.
type Message struct {
	Assistant bool
	// Results answer all calls of the assistant's message before, in call order.
	Results []Result
	Parts   []*heddlev1.HistoryPart
	Blocks  []Block
	// Filler is true for a user's message that nobody said.
	Filler bool
}

// Result is the result of one call.
type Result struct {
	Call  *heddlev1.ToolCall
	Parts []*heddlev1.HistoryPart
}

// Block is one piece of an assistant's message; exactly one field is set.
type Block struct {
	Text      string
	Reasoning *heddlev1.HistoryReasoning
	Call      *heddlev1.ToolCall
}

// continued stands where the alternation needs a user and there was none.
const continued = "Continue."

// Fold returns the instructions that stand before everything else, and the
// messages; the first and the last are the user's.
func Fold(entries []*heddlev1.HistoryEntry) (system []string, messages []Message) {
	f := folder{outputs: map[string]*heddlev1.ToolOutput{}}
	for _, e := range entries {
		if o := e.GetToolOutput(); o != nil && f.outputs[o.GetCallId()] == nil {
			f.outputs[o.GetCallId()] = o
		}
	}
	for _, e := range entries {
		f.add(e)
	}
	if last := f.last(); last == nil || last.Assistant {
		f.user()
	}
	for i := range f.messages {
		if m := &f.messages[i]; !m.Assistant && len(m.Results) == 0 && len(m.Parts) == 0 {
			m.Parts, m.Filler = textParts(continued), true
		}
	}
	return f.system, f.messages
}

type folder struct {
	outputs  map[string]*heddlev1.ToolOutput
	system   []string
	messages []Message
	// sealed is true when a result of the last message's calls was seen.
	sealed bool
}

func (f *folder) last() *Message {
	if len(f.messages) == 0 {
		return nil
	}
	return &f.messages[len(f.messages)-1]
}

// user returns the user's message to add to, and answers open calls in it first.
func (f *folder) user() *Message {
	last := f.last()
	if last != nil && !last.Assistant {
		return last
	}
	m := Message{}
	if last != nil {
		for _, b := range last.Blocks {
			if b.Call != nil {
				m.Results = append(m.Results, Result{Call: b.Call, Parts: f.result(b.Call)})
			}
		}
	}
	f.sealed = false
	f.messages = append(f.messages, m)
	return f.last()
}

func (f *folder) result(c *heddlev1.ToolCall) []*heddlev1.HistoryPart {
	if o := f.outputs[c.GetCallId()]; o != nil {
		return o.GetParts()
	}
	return textParts("aborted")
}

// assistant returns the assistant's message to add to.
func (f *folder) assistant() *Message {
	last := f.last()
	if last == nil || (last.Assistant && f.sealed) {
		f.user()
		last = f.last()
	}
	if !last.Assistant {
		f.messages = append(f.messages, Message{Assistant: true})
	}
	return f.last()
}

func (f *folder) add(e *heddlev1.HistoryEntry) {
	switch x := e.GetEntry().(type) {
	case *heddlev1.HistoryEntry_Message:
		f.message(x.Message)
	case *heddlev1.HistoryEntry_ToolCall:
		m := f.assistant()
		m.Blocks = append(m.Blocks, Block{Call: x.ToolCall})
	case *heddlev1.HistoryEntry_Reasoning:
		m := f.assistant()
		m.Blocks = append(m.Blocks, Block{Reasoning: x.Reasoning})
	case *heddlev1.HistoryEntry_ToolOutput:
		last := f.last()
		f.sealed = f.sealed || (last != nil && last.Assistant)
	}
}

func (f *folder) message(m *heddlev1.HistoryMessage) {
	switch m.GetRole() {
	case "assistant":
		if text := joined(m.GetParts()); strings.TrimSpace(text) != "" {
			a := f.assistant()
			a.Blocks = append(a.Blocks, Block{Text: text})
		}
	case "developer", "system":
		text := joined(m.GetParts())
		if len(f.messages) == 0 {
			f.system = append(f.system, text)
			return
		}
		// These APIs have no place for instructions later on.
		u := f.user()
		u.Parts = append(u.Parts, textParts("<developer_instructions>\n"+text+"\n</developer_instructions>")...)
	default:
		u := f.user()
		u.Parts = append(u.Parts, m.GetParts()...)
	}
}

func joined(parts []*heddlev1.HistoryPart) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.GetText())
	}
	return b.String()
}

func textParts(text string) []*heddlev1.HistoryPart {
	return []*heddlev1.HistoryPart{{Part: &heddlev1.HistoryPart_Text{Text: text}}}
}

// Arguments are a call's arguments as a JSON object: the text of a freeform call
// and what is no object are wrapped, since services refuse a history that holds
// anything else.
func Arguments(c *heddlev1.ToolCall) json.RawMessage {
	args := strings.TrimSpace(c.GetArguments())
	if !c.GetFreeform() {
		if args == "" {
			return json.RawMessage("{}")
		}
		if args[0] == '{' && json.Valid([]byte(args)) {
			return json.RawMessage(args)
		}
	}
	// A map of strings cannot fail to encode.
	b, _ := json.Marshal(map[string]string{"input": c.GetArguments()})
	return b
}
