package appserver

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func (s *Server) metadataUpdate(ctx context.Context, r *call, p *protocol.MetadataParams) (any, error) {
	switch {
	case p.Daybreak != nil:
		return nil, invalid("thread/metadata/update does not know daybreakEnabled here")
	case p.Git == nil && p.ProjectID == nil:
		return nil, invalid("thread metadata update must include at least one field")
	case p.Git == nil:
		t, err := s.assignProject(ctx, r, p.ThreadID, *p.ProjectID)
		if err != nil {
			return nil, err
		}
		return list{"thread": s.wire(t)}, nil
	}
	req, err := protocol.GitPatch(*p.Git)
	if empty := protocol.EmptyMemberError(""); errors.As(err, &empty) {
		return nil, invalid("gitInfo." + err.Error())
	}
	if err != nil {
		return nil, invalid("Invalid request: " + err.Error())
	}
	if req.Sha == nil && req.Branch == nil && req.OriginUrl == nil {
		return nil, invalid("gitInfo must include at least one field")
	}
	req.ThreadId = p.ThreadID
	if p.ProjectID != nil {
		if _, err := s.assignProject(ctx, r, p.ThreadID, *p.ProjectID); err != nil {
			return nil, err
		}
	}
	resp, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.UpdateGitResponse, error) {
		return c.UpdateGit(ctx, req)
	})
	if err != nil {
		return nil, named(err, textNotFound, p.ThreadID)
	}
	return list{"thread": s.wire(resp.GetThread())}, nil
}

func (s *Server) readStateUpdate(ctx context.Context, r *call, p *protocol.ReadStateParams) (any, error) {
	revision, err := strconv.ParseUint(p.ExpectedRevision, 10, 64)
	if err != nil {
		return nil, invalid("invalid read state revision: " + p.ExpectedRevision)
	}
	l := s.thread(p.ThreadID)
	if l != nil {
		r.then(l.hold(r.client))
	}
	resp, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.UpdateReadStateResponse, error) {
		return c.UpdateReadState(ctx, &heddlev1.UpdateReadStateRequest{ThreadId: p.ThreadID, Read: p.Operation.Type == "read", ExpectedRevision: revision})
	})
	if err != nil {
		return nil, named(err, textNotFound, p.ThreadID)
	}
	if l == nil {
		r.then(func() { s.broadcast(readNote(p.ThreadID, resp.GetReadState(), 0), nil) })
	}
	return list{"readState": protocol.FromReadState(resp.GetReadState())}, nil
}

func readNote(thread string, state *heddlev1.ReadState, seq uint64) note {
	return note{method: "thread/readState/changed", all: true, experimental: true, key: "read/" + thread, seq: seq, params: list{
		"threadId": thread, "readState": protocol.FromReadState(state),
	}}
}

func (s *Server) itemsRead(ctx context.Context, r *call, p *protocol.ItemsReadParams) (any, error) {
	resp, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.ReadItemsResponse, error) {
		return c.ReadItems(ctx, &heddlev1.ReadItemsRequest{ThreadId: p.ThreadID, TurnId: p.TurnID, ItemIds: p.ItemIDs})
	})
	switch {
	case errdefs.Is(err, errdefs.TurnNotFound):
		return nil, invalid("turn not found: " + p.TurnID)
	case err != nil:
		return nil, named(err, textNotLoaded, p.ThreadID)
	}
	data := []itemEntry{}
	for _, it := range resp.GetItems() {
		data = append(data, itemEntry{it.GetTurnId(), protocol.FromItem(it, protocol.ItemOptions{Extended: r.client.isExtended()}), false, ms(it.GetStartedAtMs()), ms(it.GetCompletedAtMs())})
	}
	if tooLarge(data) {
		return nil, invalid("the items are too large for one answer; ask for fewer")
	}
	return list{"data": data}, nil
}

