// Package mcp is the client side of the Model Context Protocol: the servers that
// a thread's config names, their tools and resources.
//
// A Set holds the servers of one thread. They start in the background; a server
// that cannot be started, hangs, floods or dies costs its own calls and nothing
// else: every wait is bounded, messages are bounded in size, and what a server
// writes reaches the control plane only as fast as it is read. A server that
// died is started again by the next call. Servers that are programs run on an
// executor, never in this process; see Process.
//
// A Set is safe for concurrent use.
package mcp

import (
	"context"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/heddle-dev/heddle/controlplane/mcp/oauth"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// maxMessage bounds one message of a server, in bytes.
	maxMessage = 8 << 20
	// maxResult bounds a tool's result that is recorded, in bytes of JSON.
	maxResult = 4 << 20
	// maxDepth bounds the nesting of what a server sends on.
	maxDepth = 64
	// maxTools and maxToolBytes bound the tools of one server.
	maxTools     = 256
	maxToolBytes = 1 << 20
	// maxResources bounds the resources, and the templates, that are listed.
	maxResources = 2000
	// maxCalls bounds the calls of one server that run at a time.
	maxCalls = 16
	// protocolVersion is the newest one that is offered to servers.
	protocolVersion = "2025-11-25"
)

// States of a server, as clients are told.
const (
	Starting  = "starting"
	Ready     = "ready"
	Failed    = "failed"
	Cancelled = "cancelled"
)

// Server is how one server is reached.
type Server struct {
	Name string
	// Argv, Env ("K=V"), Cwd and Policy are those of a program.
	Argv   []string
	Env    []string
	Cwd    string
	Policy *heddlev1.SandboxPolicy
	// URL and Headers are those of a streamable HTTP server.
	URL     string
	Headers map[string]string

	StartupTimeout time.Duration
	ToolTimeout    time.Duration
	// Enabled are the only tools to offer, when not nil; Disabled are never.
	Enabled  []string
	Disabled []string
	// Approval is "auto" (or empty), "prompt" or "approve"; ToolApproval is the
	// same by tool.
	Approval     string
	ToolApproval map[string]string
	// Scopes to ask for in a login; empty means those that the server names.
	Scopes []string
	// CallbackPort is where the browser comes back to after a login; 0 means any.
	CallbackPort int
	// Required means that a thread does not start without the server.
	Required bool
	// Problem says why the server cannot be started.
	Problem string
}

// Process is a server's program on an executor.
type Process interface {
	Stdin(ctx context.Context, data []byte, close bool) error
	Terminate(ctx context.Context) error
	Result(ctx context.Context) (*executorv1.ActionResult, error)
	// Settle says that the result may be forgotten.
	Settle()
}

// Host is what a Set needs of its surroundings.
type Host struct {
	// Launch starts a program; output gets what it writes, in order.
	Launch func(ctx context.Context, s *Server, output func(*executorv1.OutputChunk) error) (Process, error)
	// Status is told how far the start of a server is; may be nil.
	Status func(server, state, problem string)
	// Logins are those at servers that are reached over HTTP; nil means none.
	Logins *oauth.Logins
	// Version is that of this program.
	Version string
}

// Tool is one tool that is offered.
type Tool struct {
	Server string
	Name   string
	// Namespace and Alias are what the model calls it by.
	Namespace   string
	Alias       string
	Title       string
	Description string
	Schema      map[string]any
	// ReadOnly is what the server says of it; nil when it says nothing.
	ReadOnly *bool
	// Asks is true when a call needs an approval.
	Asks bool

	wire *structpb.Struct
}

// Question is what a server asks the person in the middle of a call.
type Question struct {
	Server        string
	Mode          string
	Message       string
	Schema        any
	URL           string
	ElicitationID string
	Meta          map[string]any
}

// Answer is the person's.
type Answer struct {
	// Action is "accept", "decline" or "cancel".
	Action  string
	Content map[string]any
}

// Call is one call of a tool.
type Call struct {
	Tool      string
	Arguments map[string]any
	// Ask puts a question of the server to the person; nil declines all.
	Ask func(ctx context.Context, q *Question) (*Answer, error)
	// Progress is told what the server says of the call; may be nil.
	Progress func(message string)
}

func decline() *sdk.ElicitResult { return &sdk.ElicitResult{Action: "decline"} }
