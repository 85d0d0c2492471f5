package execmode

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// jsonView writes one event per line in the shape that the TypeScript SDK and
// other users of the reference's `exec --json` parse.
type jsonView struct {
	out  *bufio.Writer
	enc  *json.Encoder
	ids  map[string]string // item id to the id shown
	next int
	todo *jsonItem // the plan so far
	// errored is set when the failure that follows was shown as an error.
	lastError string
}

type jsonEvent struct {
	Type     string     `json:"type"`
	ThreadID string     `json:"thread_id,omitempty"`
	Item     *jsonItem  `json:"item,omitempty"`
	Usage    *jsonUsage `json:"usage,omitempty"`
	Error    *jsonError `json:"error,omitempty"`
	Message  string     `json:"message,omitempty"`
}

type jsonError struct {
	Message string `json:"message"`
}

type jsonUsage struct {
	Input      int64 `json:"input_tokens"`
	Cached     int64 `json:"cached_input_tokens"`
	CacheWrite int64 `json:"cache_write_input_tokens"`
	Output     int64 `json:"output_tokens"`
	Reasoning  int64 `json:"reasoning_output_tokens"`
}

// jsonItem marshals as its own fields followed by those of its content.
type jsonItem struct {
	ID      string
	Type    string
	Content any
}

// MarshalJSON joins the head and the content into one object.
func (i *jsonItem) MarshalJSON() ([]byte, error) {
	head, err := marshalPlain(struct {
		ID   string `json:"id"`
		Type string `json:"type"`
	}{i.ID, i.Type})
	if err != nil {
		return nil, err
	}
	body, err := marshalPlain(i.Content)
	if err != nil || len(body) <= len("{}") {
		return head, err
	}
	return append(append(head[:len(head)-1], ','), body[1:]...), nil
}

// marshalPlain leaves <, > and & as they are.
func marshalPlain(v any) ([]byte, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return []byte(strings.TrimSuffix(b.String(), "\n")), nil
}

func newJSONView(w io.Writer) *jsonView {
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	return &jsonView{out: out, enc: enc, ids: map[string]string{}}
}

func (v *jsonView) emit(ev jsonEvent) {
	// A reader that is gone ends the process by SIGPIPE; there is nobody to
	// tell about any other failure.
	_ = v.enc.Encode(ev)
	_ = v.out.Flush()
}

func (v *jsonView) newID() string {
	id := fmt.Sprintf("item_%d", v.next)
	v.next++
	return id
}

func (v *jsonView) threadStarted(t *heddlev1.Thread) {
	v.emit(jsonEvent{Type: "thread.started", ThreadID: t.GetId()})
}

func (v *jsonView) warning(text string) {
	v.emit(jsonEvent{Type: "item.completed", Item: &jsonItem{ID: v.newID(), Type: "error", Content: jsonError{text}}})
}

func (v *jsonView) event(ev *heddlev1.Event) {
	switch p := ev.GetPayload().(type) {
	case *heddlev1.Event_TurnStarted:
		v.emit(jsonEvent{Type: "turn.started"})
	case *heddlev1.Event_ItemStarted:
		if kind, content := describe(p.ItemStarted.GetItem(), false); content != nil {
			v.item("item.started", p.ItemStarted.GetItem(), kind, content)
		}
	case *heddlev1.Event_ItemCompleted:
		item := p.ItemCompleted.GetItem()
		if kind, content := describe(item, true); content != nil {
			v.item("item.completed", item, kind, content)
		}
		if e := actionError(item); e != nil {
			v.warning(errorText(e))
		}
	case *heddlev1.Event_PlanUpdated:
		v.plan(p.PlanUpdated)
	case *heddlev1.Event_ErrorRaised:
		v.lastError = p.ErrorRaised.GetError().GetMessage()
		v.emit(jsonEvent{Type: "error", Message: v.lastError})
	}
}

func (v *jsonView) item(event string, item *heddlev1.Item, kind string, content any) {
	id, known := v.ids[item.GetId()]
	if !known {
		id = v.newID()
		v.ids[item.GetId()] = id
	}
	v.emit(jsonEvent{Type: event, Item: &jsonItem{ID: id, Type: kind, Content: content}})
}

func (v *jsonView) plan(p *heddlev1.PlanUpdated) {
	type step struct {
		Text      string `json:"text"`
		Completed bool   `json:"completed"`
	}
	steps := []step{}
	for _, s := range p.GetSteps() {
		steps = append(steps, step{s.GetStep(), s.GetStatus() == "completed"})
	}
	event := "item.updated"
	if v.todo == nil {
		event, v.todo = "item.started", &jsonItem{ID: v.newID(), Type: "todo_list"}
	}
	v.todo.Content = struct {
		Items []step `json:"items"`
	}{steps}
	v.emit(jsonEvent{Type: event, Item: v.todo})
}

func (v *jsonView) ended(o Outcome) {
	if v.todo != nil {
		v.emit(jsonEvent{Type: "item.completed", Item: v.todo})
		v.todo = nil
	}
	if o.Code == ExitCompleted && o.Turn == nil {
		return
	}
	if o.Code == ExitCompleted {
		v.emit(jsonEvent{Type: "turn.completed", Usage: &jsonUsage{
			Input: o.Usage.GetInputTokens(), Cached: o.Usage.GetCachedInputTokens(), CacheWrite: o.Usage.GetCacheWriteInputTokens(),
			Output: o.Usage.GetOutputTokens(), Reasoning: o.Usage.GetReasoningOutputTokens(),
		}})
		return
	}
	if o.Failure != v.lastError {
		v.emit(jsonEvent{Type: "error", Message: o.Failure})
	}
	v.emit(jsonEvent{Type: "turn.failed", Error: &jsonError{o.Failure}})
}
