// Package scripted plays a YAML script in place of a model.
//
// It exists for the demo, for tests, and for the integration tests of users who
// drive heddle. It is never taken for a model: its provider and model are named
// "scripted" wherever they show. docs/scripted-provider.md describes the format.
package scripted

import (
	"context"
	_ "embed" // the built-in script
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// ModelName is the model name that a scripted provider shows.
const ModelName = "scripted"

// maxThreads bounds the positions that are kept. A forgotten one is found again
// from the thread's history.
const maxThreads = 4096

//go:embed demo/demo.yaml
var demo []byte

// Demo is the source of the built-in script.
func Demo() []byte { return append([]byte(nil), demo...) }

// Client implements model.Client by playing a script. Safe for concurrent use; it
// holds the position of each thread, so that one client should serve a thread for
// as long as the process lives.
type Client struct {
	script *Script

	mu      sync.Mutex
	threads map[string]*position
}

// position says what of the script one thread has used.
type position struct {
	used   []bool
	played int
}

// New returns a client.
func New(s *Script) *Client { return &Client{script: s, threads: map[string]*position{}} }

// Stream implements model.Client.
func (c *Client) Stream(ctx context.Context, req model.Request, yield func(model.Event) error) error {
	r, ok := c.next(req)
	if !ok {
		return &model.Error{Kind: model.KindOther, Message: fmt.Sprintf("script %s has no reply left for this request", c.script.name)}
	}
	p := &player{ctx: ctx, yield: yield, found: r.lookFor(req.Input)}
	for i := range r.Steps {
		if err := p.step(&r.Steps[i]); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return yield(model.Completed{ResponseID: "resp_" + uuid.NewString(), Usage: r.usage(req.Input, p.bytes)})
}

// next takes the first unused reply whose condition holds.
func (c *Client) next(req model.Request) (*reply, bool) {
	output, input := last(req.Input)
	c.mu.Lock()
	defer c.mu.Unlock()
	pos := c.threads[req.ThreadID]
	if pos == nil {
		pos = c.restore(req.Input)
		if len(c.threads) >= maxThreads {
			for id := range c.threads {
				delete(c.threads, id)
				break
			}
		}
		c.threads[req.ThreadID] = pos
	}
	for i := range c.script.Replies {
		r := &c.script.Replies[i]
		if pos.used[i] || !r.When.holds(output, input) {
			continue
		}
		pos.used[i] = !r.Repeat
		pos.played++
		return r, true
	}
	return nil, false
}

// restore guesses the position of a thread that was begun by another process: one
// reply for every run of model output in its history.
func (c *Client) restore(input []*heddlev1.HistoryEntry) *position {
	pos := &position{used: make([]bool, len(c.script.Replies))}
	runs, within := 0, false
	for _, e := range input {
		own := e.GetToolCall() != nil || e.GetReasoning() != nil || e.GetMessage().GetRole() == "assistant"
		if own && !within {
			runs++
		}
		within = own
	}
	for i := range c.script.Replies {
		if runs == 0 {
			break
		}
		if !c.script.Replies[i].Repeat {
			pos.used[i] = true
			runs--
		}
	}
	return pos
}

// last returns the tool outputs that the model has not answered yet, and the last
// text of the user.
func last(input []*heddlev1.HistoryEntry) (output, user string) {
	var outputs []string
	answered := false
	for i := len(input) - 1; i >= 0; i-- {
		switch e := input[i]; {
		case e.GetToolOutput() != nil:
			if !answered {
				outputs = append(outputs, partsText(e.GetToolOutput().GetParts()))
			}
		case e.GetMessage().GetRole() == "user":
			if user == "" {
				user = partsText(e.GetMessage().GetParts())
			}
		case e.GetMessage().GetRole() == "developer":
		default:
			answered = true
		}
		if answered && user != "" {
			break
		}
	}
	return strings.Join(outputs, "\n"), user
}

func partsText(parts []*heddlev1.HistoryPart) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(p.GetText())
	}
	return b.String()
}

// lookFor runs the reply's patterns over the tool outputs; the last match counts.
func (r *reply) lookFor(input []*heddlev1.HistoryEntry) map[string]string {
	if len(r.find) == 0 {
		return nil
	}
	found := map[string]string{}
	for _, e := range input {
		if e.GetToolOutput() == nil {
			continue
		}
		text := partsText(e.GetToolOutput().GetParts())
		for name, re := range r.find {
			if m := re.FindAllStringSubmatch(text, -1); len(m) > 0 {
				found[name] = m[len(m)-1][len(m[len(m)-1])-1]
			}
		}
	}
	return found
}

var variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// fill replaces ${name} where the name was found.
func fill(s string, found map[string]string) string {
	if len(found) == 0 {
		return s
	}
	return variable.ReplaceAllStringFunc(s, func(m string) string {
		if v, ok := found[m[2:len(m)-1]]; ok {
			return v
		}
		return m
	})
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
