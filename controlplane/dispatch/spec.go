package dispatch

import (
	"time"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

// Spec is one action to run.
type Spec struct {
	// Scope is "thread/ID", "connection/ID" or "task/ID".
	Scope string
	// Principal that owns the scope; every action of a scope has the same one.
	Principal string
	// Labels that the executor must have, each with exactly this value.
	Labels map[string]string
	// Action with its id, attempt and kind. Lease and epoch are filled in here.
	// The message belongs to the dispatcher from Start on. attempt 0 becomes 1.
	Action *executorv1.Action
	// Output takes output in order, one call at a time; the bytes are
	// acknowledged when it returns. An error ends the process and becomes the
	// error of Result. Nil discards.
	Output func(*executorv1.OutputChunk) error
	// Network takes part in what a proxied network decides; nil refuses what the
	// policy does not allow.
	Network Network
	// Epoch, when not 0, is that of the lease under which alone the action may run:
	// one that is sent again to the executor that may have had it. It ends as
	// UnknownOutcome once the scope is held otherwise.
	Epoch uint64
	// Priority in the queue; higher goes first, equal ones in order of arrival.
	Priority int
	// Wait overrides Config.Wait; negative waits for an executor without limit.
	Wait time.Duration
	// FenceAfter overrides Config.FenceAfter when this action is the first of its
	// scope's lease (offline-tolerant tasks).
	FenceAfter time.Duration
}

// Peer is what the transport knows about the other end of a session.
type Peer struct {
	// Address for people.
	Address string
	// Principal the transport has proven; empty means any.
	Principal string
	// Probe is set for a peer on this machine: given the process id of the
	// executor when it registers, it returns a function that tells whether that
	// process is known to be dead. Its loss then needs no fence.
	Probe func(pid int64) func() bool
}

// Link is the transport of one session; a gRPC server stream is one. Send and
// Recv are each called by one goroutine at a time, and return with an error once
// Serve has returned.
type Link interface {
	Send(*executorv1.ConnectResponse) error
	Recv() (*executorv1.ConnectRequest, error)
}
