package appserver

import (
	"context"
	"encoding/base64"
	"fmt"

	"google.golang.org/grpc"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// eventsSubscribe shows a connection a thread's log after a seq, first what is
// there, then what comes. A connection that is subscribed already goes on from
// the seq instead.
func (s *Server) eventsSubscribe(ctx context.Context, r *call, p *protocol.EventsSubscribeParams) (any, error) {
	if !r.client.isNumbered() {
		return nil, invalid("thread/events/subscribe requires capabilities.heddle.eventSeq")
	}
	resp, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.LoadThreadResponse, error) {
		return c.LoadThread(ctx, &heddlev1.LoadThreadRequest{ThreadId: p.ThreadID})
	})
	switch {
	case errdefs.Is(err, errdefs.ThreadArchived):
		return nil, invalid("session " + p.ThreadID + " is archived. Run `heddle unarchive " + p.ThreadID + "` to unarchive it first.")
	case err != nil:
		return nil, named(err, textNotFound, p.ThreadID)
	}
	t := resp.GetThread()
	after := uint64(0)
	if p.After != nil {
		after = *p.After
	}
	if after > t.GetLastSeq() {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("after is %d, but the log of thread %s ends at %d", after, p.ThreadID, t.GetLastSeq())}
	}
	l, fresh, err := s.load(t, resp.GetPendingApprovals())
	if err != nil {
		return nil, err
	}
	release := l.replay(r.client, t, resp.GetPendingApprovals(), after)
	if fresh {
		s.broadcast(statusNote(t.GetId(), s.wire(t).Status), nil)
	}
	r.then(func() {
		defer release()
		for _, a := range resp.GetPendingApprovals() {
			if err := r.client.ask(r.client.ctx, a); err != nil {
				s.log.Debug("asking again failed", "thread", t.GetId(), "error", err)
			}
		}
	})
	return list{"threadId": t.GetId(), "after": after, "head": t.GetLastSeq()}, nil
}

// replay subscribes a connection after a seq of its choice, in place of the
// subscription that it has. The new one is held until the returned function is
// called.
func (l *loaded) replay(c *client, t *heddlev1.Thread, pending []*heddlev1.Approval, after uint64) (release func()) {
	sub := newSubscription(l, c, t, pending)
	sub.prev, sub.replayTo, sub.tr.shown = after, t.GetLastSeq(), ""
	release = sub.gate.hold()
	l.mu.Lock()
	if l.timer != nil {
		l.timer.Stop()
	}
	old := l.subs[c]
	l.subs[c] = sub
	l.mu.Unlock()
	if old != nil {
		old.cancel()
		<-old.done
	}
	c.remember(l.id, sub)
	go sub.run(after)
	return release
}

func artifacts[T any](ctx context.Context, s *Server, call func(context.Context, heddlev1.ArtifactServiceClient) (T, error)) (out T, err error) {
	err = s.session.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		out, err = call(ctx, heddlev1.NewArtifactServiceClient(cc))
		return err
	})
	return out, err
}

// artifactsList lists what the turns of a thread left behind.
func (s *Server) artifactsList(ctx context.Context, _ *call, p *protocol.ArtifactsListParams) (any, error) {
	req := &heddlev1.ListArtifactsRequest{ThreadId: p.ThreadID, TurnId: text(p.TurnID), PageSize: pageSize(p.Limit), PageToken: text(p.Cursor)}
	switch kind := text(p.Kind); kind {
	case "":
	case "diff":
		req.Kind = heddlev1.ArtifactKind_ARTIFACT_KIND_DIFF
	case "output":
		req.Kind = heddlev1.ArtifactKind_ARTIFACT_KIND_OUTPUT
	default:
		return nil, invalid("Invalid request: " + protocol.UnknownVariant(kind, []string{"diff", "output"}).Error())
	}
	for {
		resp, err := artifacts(ctx, s, func(ctx context.Context, c heddlev1.ArtifactServiceClient) (*heddlev1.ListArtifactsResponse, error) {
			return c.ListArtifacts(ctx, req)
		})
		if err != nil {
			return nil, named(badCursor(err, text(p.Cursor)), textNotFound, p.ThreadID)
		}
		data := make([]any, 0, len(resp.GetArtifacts()))
		for _, a := range resp.GetArtifacts() {
			data = append(data, wireArtifact(a))
		}
		out := list{"data": data, "nextCursor": cursorText(resp.GetNextPageToken())}
		if n := len(data); n > 1 && tooLarge(out) {
			req.PageSize = int32(n / 2)
			continue
		}
		return out, nil
	}
}

// artifactsRead reads a range of one, at most maxArtifactRead bytes.
func (s *Server) artifactsRead(ctx context.Context, _ *call, p *protocol.ArtifactsReadParams) (any, error) {
	req := &heddlev1.ReadArtifactRequest{ThreadId: p.ThreadID, ArtifactId: p.ArtifactID, Length: maxArtifactRead}
	if p.Offset != nil {
		req.Offset = int64(min(*p.Offset, 1<<62))
	}
	if p.Length != nil && *p.Length > 0 {
		req.Length = int64(min(*p.Length, maxArtifactRead))
	}
	resp, err := artifacts(ctx, s, func(ctx context.Context, c heddlev1.ArtifactServiceClient) (*heddlev1.ReadArtifactResponse, error) {
		return c.ReadArtifact(ctx, req)
	})
	if err != nil {
		return nil, named(err, textNotFound, p.ThreadID)
	}
	return list{"artifact": wireArtifact(resp.GetArtifact()), "offset": resp.GetOffset(), "total": resp.GetTotal(), "dataBase64": base64.StdEncoding.EncodeToString(resp.GetData())}, nil
}

// maxArtifactRead keeps an answer, in base 64, under a mebibyte.
const maxArtifactRead = 512 << 10

// wireArtifact is an artifact as clients see it.
func wireArtifact(a *heddlev1.Artifact) any {
	out := map[string]any{
		"id": a.GetId(), "kind": "output", "turnId": a.GetTurnId(), "itemId": orNil(a.GetItemId()), "bytes": a.GetBytes(), "droppedBytes": a.GetDroppedBytes(),
		"sha256": orNil(a.GetSha256()), "sealed": a.GetSealed(), "createdAtMs": a.GetCreatedAtMs(), "command": orNil(a.GetCommand()), "diff": nil,
	}
	d := a.GetDiff()
	if d == nil {
		return out
	}
	files := make([]any, 0, len(d.GetFiles()))
	for _, f := range d.GetFiles() {
		files = append(files, map[string]any{
			"path": f.GetPath(), "previousPath": orNil(f.GetPreviousPath()), "kind": f.GetKind(), "oldBlob": orNil(f.GetOldBlob()), "newBlob": orNil(f.GetNewBlob()),
		})
	}
	out["kind"] = "diff"
	out["diff"] = map[string]any{
		"baseCommit": orNil(d.GetBaseCommit()), "files": files, "filesOmitted": d.GetFilesOmitted(), "truncated": d.GetTruncated(), "missing": orNil(d.GetMissing()),
	}
	return out
}
