package scripted

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// maxScript bounds the size of a script.
const maxScript = 8 << 20

// Script is a parsed script.
type Script struct {
	name    string
	Replies []reply `yaml:"replies"`
}

// reply is one answer of the model.
type reply struct {
	When   condition         `yaml:"when"`
	Find   map[string]string `yaml:"find"`
	Repeat bool              `yaml:"repeat"`
	Steps  []step            `yaml:"steps"`
	Usage  *usage            `yaml:"usage"`

	find map[string]*regexp.Regexp
}

// condition decides whether a reply fits a request. All given parts must hold.
type condition struct {
	// Output texts are all contained in the unanswered tool outputs, Input texts
	// in the last text of the user; none of Lacks is in the outputs.
	Output texts `yaml:"output"`
	Input  texts `yaml:"input"`
	Lacks  texts `yaml:"lacks"`
}

// UnmarshalYAML accepts a plain text for `output`.
func (c *condition) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		return n.Decode(&c.Output)
	}
	type plain condition
	return decodeStrict(n, (*plain)(c), "output", "input", "lacks")
}

func (c condition) holds(output, input string) bool {
	missing := func(in string) func(string) bool {
		return func(t string) bool { return !strings.Contains(in, t) }
	}
	return !slices.ContainsFunc(c.Output, missing(output)) && !slices.ContainsFunc(c.Input, missing(input)) &&
		!slices.ContainsFunc(c.Lacks, func(t string) bool { return strings.Contains(output, t) })
}

// texts is one text or a list.
type texts []string

// UnmarshalYAML implements yaml.Unmarshaler.
func (t *texts) UnmarshalYAML(n *yaml.Node) error {
	var c chunks
	if err := c.UnmarshalYAML(n); err != nil {
		return err
	}
	*t = c.parts
	return nil
}

// step is one thing that a reply does; exactly one of the first six is set.
type step struct {
	Say   chunks   `yaml:"say"`
	Think chunks   `yaml:"think"`
	Call  string   `yaml:"call"`
	Patch string   `yaml:"patch"`
	Wait  duration `yaml:"wait"`
	Fail  *failure `yaml:"fail"`

	Phase     string   `yaml:"phase"`
	Pace      duration `yaml:"pace"`
	Args      any      `yaml:"args"`
	ID        string   `yaml:"id"`
	Namespace string   `yaml:"namespace"`
	Raw       chunks   `yaml:"raw"`

	set []string
}

var stepKinds = []string{"say", "think", "call", "patch", "wait", "fail"}

// UnmarshalYAML checks that a step is exactly one thing.
func (s *step) UnmarshalYAML(n *yaml.Node) error {
	type plain step
	if err := decodeStrict(n, (*plain)(s), "say", "think", "call", "patch", "wait", "fail", "phase", "pace", "args", "id", "namespace", "raw"); err != nil {
		return err
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		for _, k := range stepKinds {
			if n.Content[i].Value == k {
				s.set = append(s.set, k)
			}
		}
	}
	if len(s.set) != 1 {
		return fmt.Errorf("line %d: a step must have exactly one of %s", n.Line, strings.Join(stepKinds, ", "))
	}
	return nil
}

// chunks is a text, or a list of texts that are streamed one by one.
type chunks struct {
	parts []string
	// given is true when the script lists the chunks itself.
	given bool
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (c *chunks) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.SequenceNode {
		c.given = true
		return n.Decode(&c.parts)
	}
	var s string
	if err := n.Decode(&s); err != nil {
		return err
	}
	c.parts = []string{s}
	return nil
}

// duration is a Go duration ("300ms") or a number of seconds.
type duration time.Duration

// UnmarshalYAML implements yaml.Unmarshaler.
func (d *duration) UnmarshalYAML(n *yaml.Node) error {
	var secs float64
	if n.Decode(&secs) == nil {
		if secs < 0 || secs > 86400 {
			return fmt.Errorf("line %d: %q is not between 0 and 86400 seconds", n.Line, n.Value)
		}
		*d = duration(secs * float64(time.Second))
		return nil
	}
	v, err := time.ParseDuration(n.Value)
	if err != nil || v < 0 {
		return fmt.Errorf("line %d: %q is not a duration such as 300ms or 2s", n.Line, n.Value)
	}
	*d = duration(v)
	return nil
}

