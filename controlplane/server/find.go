package server

import (
	"context"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/session"
	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// findTime bounds one page of a search; what was not reached is on the next.
	findTime = 5 * time.Second
	// maxTerm bounds the text that is searched for, in bytes.
	maxTerm = 64 << 10
	// snippetRunes is how much is shown on each side of a match.
	snippetRunes = 60
	defaultFound = 25
	maxFound     = 200
)

// SearchThreads reads the threads of the list one after the other until a page
// is full; its cost is that of the threads it passes.
func (s *threadService) SearchThreads(ctx context.Context, r *heddlev1.SearchThreadsRequest) (*heddlev1.SearchThreadsResponse, error) {
	return s.search(ctx, r, func(*heddlev1.FoundThread) error { return nil })
}

func (s *threadService) StreamSearch(r *heddlev1.StreamSearchRequest, out grpc.ServerStreamingServer[heddlev1.StreamSearchResponse]) error {
	page, err := s.search(out.Context(), r.GetSearch(), func(f *heddlev1.FoundThread) error {
		return out.Send(&heddlev1.StreamSearchResponse{Found: f})
	})
	if err != nil {
		return err
	}
	return out.Send(&heddlev1.StreamSearchResponse{Page: page})
}

// search passes each thread of its page to found as soon as it is known.
func (s *threadService) search(ctx context.Context, r *heddlev1.SearchThreadsRequest, tell func(*heddlev1.FoundThread) error) (*heddlev1.SearchThreadsResponse, error) {
	term, err := checkTerm(r.GetTerm())
	if err != nil {
		return nil, err
	}
	req := &heddlev1.ListThreadsRequest{}
	if r.GetList() != nil {
		req = proto.CloneOf(r.GetList())
	}
	size := found(req.GetPageSize())
	req.SearchTerm, req.PageSize = "", 1
	until := time.Now().Add(findTime)
	resp := &heddlev1.SearchThreadsResponse{}
	for {
		page, err := s.store.ListThreads(ctx, session.Local, req)
		if err != nil {
			return nil, err
		}
		for _, row := range page.GetThreads() {
			snippet, ok, err := s.mentions(ctx, row, term)
			if err != nil {
				return nil, err
			}
			if ok {
				f := &heddlev1.FoundThread{Thread: row, Snippet: snippet}
				resp.Threads = append(resp.Threads, f)
				if err := tell(f); err != nil {
					return nil, err
				}
			}
		}
		if resp.GetPreviousPageToken() == "" {
			resp.PreviousPageToken = page.GetPreviousPageToken()
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return resp, nil
		}
		if len(resp.GetThreads()) >= size || time.Now().After(until) {
			resp.NextPageToken = req.PageToken
			return resp, nil
		}
	}
}

// mentions looks for a text in a thread's name and messages.
func (s *threadService) mentions(ctx context.Context, row *heddlev1.Thread, term string) (string, bool, error) {
	for _, text := range []string{row.GetName(), row.GetPreview()} {
		if at, n, ok := findFold(text, term, 0); ok {
			shown, _, _ := snippet(text, at, n)
			return shown, true, nil
		}
	}
	req := &heddlev1.ListItemsRequest{ThreadId: row.GetId(), PageSize: maxFound}
	for {
		page, err := s.store.ListItems(ctx, req)
		if errdefs.Is(err, errdefs.ThreadNotFound) {
			return "", false, nil // deleted meanwhile
		}
		if err != nil {
			return "", false, err
		}
		for _, it := range page.GetItems() {
			text := spoken(it)
			if at, n, ok := findFold(text, term, 0); ok {
				shown, _, _ := snippet(text, at, n)
				return shown, true, nil
			}
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return "", false, nil
		}
	}
}

// SearchOccurrences lists the places in a thread's messages, oldest first.
func (s *threadService) SearchOccurrences(ctx context.Context, r *heddlev1.SearchOccurrencesRequest) (*heddlev1.SearchOccurrencesResponse, error) {
	term, err := checkTerm(r.GetTerm())
	if err != nil {
		return nil, err
	}
	row, err := s.thread(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	token, skip, err := splitFindToken(r.GetPageToken())
	if err != nil {
		return nil, err
	}
	size := found(r.GetPageSize())
	req := &heddlev1.ListItemsRequest{ThreadId: row.GetId(), PageSize: maxFound, PageToken: token}
	turns := map[string]string{}
	resp := &heddlev1.SearchOccurrencesResponse{}
	for {
		page, err := s.store.ListItems(ctx, req)
		if err != nil {
			return nil, err
		}
		seen := 0
		for _, it := range page.GetItems() {
			text := spoken(it)
			for from := 0; ; {
				at, n, ok := findFold(text, term, from)
				if !ok {
					break
				}
				from = at + n
				if seen++; seen <= skip {
					continue
				}
				if len(resp.GetOccurrences()) >= size {
					resp.NextPageToken = req.GetPageToken() + "+" + strconv.Itoa(seen-1)
					return resp, nil
				}
				o := &heddlev1.Occurrence{TurnId: it.GetTurnId(), ItemId: it.GetId()}
				o.Snippet, o.MatchStart, o.MatchEnd = snippet(text, at, n)
				if o.TurnToken, err = s.turnToken(ctx, row.GetId(), it.GetTurnId(), turns); err != nil {
					return nil, err
				}
				resp.Occurrences = append(resp.Occurrences, o)
			}
		}
		skip = 0
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return resp, nil
		}
	}
}

