package appserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"sync"
	"time"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
)

const (
	// maxSearches bounds the search sessions of one connection.
	maxSearches = 16
	// searchTries bounds how often a search is begun again after a loss.
	searchTries  = 5
	matchesShown = 50
)

type searchStream = grpc.BidiStreamingClient[heddlev1.SearchFilesRequest, heddlev1.SearchFilesResponse]

// searches are the searches of one connection.
type searches struct {
	mu       sync.Mutex
	sessions map[string]*searchSession
	// tokens cancel searches that a newer one with the same token replaces.
	tokens map[string]*context.CancelFunc
}

func newSearches() *searches {
	return &searches{sessions: map[string]*searchSession{}, tokens: map[string]*context.CancelFunc{}}
}

type wireMatch struct {
	Root      string   `json:"root"`
	Path      string   `json:"path"`
	MatchType string   `json:"match_type"`
	FileName  string   `json:"file_name"`
	Score     uint32   `json:"score"`
	Indices   []uint32 `json:"indices"`
}

func fromMatches(list []*heddlev1.SearchMatch) []wireMatch {
	out := make([]wireMatch, 0, len(list))
	for _, m := range list {
		w := wireMatch{
			Root: m.GetRoot(), Path: m.GetPath(), MatchType: "file", FileName: path.Base(m.GetPath()),
			Score: m.GetScore(), Indices: append([]uint32{}, m.GetIndices()...),
		}
		if m.GetIsDirectory() {
			w.MatchType = "directory"
		}
		out = append(out, w)
	}
	return out
}

func (s *Server) openSearch(ctx context.Context, c *client, roots []string) (searchStream, error) {
	var stream searchStream
	err := s.session.Stream(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		stream, err = heddlev1.NewWorkspaceServiceClient(cc).SearchFiles(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	err = stream.Send(&heddlev1.SearchFilesRequest{Message: &heddlev1.SearchFilesRequest_Start{Start: &heddlev1.SearchOpen{
		ConnectionId: c.id, Search: &heddlev1.SearchStart{Roots: roots, Limit: matchesShown}}}})
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return stream, nil
}

func queryMessage(number uint64, text string) *heddlev1.SearchFilesRequest {
	return &heddlev1.SearchFilesRequest{Message: &heddlev1.SearchFilesRequest_Query{Query: &heddlev1.SearchQuery{Number: number, Text: text}}}
}

// fuzzyFileSearch answers one query. A search that a newer one with the same
// token replaced answers with nothing found.
func (s *Server) fuzzyFileSearch(ctx context.Context, r *call, p *protocol.FuzzySearchParams) (any, error) {
	nothing := list{"files": []wireMatch{}}
	if p.Query == "" || len(p.Roots) == 0 {
		return nothing, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if p.CancellationToken != nil {
		defer r.client.searches.replace(*p.CancellationToken, &cancel)()
	}
	matches, err := s.searchOnce(ctx, r.client, p)
	if err != nil && ctx.Err() != nil && r.client.ctx.Err() == nil {
		return nothing, nil
	}
	if err != nil {
		return nil, err
	}
	return list{"files": fromMatches(matches)}, nil
}

func (s *Server) searchOnce(ctx context.Context, c *client, p *protocol.FuzzySearchParams) ([]*heddlev1.SearchMatch, error) {
	stream, err := s.openSearch(ctx, c, p.Roots)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(queryMessage(1, p.Query)); err == nil {
		_ = stream.CloseSend() // an error is explained by Recv
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if m.GetResults().GetComplete() && m.GetResults().GetNumber() == 1 {
			return m.GetResults().GetMatches(), nil
		}
	}
}

// replace cancels the search that has the token and registers its successor.
func (x *searches) replace(token string, cancel *context.CancelFunc) (done func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if old := x.tokens[token]; old != nil {
		(*old)()
	}
	x.tokens[token] = cancel
	return func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.tokens[token] == cancel {
			delete(x.tokens, token)
		}
	}
}

// searchSession is one fuzzyFileSearch session.
type searchSession struct {
	id     string
	roots  []string
	client *client
	cancel context.CancelFunc
	wake   chan struct{}

	mu sync.Mutex
	// next numbers the updates; number and query are those in force.
	next   uint64
	number uint64
	query  string
}

func (s *Server) searchStart(_ context.Context, r *call, p *protocol.FuzzySessionStartParams) (any, error) {
	if p.SessionID == "" {
		return nil, invalid("sessionId must not be empty")
	}
	if len(p.Roots) == 0 {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: "failed to start fuzzy file search session: at least one search directory is required"}
	}
	ctx, cancel := context.WithCancel(r.client.ctx)
	x := &searchSession{id: p.SessionID, roots: p.Roots, client: r.client, cancel: cancel, wake: make(chan struct{}, 1)}
	all := r.client.searches
	all.mu.Lock()
	defer all.mu.Unlock()
	if old := all.sessions[x.id]; old != nil {
		old.cancel()
	} else if len(all.sessions) >= maxSearches {
		cancel()
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeOverloaded, Message: fmt.Sprintf("Server overloaded; a connection has at most %d search sessions.", maxSearches)}
	}
	all.sessions[x.id] = x
	go x.run(ctx)
	return list{}, nil
}

