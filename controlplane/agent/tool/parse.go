package tool

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	defaultYield = 10 * time.Second
	minYield     = 250 * time.Millisecond
	maxYield     = 30 * time.Second
	// An empty write_stdin only waits: a longer time saves the model steps.
	minPoll = 5 * time.Second
	maxPoll = 5 * time.Minute
	// maxOutputTokens bounds what a model may ask for.
	maxOutputTokens = 50000
	maxQuestions    = 16
)

// Parse reads a call of one of the built-in tools. A call that is malformed or
// of an unknown tool is an *Error. Dynamic and MCP tools are the caller's to
// look up first.
func Parse(c *heddlev1.ToolCall) (Call, error) {
	if c.GetFreeform() {
		if c.GetName() == NameApplyPatch && c.GetNamespace() == "" {
			return &ApplyPatch{Patch: c.GetArguments()}, nil
		}
		return nil, &Error{Output: "unsupported custom tool call: " + c.GetName()}
	}
	if isAgents(c.GetName()) && (c.GetNamespace() == "" || c.GetNamespace() == AgentsNamespace) {
		call, err := parseAgents(c.GetName(), c.GetArguments())
		if err != nil {
			return nil, &Error{Output: "failed to parse function arguments: " + err.Error()}
		}
		return call, nil
	}
	if c.GetNamespace() != "" {
		return nil, &Error{Output: "unsupported call: " + c.GetName()}
	}
	var call Call
	var err error
	switch c.GetName() {
	case NameExecCommand:
		call, err = parseExecCommand(c.GetArguments())
	case NameWriteStdin:
		call, err = parseWriteStdin(c.GetArguments())
	case NameApplyPatch:
		call, err = parseApplyPatch(c.GetArguments())
	case NameUpdatePlan:
		call, err = parseUpdatePlan(c.GetArguments())
	case NameViewImage:
		call, err = parseViewImage(c.GetArguments())
	case NameRequestUserInput:
		call, err = parseRequestUserInput(c.GetArguments())
	case NameRequestPermissions:
		call, err = parseRequestPermissions(c.GetArguments())
	default:
		if !isGoal(c.GetName()) {
			return nil, &Error{Output: "unsupported call: " + c.GetName()}
		}
		call, err = parseGoal(c.GetName(), c.GetArguments())
	}
	if err != nil {
		return nil, &Error{Output: "failed to parse function arguments: " + err.Error()}
	}
	return call, nil
}

func missing(field string) error { return fmt.Errorf("missing field `%s`", field) }

// decodeArgs reads a JSON object; its errors are for the model.
func decodeArgs(args string, dst any) error {
	dec := json.NewDecoder(strings.NewReader(args))
	err := dec.Decode(dst)
	var te *json.UnmarshalTypeError
	var se *json.SyntaxError
	switch {
	case errors.As(err, &te):
		where := ""
		if te.Field != "" {
			where = " for `" + te.Field + "`"
		}
		return fmt.Errorf("invalid type: %s%s, expected %s", te.Value, where, expected(te.Type.String()))
	case errors.As(err, &se):
		return fmt.Errorf("%s at byte %d", se.Error(), se.Offset)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the JSON ends too early")
	case err != nil:
		return err
	}
	if dec.More() {
		return errors.New("trailing characters after the JSON object")
	}
	return nil
}

func expected(goType string) string {
	switch strings.TrimLeft(goType, "*[]") {
	case "string":
		if strings.HasPrefix(goType, "[]") {
			return "a list of strings"
		}
		return "a string"
	case "bool":
		return "a boolean"
	case "int64", "float64", "json.Number":
		return "a number"
	}
	if strings.HasPrefix(goType, "[]") {
		return "a list"
	}
	return "an object"
}

// number accepts whole numbers however the model writes them (5, 5.0, 5e3).
type number float64

// UnmarshalJSON implements json.Unmarshaler.
func (n *number) UnmarshalJSON(b []byte) error {
	var f float64
	if err := json.Unmarshal(b, &f); err != nil {
		return fmt.Errorf("invalid type: %s, expected a number", bytes.TrimSpace(b))
	}
	*n = number(f)
	return nil
}

func clampYield(ms *number, def, lowest, highest time.Duration) time.Duration {
	if ms == nil {
		return def
	}
	// Compare before converting: a huge number must not overflow.
	if float64(*ms) >= float64(highest.Milliseconds()) {
		return highest
	}
	return max(time.Duration(float64(*ms)*float64(time.Millisecond)), lowest)
}

func clampTokens(n *number) int {
	if n == nil || *n < 1 {
		return DefaultMaxTokens
	}
	return int(min(*n, maxOutputTokens))
}

