package appserver

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
)

const (
	// maxStreamTerm bounds what a search is for, in bytes.
	maxStreamTerm = 64 << 10
	textCancelled = "thread search cancelled"
)

// searchTable returns what is done for a method that can be cancelled, and for
// those that cancel.
func searchTable(method string) (entry, bool) {
	switch method {
	case "thread/search":
		return inline((*Server).threadSearch), true
	case "thread/search/stream":
		return inline((*Server).threadSearchStream), true
	case "thread/search/cancel":
		return cancels("thread/search"), true
	case "thread/search/stream/cancel":
		return cancels("thread/search/stream"), true
	case "thread/sample":
		return inline((*Server).threadSample), true
	case "thread/sample/cancel":
		return cancels("thread/sample"), true
	case "thread/prepareApprovedPlan":
		return handle((*Server).preparePlan), true
	}
	return entry{}, false
}

func searchRequest(p *protocol.SearchParams) *heddlev1.SearchThreadsRequest {
	return &heddlev1.SearchThreadsRequest{Term: p.SearchTerm, List: &heddlev1.ListThreadsRequest{
		PageSize: pageSize(p.Limit), PageToken: text(p.Cursor), Ascending: text(p.SortDirection) == "asc", Archived: p.Archived != nil && *p.Archived,
		WithTurns: true, SortKey: sortKey(text(p.SortKey)), Sources: sources(p.SourceKinds),
	}}
}

func (s *Server) foundThread(f *heddlev1.FoundThread) any {
	return list{"thread": s.wire(f.GetThread()), "snippet": f.GetSnippet()}
}

func (s *Server) searchPage(resp *heddlev1.SearchThreadsResponse) any {
	data := []any{}
	for _, f := range resp.GetThreads() {
		data = append(data, s.foundThread(f))
	}
	return list{"data": data, "nextCursor": cursorText(resp.GetNextPageToken()), "backwardsCursor": cursorText(resp.GetPreviousPageToken())}
}

func (s *Server) threadSearch(ctx context.Context, r *call, p *protocol.SearchParams) (any, error) {
	if strings.TrimSpace(p.SearchTerm) == "" {
		return nil, invalid("searchTerm must not be empty")
	}
	if p.Cursor != nil && *p.Cursor == "" {
		return nil, invalid("invalid cursor: ")
	}
	return r.client.cancellable(ctx, r, textCancelled, func(ctx context.Context) (any, error) {
		resp, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.SearchThreadsResponse, error) {
			return c.SearchThreads(ctx, searchRequest(p))
		})
		if err != nil {
			return nil, badCursor(err, text(p.Cursor))
		}
		return s.searchPage(resp), nil
	})
}

// threadSearchStream tells the connection of threads as they are found. What it
// told is also in the answer.
func (s *Server) threadSearchStream(ctx context.Context, r *call, p *protocol.SearchParams) (any, error) {
	switch term := strings.TrimSpace(p.SearchTerm); {
	case p.Cursor != nil && *p.Cursor == "":
		return nil, params("invalid cursor: ")
	case term == "":
		return nil, invalid("thread/search requires a non-empty searchTerm")
	case len(term) > maxStreamTerm:
		return nil, params("thread/search/stream searchTerm exceeds 65536 UTF-8 bytes")
	}
	return r.client.cancellable(ctx, r, textCancelled, func(ctx context.Context) (any, error) {
		resp, err := s.streamSearch(ctx, r, p)
		switch {
		case errdefs.Is(err, errdefs.InvalidCursor):
			return nil, params("invalid cursor: " + text(p.Cursor))
		case err != nil:
			return nil, err
		}
		return s.searchPage(resp), nil
	})
}

func (s *Server) streamSearch(ctx context.Context, r *call, p *protocol.SearchParams) (*heddlev1.SearchThreadsResponse, error) {
	var stream grpc.ServerStreamingClient[heddlev1.StreamSearchResponse]
	err := s.session.Stream(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		stream, err = heddlev1.NewThreadServiceClient(cc).StreamSearch(ctx, &heddlev1.StreamSearchRequest{Search: searchRequest(p)})
		return err
	})
	if err != nil {
		return nil, err
	}
	id := json.RawMessage(r.id.String())
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil, errdefs.New(errdefs.Internal, "the search ended without its page")
		}
		if err != nil {
			return nil, err
		}
		if m.GetPage() != nil {
			return m.GetPage(), nil
		}
		if ctx.Err() == nil {
			r.client.tell("thread/search/partial", list{"requestId": id, "data": []any{s.foundThread(m.GetFound())}})
		}
	}
}

// threadSample asks the thread's model beside the conversation.
func (s *Server) threadSample(ctx context.Context, r *call, p *protocol.SampleParams) (any, error) {
	if s.thread(p.ThreadID) == nil {
		return nil, invalid("thread/sample requires a loaded source")
	}
	return r.client.cancellable(ctx, r, "thread sample cancelled", func(ctx context.Context) (any, error) {
		var resp *heddlev1.SampleResponse
		err := s.session.DoOnce(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
			resp, err = heddlev1.NewSampleServiceClient(cc).Sample(ctx, &heddlev1.SampleRequest{
				ThreadId: p.ThreadID, ExpectedTurnId: p.ExpectedTurnID, Prompt: p.Prompt, AllowInProgress: p.AllowInProgress, ReasoningEffort: text(p.Effort),
			})
			return err
		})
		if err != nil {
			return nil, named(err, textNotFound, p.ThreadID)
		}
		out := list{"sourceTurnId": p.ExpectedTurnID, "responseId": resp.GetResponseId(), "text": resp.Text, "inputTokens": nil, "cachedInputTokens": nil, "outputTokens": nil}
		if u := resp.GetUsage(); u != nil {
			out["inputTokens"], out["cachedInputTokens"], out["outputTokens"] = u.GetInputTokens(), u.GetCachedInputTokens(), u.GetOutputTokens()
		}
		return out, nil
	})
}