func (s *Server) searchUpdate(_ context.Context, r *call, p *protocol.FuzzySessionUpdateParams) (any, error) {
	all := r.client.searches
	all.mu.Lock()
	x := all.sessions[p.SessionID]
	all.mu.Unlock()
	if x == nil {
		return nil, invalid("fuzzy file search session not found: " + p.SessionID)
	}
	x.mu.Lock()
	x.next++
	number := x.next
	x.mu.Unlock()
	// The query counts once the answer has left.
	r.then(func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if number > x.number {
			x.number, x.query = number, p.Query
			select {
			case x.wake <- struct{}{}:
			default:
			}
		}
	})
	r.later = true
	go r.finish(list{}, nil)
	return nil, nil
}

func (s *Server) searchStop(_ context.Context, r *call, p *protocol.FuzzySessionStopParams) (any, error) {
	all := r.client.searches
	all.mu.Lock()
	defer all.mu.Unlock()
	if x := all.sessions[p.SessionID]; x != nil {
		x.cancel()
		delete(all.sessions, p.SessionID)
	}
	return list{}, nil
}

// run answers the session's queries until it is stopped. A lost stream is opened
// again, a bounded number of times in a row.
func (x *searchSession) run(ctx context.Context) {
	defer x.cancel()
	for tries := 0; ctx.Err() == nil && tries < searchTries; tries++ {
		answered, err := x.serve(ctx)
		if answered {
			tries = 0
		}
		if ctx.Err() == nil {
			x.client.srv.log.Warn("a file search was lost", "error", err)
			select {
			case <-time.After(100 * time.Millisecond << tries):
			case <-ctx.Done():
			}
		}
	}
	all := x.client.searches
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.sessions[x.id] == x {
		delete(all.sessions, x.id)
	}
}

func (x *searchSession) serve(ctx context.Context) (answered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := x.client.srv.openSearch(ctx, x.client, x.roots)
	if err != nil {
		return false, err
	}
	go x.ask(ctx, stream)
	for {
		m, err := stream.Recv()
		if err != nil {
			return answered, err
		}
		answered = true
		x.show(ctx, m.GetResults())
	}
}

// ask sends the latest query whenever it changes.
func (x *searchSession) ask(ctx context.Context, stream searchStream) {
	var sent uint64
	for {
		x.mu.Lock()
		number, text := x.number, x.query
		x.mu.Unlock()
		if number != sent {
			if stream.Send(queryMessage(number, text)) != nil {
				return // Recv tells why
			}
			sent = number
		}
		select {
		case <-x.wake:
		case <-ctx.Done():
			return
		}
	}
}

// show tells the client of results, unless they are for an earlier query.
func (x *searchSession) show(ctx context.Context, res *heddlev1.SearchResults) {
	x.mu.Lock()
	number, text := x.number, x.query
	x.mu.Unlock()
	if res.GetNumber() != number || ctx.Err() != nil {
		return
	}
	x.client.tell("fuzzyFileSearch/sessionUpdated", list{"sessionId": x.id, "query": text, "files": fromMatches(res.GetMatches())})
	if res.GetComplete() {
		x.client.tell("fuzzyFileSearch/sessionCompleted", list{"sessionId": x.id})
	}
}