// turnToken lists turns from one on.
func (s *threadService) turnToken(ctx context.Context, threadID, turnID string, known map[string]string) (string, error) {
	if t, ok := known[turnID]; ok {
		return t, nil
	}
	t, err := s.store.Turn(ctx, threadID, turnID)
	if err != nil {
		return "", err
	}
	known[turnID] = store.Token{Kind: store.TokenTurns, Major: t.GetOrdinal(), Inclusive: true}.Encode()
	return known[turnID], nil
}

// splitFindToken takes a page token apart: that of the items, and how many
// occurrences of its page were shown.
func splitFindToken(token string) (items string, skip int, err error) {
	if token == "" {
		return "", 0, nil
	}
	i := strings.LastIndexByte(token, '+')
	if i < 0 {
		return "", 0, errdefs.New(errdefs.InvalidCursor, "invalid cursor: %s", token)
	}
	skip, err = strconv.Atoi(token[i+1:])
	if err != nil || skip < 0 {
		return "", 0, errdefs.New(errdefs.InvalidCursor, "invalid cursor: %s", token)
	}
	return token[:i], skip, nil
}

func checkTerm(term string) (string, error) {
	term = strings.TrimSpace(term)
	switch {
	case term == "":
		return "", errdefs.New(errdefs.InvalidArgument, "searchTerm must not be empty")
	case len(term) > maxTerm:
		return "", errdefs.New(errdefs.InvalidArgument, "the search term has %d bytes, the limit is %d", len(term), maxTerm)
	}
	return term, nil
}

func found(size int32) int {
	if size <= 0 {
		return defaultFound
	}
	return int(min(size, maxFound))
}

// spoken is what an item says, for a search.
func spoken(it *heddlev1.Item) string {
	switch c := it.GetContent().(type) {
	case *heddlev1.Item_UserMessage:
		var parts []string
		for _, p := range c.UserMessage.GetParts() {
			if t := p.GetText(); t != "" {
				parts = append(parts, t)
			}
		}
		return strings.Join(parts, "\n")
	case *heddlev1.Item_AgentMessage:
		return c.AgentMessage.GetText()
	case *heddlev1.Item_Plan:
		return c.Plan.GetText()
	}
	return ""
}

// findFold finds term in text from a byte on, whatever the case of letters; it
// returns where the match begins and its length in bytes.
func findFold(text, term string, from int) (at, n int, ok bool) {
	count := utf8.RuneCountInString(term)
	for i := from; i < len(text); {
		end, runes := i, 0
		for runes < count && end < len(text) {
			_, w := utf8.DecodeRuneInString(text[end:])
			end += w
			runes++
		}
		if runes < count {
			return 0, 0, false
		}
		if strings.EqualFold(text[i:end], term) {
			return i, end - i, true
		}
		_, w := utf8.DecodeRuneInString(text[i:])
		i += w
	}
	return 0, 0, false
}

// snippet is the text around a match on one line, with the place of the match in
// it, in UTF-16 code units.
func snippet(text string, at, n int) (shown string, start, end int32) {
	before, match, after := []rune(oneLine(text[:at])), oneLine(text[at:at+n]), []rune(oneLine(text[at+n:]))
	head, tail := "", ""
	if len(before) > snippetRunes {
		before, head = before[len(before)-snippetRunes:], "…"
	}
	if len(after) > snippetRunes {
		after, tail = after[:snippetRunes], "…"
	}
	lead := head + string(before)
	start = int32(len(utf16.Encode([]rune(lead))))
	return lead + match + string(after) + tail, start, start + int32(len(utf16.Encode([]rune(match))))
}

func oneLine(s string) string { return strings.NewReplacer("\n", " ", "\r", " ", "\t", " ").Replace(s) }
