package openai

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/model/modeltest"
)

func TestSuite(t *testing.T) {
	modeltest.Run(t, func(t *testing.T, a modeltest.Answer) model.Client {
		t.Helper()
		c, _ := stream(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/event-stream")
			events := []string{`{"type":"response.output_item.added","item":{"type":"message","id":"m1"}}`}
			for _, d := range a.Text {
				text, _ := json.Marshal(d)
				events = append(events, fmt.Sprintf(`{"type":"response.output_text.delta","item_id":"m1","delta":%s}`, text))
			}
			if !a.Hang && !a.Fails {
				text, _ := json.Marshal(strings.Join(a.Text, ""))
				events = append(events, fmt.Sprintf(`{"type":"response.output_item.done","item":{"type":"message","id":"m1","content":[{"type":"output_text","text":%s}]}}`, text))
				if a.Call != "" {
					events = append(events, fmt.Sprintf(`{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","id":"f1","call_id":"call_1","name":%q,"arguments":"{\"a\":1}"}}`, a.Call))
				}
				events = append(events, completed)
			}
			_, _ = io.WriteString(w, sse(events...))
			_ = http.NewResponseController(w).Flush()
			if a.Hang {
				<-r.Context().Done()
			}
		}, nil)
		return c
	})
}