// failure is how an answer fails.
type failure struct {
	// Kind is "cut", "status", "failed" or "incomplete".
	kind    string
	Status  int    `yaml:"status"`
	Body    string `yaml:"body"`
	Code    string `yaml:"code"`
	Message string `yaml:"message"`
	Reason  string `yaml:"incomplete"`
}

// UnmarshalYAML implements yaml.Unmarshaler.
func (f *failure) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		if n.Value != "cut" {
			return fmt.Errorf("line %d: fail is \"cut\" or a table with status, code or incomplete", n.Line)
		}
		f.kind = "cut"
		return nil
	}
	type plain failure
	if err := decodeStrict(n, (*plain)(f), "status", "body", "code", "message", "incomplete"); err != nil {
		return err
	}
	switch {
	case f.Status != 0:
		f.kind = "status"
		if f.Status < 300 || f.Status > 599 {
			return fmt.Errorf("line %d: status %d is not between 300 and 599", n.Line, f.Status)
		}
	case f.Reason != "":
		f.kind = "incomplete"
	case f.Code != "" || f.Message != "":
		f.kind = "failed"
	default:
		return fmt.Errorf("line %d: fail needs status, code or incomplete", n.Line)
	}
	return nil
}

type usage struct {
	Input     int64 `yaml:"input"`
	Cached    int64 `yaml:"cached"`
	Output    int64 `yaml:"output"`
	Reasoning int64 `yaml:"reasoning"`
}

// usage is what the script says, else an estimate of four bytes per token.
func (r *reply) usage(input []*heddlev1.HistoryEntry, written int) *heddlev1.TokenUsage {
	u := r.Usage
	if u == nil {
		read := 0
		for _, e := range input {
			read += len(partsText(e.GetMessage().GetParts())) + len(e.GetToolCall().GetArguments()) + len(partsText(e.GetToolOutput().GetParts()))
		}
		u = &usage{Input: int64(read+3) / 4, Output: int64(written+3) / 4}
	}
	return &heddlev1.TokenUsage{
		InputTokens: u.Input, CachedInputTokens: u.Cached, OutputTokens: u.Output, ReasoningOutputTokens: u.Reasoning, TotalTokens: u.Input + u.Output,
	}
}

// decodeStrict decodes a mapping and refuses keys that are not known.
func decodeStrict(n *yaml.Node, dst any, known ...string) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: expected a table with %s", n.Line, strings.Join(known, ", "))
	}
next:
	for i := 0; i+1 < len(n.Content); i += 2 {
		for _, k := range known {
			if n.Content[i].Value == k {
				continue next
			}
		}
		return fmt.Errorf("line %d: unknown key %q (known: %s)", n.Content[i].Line, n.Content[i].Value, strings.Join(known, ", "))
	}
	return n.Decode(dst)
}

// Parse reads a script. Errors are one line that names the file, and the line
// where one is known.
func Parse(name string, data []byte) (*Script, error) {
	if len(data) > maxScript {
		return nil, fmt.Errorf("script %s: larger than %d bytes", name, maxScript)
	}
	s := &Script{name: name}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	if err := dec.Decode(s); err != nil && !errors.Is(err, io.EOF) {
		text := strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n", " ")
		return nil, fmt.Errorf("script %s: %s", name, text)
	}
	if len(s.Replies) == 0 {
		return nil, fmt.Errorf("script %s: it has no replies; add a list under the key replies", name)
	}
	for i := range s.Replies {
		r := &s.Replies[i]
		r.find = map[string]*regexp.Regexp{}
		for k, p := range r.Find {
			re, err := regexp.Compile(p)
			if err != nil {
				return nil, fmt.Errorf("script %s: reply %d: find.%s: %w", name, i+1, k, err)
			}
			r.find[k] = re
		}
	}
	return s, nil
}
