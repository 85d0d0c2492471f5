package agent

import (
	"encoding/json"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/agent/prompt"
	"github.com/heddle-dev/heddle/controlplane/approval"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const reviewInterrupted = "The review was interrupted before it was finished."

// enterReview shows that a review begins and tells the reviewer what to do. The
// reviewer starts from an empty history.
func (t *turn) enterReview() {
	task := t.row.GetTask().GetReview()
	if !t.reviewing {
		t.reviewing = true
		t.record(t.completedItem(reviewItem(true, task.GetHint()))...)
	}
	if len(t.history) == 0 {
		t.record(t.remember(prompt.Review(t.surroundings(), task.GetPrompt())...))
	}
}

func reviewItem(entered bool, text string) *heddlev1.Item {
	return &heddlev1.Item{Content: &heddlev1.Item_ReviewMode{ReviewMode: &heddlev1.ReviewMode{Entered: entered, Review: text}}}
}

// leaveReview shows what the reviewer found, and gives it to the conversation.
// It does nothing for other turns and where no review has begun.
func (t *turn) leaveReview(failure error) {
	if !t.reviewing {
		return
	}
	t.reviewing = false
	found := reviewText(t.verdict)
	if failure != nil || found == "" {
		found = reviewInterrupted
	}
	t.record(t.completedItem(reviewItem(false, found))...)
	// From here on the turn speaks to the conversation.
	t.private = false
	t.history = t.outer
	var entries []*heddlev1.HistoryEntry
	if !introduced(t.history, t.settings().GetBaseInstructions()) {
		now := t.surroundings()
		t.lt.mu.Lock()
		t.lt.told = &now
		t.lt.mu.Unlock()
		entries = prompt.First(now)
	}
	entries = append(entries, prompt.ReviewRequested(t.row.GetTask().GetReview().GetHint()))
	if failure != nil {
		t.record(t.remember(entries...))
		return
	}
	item := &heddlev1.Item{Content: &heddlev1.Item_AgentMessage{AgentMessage: &heddlev1.AgentMessage{Text: found}}}
	events := t.completedItem(item)
	t.last = item
	t.record(append(events, t.remember(append(entries, assistantEntry(found))...))...)
}

func assistantEntry(text string) *heddlev1.HistoryEntry {
	return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Message{Message: &heddlev1.HistoryMessage{
		Role: "assistant", Parts: []*heddlev1.HistoryPart{{Part: &heddlev1.HistoryPart_Text{Text: text}}}}}}
}

// reviewSettings are those of a thread for its reviewer, whom nobody watches:
// it is never asked about anything.
func reviewSettings(s *heddlev1.ThreadSettings) *heddlev1.ThreadSettings {
	s = proto.CloneOf(s)
	s.ApprovalPolicy, s.GranularApproval, s.CollaborationMode = approval.Never, nil, nil
	s.DeveloperInstructions, s.DynamicTools = "", nil
	return s
}

// withModel is the settings with another model; empty keeps theirs.
func withModel(s *heddlev1.ThreadSettings, name string) *heddlev1.ThreadSettings {
	if name == "" {
		return s
	}
	s = proto.CloneOf(s)
	s.Model = name
	return s
}

// verdict is the form in which a reviewer answers.
type verdict struct {
	Findings []struct {
		Title    string `json:"title"`
		Body     string `json:"body"`
		Location struct {
			Path  string `json:"absolute_file_path"`
			Lines struct {
				Start int `json:"start"`
				End   int `json:"end"`
			} `json:"line_range"`
		} `json:"code_location"`
	} `json:"findings"`
	Explanation string `json:"overall_explanation"`
}

// reviewText renders a reviewer's answer. An answer that is not in the asked
// form is shown as it is.
func reviewText(answer string) string {
	answer = strings.TrimSpace(answer)
	var v verdict
	if !decodeVerdict(answer, &v) {
		return answer
	}
	var b strings.Builder
	b.WriteString(strings.TrimSpace(v.Explanation))
	if len(v.Findings) == 0 {
		if b.Len() == 0 {
			return "The review found nothing."
		}
		return b.String()
	}
	if b.Len() > 0 {
		b.WriteString("\n\n")
	}
	b.WriteString("Review comment:\n")
	if len(v.Findings) > 1 {
		b.Reset()
		if e := strings.TrimSpace(v.Explanation); e != "" {
			b.WriteString(e + "\n\n")
		}
		b.WriteString("Full review comments:\n")
	}
	for _, f := range v.Findings {
		l := f.Location
		fmt.Fprintf(&b, "\n- %s - %s:%d-%d\n", f.Title, l.Path, l.Lines.Start, l.Lines.End)
		for line := range strings.Lines(strings.TrimSpace(f.Body)) {
			b.WriteString("  " + strings.TrimRight(line, "\n") + "\n")
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

// decodeVerdict reads the answer, or the JSON object within it.
func decodeVerdict(answer string, v *verdict) bool {
	if json.Unmarshal([]byte(answer), v) == nil {
		return v.Explanation != "" || len(v.Findings) > 0
	}
	from, to := strings.IndexByte(answer, '{'), strings.LastIndexByte(answer, '}')
	if from < 0 || to <= from {
		return false
	}
	*v = verdict{}
	return json.Unmarshal([]byte(answer[from:to+1]), v) == nil && (v.Explanation != "" || len(v.Findings) > 0)
}
