package e2e

import (
	"strings"
	"testing"
)

// The check that every client of these tests makes finds each fault, and none
// where there is none.
func TestP14OrderIsChecked(t *testing.T) {
	turn := func(method string) message {
		return message{Method: method, Params: map[string]any{"turn": map[string]any{"id": "t"}}}
	}
	item := func(method, id, kind string) message {
		return message{Method: method, Params: map[string]any{"turnId": "t", "item": map[string]any{"id": id, "type": kind}}}
	}
	delta := func(id string) message {
		return message{Method: "item/agentMessage/delta", Params: map[string]any{"turnId": "t", "itemId": id}}
	}
	used := func(n float64) message {
		return message{Method: "thread/tokenUsage/updated", Params: map[string]any{"turnId": "t", "tokenUsage": n}}
	}
	begin, end := turn("turn/started"), turn("turn/completed")
	open, shut := item("item/started", "m", "agentMessage"), item("item/completed", "m", "agentMessage")
	term, gone := item("item/started", "c", "commandExecution"), item("item/completed", "c", "commandExecution")
	for name, c := range map[string]struct {
		shown []message
		fault string
	}{
		"a whole turn":                      {[]message{begin, open, delta("m"), shut, used(1), end, used(1)}, ""},
		"joined in its middle":              {[]message{delta("m"), shut, end}, ""},
		"a background terminal":             {[]message{begin, term, end, gone}, ""},
		"a second end":                      {[]message{begin, end, end}, "turn/completed"},
		"a second beginning":                {[]message{begin, begin}, "turn/started"},
		"a beginning after its item":        {[]message{open, begin}, "turn/started"},
		"an open item at the end":           {[]message{begin, open, end}, "open at the end"},
		"an item after the end":             {[]message{begin, end, open}, "item/started"},
		"an end of an item after the end":   {[]message{begin, open, end, shut}, "item/completed"},
		"a second end of an item":           {[]message{begin, open, shut, shut}, "item/completed"},
		"a second end of a terminal":        {[]message{begin, term, end, gone, gone}, "item/completed"},
		"a delta after the end of its item": {[]message{begin, open, shut, delta("m")}, "delta"},
		"usage after the end":               {[]message{begin, used(1), end, used(2)}, "usage"},
	} {
		got := strings.Join(order(c.shown), "; ")
		if c.fault == "" && got != "" || !strings.Contains(got, c.fault) {
			t.Errorf("%s: %q, want %q", name, got, c.fault)
		}
	}
}
