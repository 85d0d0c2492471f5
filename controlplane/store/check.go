package store

import (
	"strconv"

	"github.com/heddle-dev/heddle/proto/errdefs"
)

// Head is where a thread's log stands.
type Head struct {
	Seq   uint64
	Epoch uint64
}

// Check verifies the conditions of an append against the head, which is nil
// when the thread does not exist. It returns a *ConflictError.
func (a *Append) Check(head *Head) error {
	if err := a.check(head); err != nil {
		return &ConflictError{ThreadID: a.ThreadID, Err: err}
	}
	return nil
}

func (a *Append) check(head *Head) error {
	switch {
	case a.Create && head != nil:
		return errdefs.New(errdefs.InvalidArgument, "thread %s exists already", a.ThreadID)
	case a.Create && a.Changes.Row == nil:
		return errdefs.New(errdefs.InvalidArgument, "new thread %s has no row", a.ThreadID)
	case a.Create:
		return a.checkSeqs(0)
	case head == nil:
		return NotFound(a.ThreadID)
	case a.Claim && a.Epoch <= head.Epoch, !a.Claim && a.Epoch != head.Epoch:
		return errdefs.New(errdefs.StaleEpoch, "thread %s is owned under epoch %d, not %d", a.ThreadID, head.Epoch, a.Epoch).
			With("epoch", strconv.FormatUint(head.Epoch, 10))
	}
	return a.checkSeqs(head.Seq)
}

func (a *Append) checkSeqs(head uint64) error {
	if a.ExpectedSeq != head {
		return errdefs.New(errdefs.StaleEpoch, "the log of thread %s ends at %d, expected %d", a.ThreadID, head, a.ExpectedSeq)
	}
	for i, ev := range a.Events {
		if want := head + uint64(i) + 1; ev.GetSeq() != want {
			return errdefs.New(errdefs.Internal, "event %d of the append to thread %s has seq %d, want %d", i, a.ThreadID, ev.GetSeq(), want)
		}
	}
	return nil
}

// LastSeq is the seq of the log's head after the append.
func (a *Append) LastSeq() uint64 { return a.ExpectedSeq + uint64(len(a.Events)) }

// NotFound is the error for a thread that does not exist.
func NotFound(threadID string) error {
	return errdefs.New(errdefs.ThreadNotFound, "thread not found: %s", threadID).With("thread_id", threadID)
}
