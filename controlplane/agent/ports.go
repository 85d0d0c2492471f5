package agent

import (
	"context"
	"time"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/tool"
	"github.com/heddle-dev/heddle/controlplane/command"
	"github.com/heddle-dev/heddle/controlplane/hook"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Streams holds the output of commands.
type Streams interface {
	// WriteAt stores bytes of an item's output, whose position in the whole is
	// offset; repeated ranges are harmless. cut is the number of bytes that the
	// source left out behind them. It returns what is stored and what is not.
	WriteAt(threadID, itemID string, offset int64, data []byte, cut int64) (size, dropped int64, err error)
	// Size is the length of what is stored.
	Size(threadID, itemID string) (int64, error)
	// ReadAt returns a range and the total length.
	ReadAt(threadID, itemID string, offset, length int64) (data []byte, total int64, err error)
	// Aggregated is a view of at most limit bytes: head, mark, tail.
	Aggregated(threadID, itemID string, limit int64) ([]byte, error)
	// Seal says that nothing more will be written.
	Seal(threadID, itemID string) error
	DeleteThread(threadID string) error
}

// Blobs keeps the patches of turns.
type Blobs interface {
	// PutBlob makes bytes of a thread durable under their hexadecimal SHA-256,
	// which it returns. owner is the turn that they belong to.
	PutBlob(threadID, owner string, data []byte) (sum string, err error)
	// DiscardBlobs removes what an owner put that nothing refers to.
	DiscardBlobs(threadID, owner string) error
	// KeepDraft keeps what the owner needs to go on with its patch after a
	// restart, in place of an earlier draft; nil drops it.
	KeepDraft(threadID, owner string, data []byte) error
	// Draft returns what was kept, nil when nothing was.
	Draft(threadID, owner string) ([]byte, error)
}

// Spec is one action for a thread's executor. Lease and epoch are the
// dispatcher's to fill in.
type Spec struct {
	ThreadID  string
	Principal string
	Action    *executorv1.Action
	// Output gets the output in order; a chunk counts as taken when it returns.
	Output func(*executorv1.OutputChunk) error
	// Network takes part in what a proxied network decides; nil refuses what the
	// policy does not allow.
	Network Network
	// Epoch, when not 0, is that of the lease under which alone the action may run.
	Epoch uint64
}

// Handle is one dispatched action.
type Handle interface {
	Started() <-chan struct{}
	PID() int64
	// Result waits for the end of the action.
	Result(ctx context.Context) (*executorv1.ActionResult, error)
	// Settle says that the result is recorded and may be forgotten.
	Settle()
	Stdin(ctx context.Context, data []byte, close bool) error
	Interrupt(ctx context.Context) error
	Terminate(ctx context.Context) error
}

// Dispatcher sends actions to executors.
type Dispatcher interface {
	Start(ctx context.Context, s Spec) (Handle, error)
	// Reattach finds an action again that was started before a restart. The error
	// is an *UndeliveredError when the action may be sent again.
	Reattach(ctx context.Context, s Spec, fromOffset int64) (Handle, error)
	// ReleaseThread ends the thread's lease and with it everything it runs.
	ReleaseThread(ctx context.Context, threadID string) error
}

// Resolver finds what a turn needs besides the thread itself.
type Resolver interface {
	Resolve(ctx context.Context, settings *heddlev1.ThreadSettings, sessionID string) (*Runtime, error)
}

// Rules are the user's prefix rules.
type Rules interface {
	Decide(cmd string) (command.Verdict, *command.Rule)
	Append(prefix []string) error
	Allowed() [][]string
}

// Runtime is everything that settings, config and session come to for a turn.
type Runtime struct {
	Client model.Client
	// Model is what is known about the model, Warning what the user should
	// know about that.
	Model    model.Info
	Warning  string
	Provider string
	// ReviewModel is the model of reviewers; empty means the thread's.
	ReviewModel string

	Effort      string
	Summary     string
	Verbosity   string
	ServiceTier string

	// StreamMaxRetries is how often a broken stream is asked for again.
	StreamMaxRetries int
	AutoCompactLimit int64
	// CompactPrompt asks for the summary; empty means the built-in text.
	CompactPrompt string
	Tools         tool.Options
	Agents        Agents
	// Env is the filtered environment of commands, sorted "K=V".
	Env []string
	// SkillEnabled reports whether a skill may be used; nil means that none may.
	SkillEnabled func(name, path string) bool
	// SkillRoots are absolute folders on the executor that hold further skills.
	SkillRoots []string
	// Hooks are those of the config, HookWarnings what is wrong with them.
	Hooks        []hook.Hook
	HookWarnings []string
	// IgnoreRules is true where the rules for commands do not count.
	IgnoreRules bool
	// ApprovalTimeout is the deadline of a question.
	ApprovalTimeout time.Duration
	// UserAgent is that of the control plane; the client's name stands before it.
	UserAgent string
}
