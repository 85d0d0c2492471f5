// Package store defines where threads live: a domain-level store with appends
// that are conditional on the expected seq and the owner's epoch, and reads
// whose cost does not grow with history.
//
// Guarantees that every implementation keeps (storetest checks them):
//   - Commit is one transaction: events, rows and indexes change together or
//     not at all, and are durable when it returns nil.
//   - A read sees whole commits only. No read holds a transaction after it
//     returns.
//   - A damaged record is confined to itself: reads of everything else work,
//     and a watcher is told of the hole.
//   - A fork reads the turns, items and history of its source up to the cut
//     as its own.
//
// Messages that a read returns belong to the caller, except that an in-memory
// store may share them with other readers: treat them as read-only. All methods
// are safe for concurrent use.
package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/heddle-dev/heddle/controlplane/thread"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// ErrUnknownOutcome says that a commit may or may not have happened. The
// caller reads the head again and decides.
var ErrUnknownOutcome = errors.New("outcome of the commit is unknown")

// Append is the change of one thread within a commit.
type Append struct {
	ThreadID string
	// ExpectedSeq is the seq of the last event before this append; the commit
	// fails with a *ConflictError when the log's head is another.
	ExpectedSeq uint64
	// Epoch is the owner's. It must equal the thread's, except with Claim,
	// where it must be larger and becomes the thread's.
	Epoch uint64
	Claim bool
	// Create makes the thread; it must not exist. BaseOrdinal and the first
	// row come from State.
	Create      bool
	BaseOrdinal int64
	// Events continue the log after ExpectedSeq without gaps.
	Events  []*heddlev1.Event
	Changes thread.Changes
	// Compact drops the increments of completed items from older records.
	Compact []thread.Compaction
}

// ConflictError says which append of a commit was refused and why. Err is a
// typed error of errdefs.
type ConflictError struct {
	ThreadID string
	Err      error
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("append to thread %s: %v", e.ThreadID, e.Err)
}

// Unwrap returns the typed error.
func (e *ConflictError) Unwrap() error { return e.Err }

// Reader is the reading side of a store. Methods that name a thread fail with
// errdefs.ThreadNotFound when it does not exist.
type Reader interface {
	// Load returns what the fold needs to continue the thread.
	Load(ctx context.Context, threadID string) (*thread.State, error)
	// Thread returns the thread's row.
	Thread(ctx context.Context, threadID string) (*heddlev1.Thread, error)
	// ListThreads pages through a principal's threads. Pages of this and the
	// other listings end early past PageBytes. A token that was not
	// made for the query fails with errdefs.InvalidCursor.
	ListThreads(ctx context.Context, principal string, req *heddlev1.ListThreadsRequest) (*heddlev1.ListThreadsResponse, error)

	// Events returns events after a seq, oldest first, of about maxBytes (at
	// least one event when there is one; 0 means a default), and the last seq
	// in the log. A range that was compacted or is damaged is one
	// RangeCompacted event with the range's first seq; when the cursor lies
	// inside such a range the event begins at the range's start.
	Events(ctx context.Context, threadID string, after uint64, maxBytes int) (events []*heddlev1.Event, head uint64, err error)

	// Turn fails with errdefs.TurnNotFound when the thread has no such turn.
	Turn(ctx context.Context, threadID, turnID string) (*heddlev1.Turn, error)
	ListTurns(ctx context.Context, req *heddlev1.ListTurnsRequest) (*heddlev1.ListTurnsResponse, error)
	// Item fails with errdefs.ItemNotFound. The row's ThreadID says whose
	// stream files hold the item's output.
	Item(ctx context.Context, threadID, itemID string) (thread.ItemRow, error)
	ListItems(ctx context.Context, req *heddlev1.ListItemsRequest) (*heddlev1.ListItemsResponse, error)
	// History returns what the model is shown: the entries since the last
	// replacement, those of a fork's source included.
	History(ctx context.Context, threadID string) ([]*heddlev1.HistoryEntry, error)

	// Shared returns what a fork with the row, made at the turn with ordinal
	// base, would see of its source, as the first rows of a log of its own. It
	// is for forks that live in another store than their source.
	Shared(ctx context.Context, fork *heddlev1.Thread, base int64) (thread.Changes, error)

	// OpenThreads names the threads with an open turn, item, action or
	// approval. Its cost is that of what is open.
	OpenThreads(ctx context.Context) ([]string, error)
	OpenTurns(ctx context.Context) ([]*heddlev1.Turn, error)
	// OpenItems returns the started and not completed items, oldest first.
	OpenItems(ctx context.Context, threadID string) ([]*heddlev1.Item, error)
	OpenActions(ctx context.Context, threadID string) ([]*heddlev1.ActionIntent, error)
	// PendingApprovals returns them in the order of their request ids.
	PendingApprovals(ctx context.Context, threadID string) ([]*heddlev1.Approval, error)
	// Approval returns a pending or decided one, else errdefs.ApprovalNotFound.
	Approval(ctx context.Context, threadID, approvalID string) (*heddlev1.Approval, error)
	// NextRequestID hands out the next approval request id of the home, from
	// 0. An id that was committed with an approval is never handed out again,
	// also after a restart.
	NextRequestID(ctx context.Context, threadID string) (int64, error)

	// Attachment returns the attachment with the key, nil when there is none.
	Attachment(ctx context.Context, threadID string, key thread.AttachmentKey) (*heddlev1.Attachment, error)
	// Attachments returns up to limit attachments with ids after the given one,
	// oldest first; at least one when there is one, of about PageBytes.
	Attachments(ctx context.Context, threadID, after string, limit int) ([]*heddlev1.Attachment, error)
	AttachmentOwners(ctx context.Context, q AttachmentOwners) ([]AttachmentOwner, error)

	// Records returns all records of a kind, by id.
	Records(ctx context.Context, principal, kind string) ([]Record, error)
	// Record returns one record's value, nil when there is none.
	Record(ctx context.Context, principal, kind, id string) ([]byte, error)

	// Meta returns the value of a key of the home, nil when unset.
	Meta(ctx context.Context, key string) ([]byte, error)
	// Stats returns counters since the store was opened: "commits", "fsyncs",
	// "events", "bytes" and those of the implementation.
	Stats() map[string]int64
}

// Store is a Reader that can be written. Commit has one caller at a time per
// thread (the event log).
type Store interface {
	Reader
	// Commit makes the appends durable in one transaction. It fails with a
	// *ConflictError when a condition does not hold (nothing was written), with
	// ErrUnknownOutcome when it cannot tell, and with errdefs.StoreUnavailable
	// when the medium refuses (nothing was written).
	Commit(ctx context.Context, appends []Append) error
	// DeleteThread removes a thread for ever. It fails with
	// errdefs.ThreadHasForks while a fork refers to it.
	DeleteThread(ctx context.Context, threadID string) error
	// PutRecords writes and removes records of a kind in one transaction.
	PutRecords(ctx context.Context, principal, kind string, records ...Record) error
	// SetMeta writes a key of the home durably; nil removes it.
	SetMeta(ctx context.Context, key string, value []byte) error
	Close() error
}
