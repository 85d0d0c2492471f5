// Package execmode runs one turn for a person or a script: `heddle exec`.
//
// It is a client of the control plane's gRPC services. The final answer alone
// goes to standard output (or one JSON event per line), everything else to
// standard error. Processes that the turn left running are ended before the end
// of the turn is reported. A control plane that dies meanwhile is waited for:
// the session attaches again and the log is read on from the last event seen.
package execmode

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Exit codes of `heddle exec`; its help lists them.
const (
	ExitCompleted      = 0
	ExitFailed         = 1
	ExitUsage          = 2
	ExitNotEnforceable = 3
	ExitInterrupted    = 130
)

// Options say what to run and how to show it.
type Options struct {
	// Dial connects to the control plane and starts it when needed.
	Dial func(context.Context) (*grpc.ClientConn, error)
	// Attach registers the session; an empty session id is filled in.
	Attach *heddlev1.AttachRequest
	// Thread describes a new thread. Its settings are laid over a resumed one.
	Thread *heddlev1.StartThreadRequest
	// Resume names an existing thread instead; nil for a new one.
	Resume *Resume
	// Review, unless nil, is what a reviewer is asked for instead of Input.
	Review *heddlev1.StartReviewRequest
	// Input is the request; Schema may ask for a shape of the final answer.
	Input  *heddlev1.UserMessage
	Schema map[string]any

	// JSON writes events to Stdout instead of the final answer.
	JSON           bool
	Color          bool
	Stdout, Stderr io.Writer
	// LastMessageFile receives the final answer too; empty for none.
	LastMessageFile string
	// LogFile is named to the person; empty for none.
	LogFile string
	// Notes are warnings that came up before, shown as the control plane's are.
	Notes []string
	// Interrupt asks for the end of the turn with its first value and for an
	// end at once with its second.
	Interrupt <-chan struct{}
}

// Resume names an earlier thread.
type Resume struct {
	// ID of the thread; empty means the last one that ran in Cwd, or anywhere
	// when Cwd is empty too.
	ID  string
	Cwd string
	// Fork works on a copy, which the new thread is. With ForkOnly the copy is
	// all there is to do: no turn runs.
	Fork, ForkOnly bool
}

// Outcome is how a run ended.
type Outcome struct {
	// Code is the exit code.
	Code int
	// Failure says what went wrong, empty for ExitCompleted.
	Failure string
	// Answer is the last message of the model.
	Answer string
	Usage  *heddlev1.TokenUsage
	Turn   *heddlev1.Turn
}

// view shows a run.
type view interface {
	threadStarted(t *heddlev1.Thread)
	warning(text string)
	// event shows one event of the turn, in log order.
	event(ev *heddlev1.Event)
	// ended shows the end; the turn is unset when there was none.
	ended(o Outcome)
}

// onceView shows each warning once: the same one may come with an answer and in
// the log.
type onceView struct {
	view
	said map[string]bool
}

func (v *onceView) warning(text string) {
	if !v.said[text] {
		v.said[text] = true
		v.view.warning(text)
	}
}

func (v *onceView) event(ev *heddlev1.Event) {
	if w := ev.GetWarningRaised(); w != nil {
		v.warning(w.GetMessage())
		return
	}
	for _, e := range ev.GetHistoryAppended().GetEntries() {
		// Such an action makes no item: without this line nobody would see it.
		if why := refusal(e.GetToolOutput()); why != "" {
			v.view.warning(why)
		}
	}
	v.view.event(ev)
}

// Run runs the turn and reports it. It returns when nothing of it is left.
func Run(ctx context.Context, opts Options) Outcome {
	opts.Stderr = &lockedWriter{w: opts.Stderr}
	var v view = newRenderer(opts)
	if opts.JSON {
		v = newJSONView(opts.Stdout)
	}
	v = &onceView{view: v, said: map[string]bool{}}
	r := &runner{opts: opts, view: v}
	out, err := r.run(ctx)
	if err != nil {
		out.Code, out.Failure = codeOf(ctx, err), err.Error()
	}
	if opts.LastMessageFile != "" && out.Turn != nil {
		if err := writeAnswer(opts.LastMessageFile, out.Answer); err != nil {
			v.warning(err.Error())
			if out.Code == ExitCompleted {
				out.Code, out.Failure = ExitFailed, err.Error()
			}
		}
	}
	v.ended(out)
	return out
}

// codeOf maps an error that ended a run without the end of a turn.
func codeOf(ctx context.Context, err error) int {
	switch {
	case errors.Is(err, errInterrupted), ctx.Err() != nil:
		return ExitInterrupted
	case errdefs.Is(err, errdefs.NotEnforceable):
		return ExitNotEnforceable
	case errdefs.Is(err, errdefs.InvalidConfig), errdefs.Is(err, errdefs.InvalidArgument):
		return ExitUsage
	}
	return ExitFailed
}