func parseExecCommand(args string) (Call, error) {
	var a struct {
		Cmd                *string  `json:"cmd"`
		Workdir            string   `json:"workdir"`
		YieldTimeMs        *number  `json:"yield_time_ms"`
		MaxOutputTokens    *number  `json:"max_output_tokens"`
		TTY                bool     `json:"tty"`
		Login              *bool    `json:"login"`
		Shell              string   `json:"shell"`
		SandboxPermissions string   `json:"sandbox_permissions"`
		Justification      string   `json:"justification"`
		PrefixRule         []string `json:"prefix_rule"`
	}
	if err := decodeArgs(args, &a); err != nil {
		return nil, err
	}
	if a.Cmd == nil {
		return nil, missing("cmd")
	}
	if strings.ContainsRune(*a.Cmd+a.Workdir+a.Shell, 0) {
		return nil, errors.New("a command cannot contain a zero byte")
	}
	e := &ExecCommand{
		Cmd: *a.Cmd, Workdir: a.Workdir, TTY: a.TTY, Login: a.Login == nil || *a.Login, Shell: a.Shell,
		Yield:           clampYield(a.YieldTimeMs, defaultYield, minYield, maxYield),
		MaxOutputTokens: clampTokens(a.MaxOutputTokens),
		Justification:   a.Justification, PrefixRule: a.PrefixRule,
	}
	switch a.SandboxPermissions {
	case "", "use_default":
	case "require_escalated":
		e.Escalated = true
	default:
		return nil, fmt.Errorf("unknown variant `%s`, expected `use_default` or `require_escalated`", a.SandboxPermissions)
	}
	return e, nil
}

func parseWriteStdin(args string) (Call, error) {
	var a struct {
		SessionID       *number `json:"session_id"`
		Chars           string  `json:"chars"`
		YieldTimeMs     *number `json:"yield_time_ms"`
		MaxOutputTokens *number `json:"max_output_tokens"`
	}
	if err := decodeArgs(args, &a); err != nil {
		return nil, err
	}
	if a.SessionID == nil {
		return nil, missing("session_id")
	}
	id := float64(*a.SessionID)
	if id < 0 || id >= 1<<53 || id != float64(int64(id)) {
		return nil, fmt.Errorf("invalid session id %v", id)
	}
	w := &WriteStdin{SessionID: int64(id), Chars: a.Chars, MaxOutputTokens: clampTokens(a.MaxOutputTokens)}
	if a.Chars == "" {
		w.Yield = clampYield(a.YieldTimeMs, minPoll, minPoll, maxPoll)
	} else {
		w.Yield = clampYield(a.YieldTimeMs, minYield, minYield, maxYield)
	}
	return w, nil
}

func parseApplyPatch(args string) (Call, error) {
	var a struct {
		Input *string `json:"input"`
		Patch *string `json:"patch"`
	}
	if err := decodeArgs(args, &a); err != nil {
		return nil, err
	}
	switch {
	case a.Input != nil:
		return &ApplyPatch{Patch: *a.Input}, nil
	case a.Patch != nil:
		return &ApplyPatch{Patch: *a.Patch}, nil
	}
	return nil, missing("input")
}

func parseUpdatePlan(args string) (Call, error) {
	var a struct {
		Explanation string `json:"explanation"`
		Plan        *[]struct {
			Step   *string `json:"step"`
			Status *string `json:"status"`
		} `json:"plan"`
	}
	if err := decodeArgs(args, &a); err != nil {
		return nil, err
	}
	if a.Plan == nil {
		return nil, missing("plan")
	}
	u := &UpdatePlan{Explanation: a.Explanation}
	for _, s := range *a.Plan {
		if s.Step == nil {
			return nil, missing("step")
		}
		if s.Status == nil {
			return nil, missing("status")
		}
		status := *s.Status
		switch status {
		case "pending", "completed":
		case "in_progress":
			status = "inProgress"
		default:
			return nil, fmt.Errorf("unknown variant `%s`, expected one of `pending`, `in_progress`, `completed`", status)
		}
		u.Steps = append(u.Steps, &heddlev1.PlanStep{Step: *s.Step, Status: status})
	}
	return u, nil
}

func parseViewImage(args string) (Call, error) {
	var a struct {
		Path *string `json:"path"`
	}
	if err := decodeArgs(args, &a); err != nil {
		return nil, err
	}
	if a.Path == nil || *a.Path == "" {
		return nil, missing("path")
	}
	return &ViewImage{Path: *a.Path}, nil
}

func parseRequestUserInput(args string) (Call, error) {
	var a struct {
		Questions *[]struct {
			ID       *string           `json:"id"`
			Header   string            `json:"header"`
			Question *string           `json:"question"`
			Options  []*QuestionOption `json:"options"`
		} `json:"questions"`
	}
	if err := decodeArgs(args, &a); err != nil {
		return nil, err
	}
	if a.Questions == nil {
		return nil, missing("questions")
	}
	if n := len(*a.Questions); n == 0 || n > maxQuestions {
		return nil, fmt.Errorf("%d questions, expected 1 to 3", n)
	}
	r := &RequestUserInput{}
	for _, q := range *a.Questions {
		if q.ID == nil {
			return nil, missing("id")
		}
		if q.Question == nil {
			return nil, missing("question")
		}
		out := Question{ID: *q.ID, Header: q.Header, Question: *q.Question}
		for _, o := range q.Options {
			if o != nil {
				out.Options = append(out.Options, *o)
			}
		}
		r.Questions = append(r.Questions, out)
	}
	return r, nil
}
