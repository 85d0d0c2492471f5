package dispatch

import (
	"fmt"
	"strings"
	"time"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// state of an action; it only goes forward, but for a sent action that was
// never written to the transport.
type state int

const (
	// stateWaiting: in the queue.
	stateWaiting state = iota
	// stateSent: given to an executor, start not reported.
	stateSent
	// stateStarted: known to have started.
	stateStarted
	// stateEnded: the result is here, output before it is still being consumed.
	stateEnded
	// stateDone: the handle has ended.
	stateDone
)

// action is the dispatcher's record of one unit of work. All fields but those
// set at creation are guarded by Dispatcher.mu; result and err are readable
// without it once done is closed.
type action struct {
	id       string
	spec     Spec
	msg      *executorv1.Action // nil for an action that was announced to us
	order    uint64
	enqueued time.Time
	started  chan struct{}
	done     chan struct{}
	// stopCtx ends the watch of Start's context.
	stopCtx func() bool

	state      state
	executorID string
	leaseID    string
	epoch      uint64
	pid        int64
	reason     string    // why it waits
	waitUntil  time.Time // end of the wait for an executor; zero means none
	// sentOn and sentPos are where the action message was last put.
	sentOn  *session
	sentPos int64
	// lostAt is when a started action that its executor no longer runs counts as
	// lost, unless its result arrives; zero means not.
	lostAt time.Time

	// claimed is false for an action that an executor announced and that nobody
	// has re-attached to yet.
	claimed  bool
	output   [3]outputStream
	queue    []*executorv1.OutputChunk
	queued   int64
	draining bool
	// failed is the error of the Output function.
	failed error

	interrupted, terminated bool
	resize                  *executorv1.Resize
	stdinSeq                uint64
	stdinKept               []sentStdin
	stdinBytes              int
	// stdinRoom is closed and replaced when kept bytes were dropped.
	stdinRoom chan struct{}

	// networkOpen are the questions being asked; networkAsked and networkTold wait
	// for a Reattach.
	networkOpen  map[string]bool
	networkAsked []*executorv1.NetworkRequest
	networkTold  []*heddlev1.NetworkDecided

	result *executorv1.ActionResult
	err    error
	// reported is set when the result came from the executor, which keeps it until
	// it is acknowledged.
	reported bool
	// acked is set once the result needs no more acknowledgement.
	acked bool
}

// outputStream counts one stream of output. next is the offset expected from
// the executor, consumed what the consumer has taken, acked what was
// acknowledged.
type outputStream struct {
	known bool
	// dropped is the largest number of bytes told to be dropped at the end.
	dropped               int64
	next, consumed, acked int64
}

// sentStdin is a write that may have to be sent again.
type sentStdin struct {
	msg *executorv1.Stdin
	// session and round before whose acknowledgement the write was sent.
	session *session
	round   uint64
}

func newAction(id string, spec Spec) *action {
	return &action{
		id:        id,
		spec:      spec,
		msg:       spec.Action,
		started:   make(chan struct{}),
		done:      make(chan struct{}),
		stdinRoom: make(chan struct{}),
	}
}

// live reports whether an executor has the action and its result is not here.
func (a *action) live() bool { return a.state == stateSent || a.state == stateStarted }

func (a *action) markStarted(pid int64) {
	if pid != 0 {
		a.pid = pid
	}
	if a.state == stateSent {
		a.state = stateStarted
		closeOnce(a.started)
	}
}

// accept takes a chunk from the executor into the queue: trimmed by what was
// received before, nil when all of it was.
func (a *action) accept(c *executorv1.OutputChunk) *executorv1.OutputChunk {
	st := &a.output[c.GetStream()]
	if !st.known {
		// A re-attached action: its consumer's position is not known yet.
		st.known, st.next, st.consumed, st.acked = true, c.GetOffset(), c.GetOffset(), c.GetOffset()
	}
	end := c.GetOffset() + int64(len(c.GetData()))
	if end <= st.next && c.GetDropped() <= st.dropped {
		return nil
	}
	st.dropped = max(st.dropped, c.GetDropped())
	if cut := st.next - c.GetOffset(); cut > 0 {
		c.Data = c.GetData()[min(cut, int64(len(c.GetData()))):]
		c.Offset = st.next
	}
	st.next = max(st.next, end)
	return c
}

// trim drops from the queue what a consumer already has of stream 1.
func (a *action) trim(from int64) {
	st := &a.output[1]
	if !st.known {
		*st = outputStream{known: true, next: from, consumed: from, acked: 0}
		return
	}
	kept := a.queue[:0]
	for _, c := range a.queue {
		if cut := from - c.GetOffset(); c.GetStream() == 1 && cut > 0 {
			n := min(cut, int64(len(c.GetData())))
			c.Data, c.Offset = c.GetData()[n:], c.GetOffset()+n
			a.queued -= n
			if len(c.GetData()) == 0 && c.GetDropped() == 0 {
				continue
			}
		}
		kept = append(kept, c)
	}
	a.queue = kept
	st.next, st.consumed = max(st.next, from), max(st.consumed, from)
}

// describe names the action for people, for error texts.
func (a *action) describe() string {
	switch k := a.msg.GetKind().(type) {
	case *executorv1.Action_StartProcess:
		text := strings.Join(k.StartProcess.GetArgv(), " ")
		if r := []rune(text); len(r) > 80 {
			text = string(r[:80]) + "..."
		}
		return fmt.Sprintf("%q", text)
	case *executorv1.Action_PlanPatch:
		return "the plan of a patch"
	case *executorv1.Action_CommitPatch:
		return "a patch"
	case *executorv1.Action_Prepare:
		return "the preparation of a sandbox"
	case *executorv1.Action_Inspect:
		return "the inspection of a workspace"
	case *executorv1.Action_ReadFile:
		return "the reading of a file"
	case *executorv1.Action_FileOperation:
		return "a file operation"
	case *executorv1.Action_WatchFiles:
		return "the watching of files"
	case *executorv1.Action_SearchFiles:
		return "a file search"
	}
	return "action " + a.id
}

// cancelledResult is the outcome of an action that ended before any executor
// had it, or together with its scope.
func (a *action) cancelledResult(message string) *executorv1.ActionResult {
	return &executorv1.ActionResult{
		ActionId: a.id, LeaseId: a.leaseID, Epoch: a.epoch,
		Outcome: &executorv1.ActionResult_Error{Error: &heddlev1.ActionError{Code: "cancelled", Message: message}},
	}
}

func closeOnce(ch chan struct{}) {
	select {
	case <-ch:
	default:
		close(ch)
	}
}
