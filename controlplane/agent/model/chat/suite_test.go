package chat

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

// sse joins chunks to a body, as services send it.
func sse(chunks ...string) string {
	var b strings.Builder
	for _, c := range chunks {
		fmt.Fprintf(&b, "data: %s\n\n", c)
	}
	return b.String()
}

func client(t *testing.T, h http.HandlerFunc, change func(*Config)) *Client {
	t.Helper()
	cfg := Config{ProviderName: "mock", BaseURL: modeltest.Service(t, h) + "/v1"}
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSuite(t *testing.T) {
	modeltest.Run(t, func(t *testing.T, a modeltest.Answer) model.Client {
		t.Helper()
		return client(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "text/event-stream")
			var chunks []string
			for _, d := range a.Text {
				text, _ := json.Marshal(d)
				chunks = append(chunks, fmt.Sprintf(`{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"role":"assistant","content":%s}}]}`, text))
			}
			if !a.Hang && !a.Fails {
				reason := "stop"
				if a.Call != "" {
					reason = "tool_calls"
					chunks = append(chunks, fmt.Sprintf(`{"id":"chatcmpl-1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":%q,"arguments":"{\"a\":1}"}}]}}]}`, a.Call))
				}
				chunks = append(chunks, fmt.Sprintf(`{"id":"chatcmpl-1","choices":[{"index":0,"delta":{},"finish_reason":%q}]}`, reason), "[DONE]")
			}
			_, _ = io.WriteString(w, sse(chunks...))
			_ = http.NewResponseController(w).Flush()
			if a.Hang {
				<-r.Context().Done()
			}
		}, nil)
	})
}