// timelineList shows turns and their items as one list, oldest first. A page
// holds whole turns, and ends with the turn that fills it.
func (s *Server) timelineList(ctx context.Context, r *call, p *protocol.ThreadPageParams) (any, error) {
	limit := int(pageSize(p.Limit))
	if limit == 0 {
		limit = 100
	}
	token, position := "", 0
	if p.Cursor != nil {
		at, rest, ok := strings.Cut(*p.Cursor, ":")
		n, err := strconv.Atoi(at)
		if !ok || err != nil || n < 0 {
			return nil, invalid("invalid cursor: " + *p.Cursor)
		}
		position, token = n, rest
	}
	data := []any{}
	opts := protocol.ItemOptions{Extended: r.client.isExtended()}
	add := func(entry list) {
		entry["position"] = position
		position++
		data = append(data, entry)
	}
	for {
		resp, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.ListTurnsResponse, error) {
			return c.ListTurns(ctx, &heddlev1.ListTurnsRequest{ThreadId: p.ThreadID, PageSize: 1, PageToken: token, Ascending: true, View: heddlev1.ItemsView_ITEMS_VIEW_FULL})
		})
		if err != nil {
			return nil, named(badCursor(err, text(p.Cursor)), textNotLoaded, p.ThreadID)
		}
		for _, t := range resp.GetTurns() {
			wire := protocol.FromTurn(t.GetTurn())
			add(bothCases(list{"type": "turnStarted", "turnId": wire.ID, "startedAt": wire.StartedAt}))
			for _, it := range t.GetItems() {
				add(list{"type": "item", "turnId": wire.ID, "item": protocol.FromItem(it, opts)})
			}
			if wire.CompletedAt != nil {
				add(bothCases(list{
					"type": "turnCompleted", "turnId": wire.ID, "status": wire.Status, "error": wire.Error,
					"startedAt": wire.StartedAt, "completedAt": wire.CompletedAt, "durationMs": wire.DurationMs,
				}))
			}
		}
		if token = resp.GetNextPageToken(); token == "" {
			return list{"data": data, "nextCursor": nil, "activeRealtimeSessionAtPageStart": nil}, nil
		}
		if len(data) >= limit || tooLarge(data) {
			next := strconv.Itoa(position) + ":" + token
			return list{"data": data, "nextCursor": &next, "activeRealtimeSessionAtPageStart": nil}, nil
		}
	}
}

// bothCases adds the snake_case names of the published schema to an entry of a
// timeline, whose members the reference sends in camelCase.
func bothCases(entry list) list {
	for camel, snake := range map[string]string{
		"turnId": "turn_id", "startedAt": "started_at", "completedAt": "completed_at", "durationMs": "duration_ms",
	} {
		if v, ok := entry[camel]; ok {
			entry[snake] = v
		}
	}
	return entry
}

func (s *Server) searchOccurrences(ctx context.Context, _ *call, p *protocol.OccurrencesParams) (any, error) {
	if strings.TrimSpace(p.SearchTerm) == "" {
		return nil, invalid("searchTerm must not be empty")
	}
	resp, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.SearchOccurrencesResponse, error) {
		return c.SearchOccurrences(ctx, &heddlev1.SearchOccurrencesRequest{ThreadId: p.ThreadID, Term: p.SearchTerm, PageSize: pageSize(p.Limit), PageToken: text(p.Cursor)})
	})
	if err != nil {
		return nil, named(badCursor(err, text(p.Cursor)), textNotLoaded, p.ThreadID)
	}
	data := []any{}
	for _, o := range resp.GetOccurrences() {
		data = append(data, list{
			"turnId": o.GetTurnId(), "itemId": o.GetItemId(), "snippet": o.GetSnippet(), "turnCursor": o.GetTurnToken(),
			"snippetMatchRange": list{"start": o.GetMatchStart(), "end": o.GetMatchEnd()},
		})
	}
	return list{"data": data, "nextCursor": cursorText(resp.GetNextPageToken())}, nil
}
