package eventlog

import (
	"context"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/store/memstore"
	"github.com/heddle-dev/heddle/controlplane/thread"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// router reads ephemeral threads from memory and all others from the durable
// store. Listings hold durable threads only.
type router struct {
	durable store.Reader
	mem     *memstore.Store
}

func (r router) of(threadID string) store.Reader {
	if r.mem.Has(threadID) {
		return r.mem
	}
	return r.durable
}

func (r router) Load(ctx context.Context, threadID string) (*thread.State, error) {
	return r.of(threadID).Load(ctx, threadID)
}

func (r router) Thread(ctx context.Context, threadID string) (*heddlev1.Thread, error) {
	return r.of(threadID).Thread(ctx, threadID)
}

func (r router) ListThreads(ctx context.Context, principal string, req *heddlev1.ListThreadsRequest) (*heddlev1.ListThreadsResponse, error) {
	return r.durable.ListThreads(ctx, principal, req)
}

func (r router) Events(ctx context.Context, threadID string, after uint64, maxBytes int) ([]*heddlev1.Event, uint64, error) {
	return r.of(threadID).Events(ctx, threadID, after, maxBytes)
}

func (r router) Turn(ctx context.Context, threadID, turnID string) (*heddlev1.Turn, error) {
	return r.of(threadID).Turn(ctx, threadID, turnID)
}

func (r router) ListTurns(ctx context.Context, req *heddlev1.ListTurnsRequest) (*heddlev1.ListTurnsResponse, error) {
	return r.of(req.GetThreadId()).ListTurns(ctx, req)
}

func (r router) Item(ctx context.Context, threadID, itemID string) (thread.ItemRow, error) {
	return r.of(threadID).Item(ctx, threadID, itemID)
}

func (r router) ListItems(ctx context.Context, req *heddlev1.ListItemsRequest) (*heddlev1.ListItemsResponse, error) {
	return r.of(req.GetThreadId()).ListItems(ctx, req)
}

func (r router) History(ctx context.Context, threadID string) ([]*heddlev1.HistoryEntry, error) {
	return r.of(threadID).History(ctx, threadID)
}

func (r router) Shared(ctx context.Context, fork *heddlev1.Thread, base int64) (thread.Changes, error) {
	return r.of(fork.GetForkedFromId()).Shared(ctx, fork, base)
}

func (r router) OpenThreads(ctx context.Context) ([]string, error) {
	durable, err := r.durable.OpenThreads(ctx)
	if err != nil {
		return nil, err
	}
	ephemeral, err := r.mem.OpenThreads(ctx)
	return append(durable, ephemeral...), err
}

func (r router) OpenTurns(ctx context.Context) ([]*heddlev1.Turn, error) {
	durable, err := r.durable.OpenTurns(ctx)
	if err != nil {
		return nil, err
	}
	ephemeral, err := r.mem.OpenTurns(ctx)
	return append(durable, ephemeral...), err
}

func (r router) OpenItems(ctx context.Context, threadID string) ([]*heddlev1.Item, error) {
	return r.of(threadID).OpenItems(ctx, threadID)
}

func (r router) OpenActions(ctx context.Context, threadID string) ([]*heddlev1.ActionIntent, error) {
	return r.of(threadID).OpenActions(ctx, threadID)
}

func (r router) PendingApprovals(ctx context.Context, threadID string) ([]*heddlev1.Approval, error) {
	return r.of(threadID).PendingApprovals(ctx, threadID)
}

func (r router) Approval(ctx context.Context, threadID, approvalID string) (*heddlev1.Approval, error) {
	return r.of(threadID).Approval(ctx, threadID, approvalID)
}

func (r router) NextRequestID(ctx context.Context, threadID string) (int64, error) {
	return r.of(threadID).NextRequestID(ctx, threadID)
}

func (r router) Attachment(ctx context.Context, threadID string, key thread.AttachmentKey) (*heddlev1.Attachment, error) {
	return r.of(threadID).Attachment(ctx, threadID, key)
}

func (r router) Attachments(ctx context.Context, threadID, after string, limit int) ([]*heddlev1.Attachment, error) {
	return r.of(threadID).Attachments(ctx, threadID, after, limit)
}

func (r router) AttachmentOwners(ctx context.Context, q store.AttachmentOwners) ([]store.AttachmentOwner, error) {
	return r.durable.AttachmentOwners(ctx, q)
}

func (r router) Records(ctx context.Context, principal, kind string) ([]store.Record, error) {
	return r.durable.Records(ctx, principal, kind)
}

func (r router) Record(ctx context.Context, principal, kind, id string) ([]byte, error) {
	return r.durable.Record(ctx, principal, kind, id)
}

func (r router) Meta(ctx context.Context, key string) ([]byte, error) {
	return r.durable.Meta(ctx, key)
}

func (r router) Stats() map[string]int64 { return r.durable.Stats() }

var _ store.Reader = router{}
