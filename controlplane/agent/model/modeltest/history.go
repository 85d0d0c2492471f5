package modeltest

import heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"

// Message is a message of a history; an image is a part that begins with "data:".
func Message(role string, parts ...string) *heddlev1.HistoryEntry {
	return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Message{Message: &heddlev1.HistoryMessage{Role: role, Parts: Parts(parts...)}}}
}

// Parts are texts and images.
func Parts(list ...string) []*heddlev1.HistoryPart {
	var out []*heddlev1.HistoryPart
	for _, p := range list {
		if len(p) > 5 && p[:5] == "data:" {
			out = append(out, &heddlev1.HistoryPart{Part: &heddlev1.HistoryPart_ImageUrl{ImageUrl: p}})
			continue
		}
		out = append(out, &heddlev1.HistoryPart{Part: &heddlev1.HistoryPart_Text{Text: p}})
	}
	return out
}

// Call is a tool call of a history.
func Call(id, namespace, name, args string) *heddlev1.HistoryEntry {
	return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_ToolCall{ToolCall: &heddlev1.ToolCall{CallId: id, Namespace: namespace, Name: name, Arguments: args}}}
}

// Freeform is a freeform call of a history.
func Freeform(id, name, input string) *heddlev1.HistoryEntry {
	e := Call(id, "", name, input)
	e.GetToolCall().Freeform = true
	return e
}

// Output is the result of a call.
func Output(id string, parts ...string) *heddlev1.HistoryEntry {
	return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_ToolOutput{ToolOutput: &heddlev1.ToolOutput{CallId: id, Parts: Parts(parts...)}}}
}

// Reasoning is reasoning of a history.
func Reasoning(form, summary, content, proof string) *heddlev1.HistoryEntry {
	r := &heddlev1.HistoryReasoning{Form: form, EncryptedContent: proof}
	if summary != "" {
		r.Summary = []string{summary}
	}
	if content != "" {
		r.Content = []string{content}
	}
	return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Reasoning{Reasoning: r}}
}
