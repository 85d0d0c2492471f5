// Package tool defines the tools that are offered to the model: their schemas,
// the parsing of calls, and the form of the results.
//
// It is pure: nothing here runs a tool. Names, argument shapes and error texts
// are those that models are trained on and clients match on.
package tool

import (
	"time"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Names of the tools.
const (
	NameExecCommand      = "exec_command"
	NameWriteStdin       = "write_stdin"
	NameApplyPatch       = "apply_patch"
	NameUpdatePlan       = "update_plan"
	NameViewImage        = "view_image"
	NameRequestUserInput = "request_user_input"
	// NameRequestPermissions asks for more than the sandbox allows.
	NameRequestPermissions = "request_permissions"
)

// Options say which tools a turn offers.
type Options struct {
	// NoEnvironment leaves out everything that acts in the thread's folder:
	// commands, patches, images and the request for permissions.
	NoEnvironment bool
	// FreeformPatch offers apply_patch as a freeform tool; else FunctionPatch
	// decides whether the function form is offered.
	FreeformPatch bool
	FunctionPatch bool
	UpdatePlan    bool
	ViewImage     bool
	// WebSearch is what the service's search sees; empty offers none.
	WebSearch model.Search
	// RequestUserInput offers request_user_input.
	RequestUserInput bool
	// RequestPermissions offers request_permissions.
	RequestPermissions bool
	// Goals offers get_goal, create_goal and update_goal.
	Goals bool
	// Agents offers the tools that deal with sub-agents.
	Agents bool
	// Escalation adds sandbox_permissions, justification and prefix_rule.
	Escalation bool
	// Extra are appended as they are (dynamic and MCP tools).
	Extra []model.Tool
}

// Call is a parsed tool call: *ExecCommand, *WriteStdin, *ApplyPatch,
// *UpdatePlan, *ViewImage, *RequestUserInput,
// *RequestPermissions, *Goal or *Agents.
type Call interface{ call() }

// ExecCommand runs a shell command.
type ExecCommand struct {
	Cmd     string
	Workdir string
	// Yield is how long the model waits before it gets a session id; clamped.
	Yield           time.Duration
	MaxOutputTokens int
	TTY             bool
	Login           bool
	Shell           string
	// Escalated is true for sandbox_permissions "require_escalated".
	Escalated     bool
	Justification string
	PrefixRule    []string
}

// WriteStdin writes to, or only waits for, a running command.
type WriteStdin struct {
	SessionID       int64
	Chars           string
	Yield           time.Duration
	MaxOutputTokens int
}

// ApplyPatch changes files.
type ApplyPatch struct {
	Patch string
	// Workdir is the folder of relative paths; empty means the turn's cwd.
	Workdir string
}

// UpdatePlan replaces the plan that clients show.
type UpdatePlan struct {
	Explanation string
	Steps       []*heddlev1.PlanStep
}

// ViewImage shows a local image to the model.
type ViewImage struct {
	Path string
}

// RequestUserInput asks the person questions.
type RequestUserInput struct {
	Questions []Question
}

// Question is one question of RequestUserInput.
type Question struct {
	ID       string
	Header   string
	Question string
	Options  []QuestionOption
}

// QuestionOption is one offered answer.
type QuestionOption struct {
	Label       string `json:"label"`
	Description string `json:"description"`
}

func (*ExecCommand) call()      {}
func (*WriteStdin) call()       {}
func (*ApplyPatch) call()       {}
func (*UpdatePlan) call()       {}
func (*ViewImage) call()        {}
func (*RequestUserInput) call() {}

// Error is a call that cannot be done; its text is the output for the model.
type Error struct{ Output string }

func (e *Error) Error() string { return e.Output }
