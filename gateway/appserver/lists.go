package appserver

import (
	"context"
	"github.com/google/uuid"
	"slices"
	"strconv"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// maxPage bounds the entries of one page.
	maxPage = 200
	// maxAnswer is the encoded size to which an answer with items is kept.
	maxAnswer = 900 << 10
)

func methodNotFound(message string) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: message}
}

func pageSize(limit *uint32) int32 {
	if limit == nil {
		return 0
	}
	return int32(min(max(*limit, 1), maxPage))
}

func cursorText(token string) *string {
	if token == "" {
		return nil
	}
	return &token
}

func badCursor(err error, cursor string) error {
	if errdefs.Is(err, errdefs.InvalidCursor) {
		return invalid("invalid cursor: " + cursor)
	}
	return err
}

func (s *Server) threadList(ctx context.Context, _ *call, p *protocol.ThreadListParams) (any, error) {
	if err := checkThreadIDs(p); err != nil {
		return nil, err
	}
	none := list{"data": []any{}, "nextCursor": nil, "backwardsCursor": nil, "readStates": list{}}
	if p.AncestorThreadID != nil || p.AttachedTo != nil || p.Cwd != nil && len(*p.Cwd) == 0 {
		// There are no attached threads here, and none is in no folder.
		return none, nil
	}
	if err := s.checkGroups(ctx, p); err != nil {
		return nil, err
	}
	req := &heddlev1.ListThreadsRequest{
		PageSize: pageSize(p.Limit), PageToken: text(p.Cursor), Ascending: text(p.SortDirection) == "asc",
		Archived: p.Archived != nil && *p.Archived, SearchTerm: text(p.SearchTerm), ModelProviders: p.ModelProviders,
		WithTurns: true, ParentThreadId: text(p.ParentThreadID), SortKey: sortKey(text(p.SortKey)), Sources: sources(p.SourceKinds),
	}
	if p.Cwd != nil {
		req.Cwds = *p.Cwd
	}
	if p.SectionID.Given {
		req.SectionId = &p.SectionID.Value
	}
	if p.ProjectID.Given {
		req.ProjectId = &p.ProjectID.Value
	}
	if req.GetSortKey() == "section_position" && p.SortDirection == nil {
		req.Ascending = true
	}
	resp, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.ListThreadsResponse, error) {
		return c.ListThreads(ctx, req)
	})
	if err != nil {
		return nil, badCursor(err, text(p.Cursor))
	}
	data, states := []protocol.Thread{}, list{}
	for _, t := range resp.GetThreads() {
		if !listed(p, t) {
			continue
		}
		data = append(data, s.wire(t))
		states[t.GetId()] = protocol.FromReadState(t.GetReadState())
	}
	return list{
		"data": data, "nextCursor": cursorText(resp.GetNextPageToken()), "backwardsCursor": cursorText(resp.GetPreviousPageToken()), "readStates": states,
	}, nil
}

// checkThreadIDs refuses filters that name no thread at all.
func checkThreadIDs(p *protocol.ThreadListParams) error {
	for what, id := range map[string]*string{"ancestor thread id": p.AncestorThreadID, "parent thread id": p.ParentThreadID, "attached thread parent id": p.AttachedTo} {
		if id == nil {
			continue
		}
		if _, err := uuid.Parse(*id); err != nil {
			return invalid("invalid " + what + ": " + err.Error())
		}
	}
	var included []string
	if p.IncludedThreadIDs != nil {
		included = *p.IncludedThreadIDs
	}
	for what, ids := range map[string][]string{"excluded": p.ExcludedThreadIDs, "included": included} {
		for _, id := range ids {
			if _, err := uuid.Parse(id); err != nil {
				return params("invalid " + what + " thread id: " + err.Error())
			}
		}
	}
	switch {
	case p.ParentThreadID != nil && p.AncestorThreadID != nil:
		return invalid("parentThreadId and ancestorThreadId are mutually exclusive")
	case p.ProjectID.Given && !p.ProjectID.Null && p.ProjectID.Value == "":
		return params("projectId must not be empty")
	case p.Cursor != nil && *p.Cursor == "":
		return invalid("invalid cursor: ")
	}
	return nil
}

// checkGroups refuses lists of projects that are not there, and places in no
// section.
func (s *Server) checkGroups(ctx context.Context, p *protocol.ThreadListParams) error {
	if text(p.SortKey) == "section_position" && p.SectionID.Value == "" {
		return invalid("section-position sorting requires a section filter")
	}
	if !p.ProjectID.Given || p.ProjectID.Null {
		return nil
	}
	_, err := s.getProject(ctx, p.ProjectID.Value)
	return err
}

func listed(p *protocol.ThreadListParams, t *heddlev1.Thread) bool {
	switch {
	case slices.Contains(p.ExcludedThreadIDs, t.GetId()):
		return false
	case p.IncludedThreadIDs != nil && !slices.Contains(*p.IncludedThreadIDs, t.GetId()):
		return false
	case len(p.Originators) > 0 && !slices.Contains(p.Originators, t.GetOriginator()):
		return false
	}
	return true
}

func sortKey(k string) string {
	switch k {
	case "updated_at", "recency_at":
		return "updated_at"
	case "section_position":
		return k
	}
	return "created_at"
}

// sources are the kinds of clients whose threads are listed; without a filter
// the interactive ones.
func sources(kinds []protocol.SourceKind) []string {
	if len(kinds) == 0 {
		return []string{"cli", "vscode"}
	}
	out := make([]string, len(kinds))
	for i, k := range kinds {
		out[i] = string(k)
		if k == "subAgent" {
			// It stands for all kinds of them.
			out = append(out, "subAgentThreadSpawn")
		}
	}
	return out
}

// pageOf is a page of a list that is here as a whole, of at most most entries, and
// the cursor of the next one; cursors are positions.
func pageOf[T any](all []T, cursor *string, limit *uint32, most uint32) (page []T, next *string, err error) {
	start, end := 0, len(all)
	if cursor != nil {
		n, err := strconv.Atoi(*cursor)
		if err != nil || n < 0 || n > len(all) {
			return nil, nil, invalid("invalid cursor: " + *cursor)
		}
		start = n
	}
	if limit != nil {
		end = min(end, start+int(max(min(*limit, most), 1)))
	}
	if end < len(all) {
		n := strconv.Itoa(end)
		next = &n
	}
	return all[start:end], next, nil
}

func (s *Server) threadLoadedList(_ context.Context, _ *call, p *protocol.PageParams) (any, error) {
	ids := s.loadedIDs()
	start := 0
	if p.Cursor != nil {
		n, err := strconv.Atoi(*p.Cursor)
		if err != nil || n < 0 {
			return nil, invalid("invalid cursor: " + *p.Cursor)
		}
		start = min(n, len(ids))
	}
	end := len(ids)
	if p.Limit != nil {
		end = min(end, start+int(max(*p.Limit, 1)))
	}
	var next *string
	if end < len(ids) {
		n := strconv.Itoa(end)
		next = &n
	}
	return list{"data": append([]string{}, ids[start:end]...), "nextCursor": next}, nil
}

func viewOf(v *protocol.ItemsView) (heddlev1.ItemsView, protocol.ItemsView) {
	switch text(v) {
	case string(protocol.ViewFull):
		return heddlev1.ItemsView_ITEMS_VIEW_FULL, protocol.ViewFull
	case string(protocol.ViewNotLoaded):
		return heddlev1.ItemsView_ITEMS_VIEW_NONE, protocol.ViewNotLoaded
	}
	return heddlev1.ItemsView_ITEMS_VIEW_SUMMARY, protocol.ViewSummary
}

func (s *Server) turnsList(ctx context.Context, r *call, p *protocol.TurnsListParams) (any, error) {
	view, wireView := viewOf(p.ItemsView)
	req := &heddlev1.ListTurnsRequest{
		ThreadId: p.ThreadID, PageSize: pageSize(p.Limit), PageToken: text(p.Cursor), Ascending: text(p.SortDirection) == "asc", View: view,
	}
	page, _, err := s.turnsPage(ctx, r.client, req, wireView)
	if err != nil {
		return nil, named(badCursor(err, text(p.Cursor)), textNotLoaded, p.ThreadID)
	}
	return page, nil
}

// turnsPage lists turns. A page that would be too large is asked for again with
// fewer turns. The second result is the seq that the page shows the thread at.
func (s *Server) turnsPage(ctx context.Context, c *client, req *heddlev1.ListTurnsRequest, view protocol.ItemsView) (*protocol.TurnsPage, uint64, error) {
	for {
		resp, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.ListTurnsResponse, error) {
			return c.ListTurns(ctx, req)
		})
		if err != nil {
			return nil, 0, err
		}
		page := &protocol.TurnsPage{Data: []protocol.Turn{}, NextCursor: cursorText(resp.GetNextPageToken()), BackwardsCursor: cursorText(resp.GetPreviousPageToken())}
		for _, t := range resp.GetTurns() {
			page.Data = append(page.Data, protocol.FromTurnWithItems(t, view, protocol.ItemOptions{Extended: c.isExtended()}))
		}
		if n := len(page.Data); n > 1 && tooLarge(page) {
			req.PageSize = int32(n / 2)
			continue
		}
		return page, resp.GetHead(), nil
	}
}

func tooLarge(v any) bool {
	data, err := jsonrpc.Marshal(v)
	return err == nil && len(data) > maxAnswer
}

const textNoAnchor = "cursor.itemId does not identify an item in the requested history scope"

type itemEntry struct {
	TurnID        string `json:"turnId"`
	Item          any    `json:"item"`
	OutputDefer   bool   `json:"outputDeferred"`
	StartedAtMs   *int64 `json:"startedAtMs"`
	CompletedAtMs *int64 `json:"completedAtMs"`
}

func (s *Server) itemsList(ctx context.Context, r *call, p *protocol.ItemsListParams) (any, error) {
	req := &heddlev1.ListItemsRequest{ThreadId: p.ThreadID, TurnId: text(p.TurnID), PageSize: pageSize(p.Limit), Descending: text(p.SortDirection) == "desc"}
	if p.Cursor != nil {
		if p.Cursor.Anchor && text(p.TurnID) == "" {
			return nil, params("turnId is required when cursor is an item anchor")
		}
		req.PageToken, req.AfterItemId = p.Cursor.Token, p.Cursor.ItemID
		if p.Cursor.Anchor && p.Cursor.ItemID == "" {
			return nil, params(textNoAnchor)
		}
	}
	opts := protocol.ItemOptions{Extended: r.client.isExtended(), DeferOutput: defers(p)}
	for {
		resp, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.ListItemsResponse, error) {
			return c.ListItems(ctx, req)
		})
		if req.GetAfterItemId() != "" && (errdefs.Is(err, errdefs.ItemNotFound) || errdefs.Is(err, errdefs.TurnNotFound)) {
			return nil, params(textNoAnchor)
		}
		if err != nil {
			return nil, named(badCursor(err, req.GetPageToken()), textNotLoaded, p.ThreadID)
		}
		data := []itemEntry{}
		for _, it := range resp.GetItems() {
			deferred := opts.DeferOutput && it.GetCommandExecution() != nil
			data = append(data, itemEntry{it.GetTurnId(), protocol.FromItem(it, opts), deferred, ms(it.GetStartedAtMs()), ms(it.GetCompletedAtMs())})
		}
		if n := len(data); n > 1 && tooLarge(data) {
			req.PageSize = int32(n / 2)
			continue
		}
		return list{"data": data, "nextCursor": cursorText(resp.GetNextPageToken()), "backwardsCursor": cursorText(resp.GetPreviousPageToken())}, nil
	}
}

func ms(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

func defers(p *protocol.ItemsListParams) bool {
	return p.DeferOutput != nil && p.DeferOutput.CommandExecution
}

// allTurns returns a thread's turns with their items, oldest first: all of them
// if they fit into an answer, else the newest that do. head is the seq that the
// newest ones are shown at.
func (s *Server) allTurns(ctx context.Context, id string) (out []protocol.Turn, head uint64, err error) {
	out = []protocol.Turn{}
	size := 0
	req := &heddlev1.ListTurnsRequest{ThreadId: id, View: heddlev1.ItemsView_ITEMS_VIEW_FULL}
	for page := int32(20); ; page = min(2*page, 160) { // small first, for turns that are large
		req.PageSize = page
		resp, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.ListTurnsResponse, error) {
			return c.ListTurns(ctx, req)
		})
		if err != nil {
			return nil, 0, err
		}
		if head == 0 {
			head = resp.GetHead()
		}
		for _, t := range resp.GetTurns() {
			turn := protocol.FromTurnWithItems(t, protocol.ViewFull, protocol.ItemOptions{})
			data, err := jsonrpc.Marshal(turn)
			if err != nil {
				return nil, 0, err
			}
			if size += len(data); size > maxAnswer && len(out) > 0 {
				slices.Reverse(out)
				return out, head, nil
			}
			out = append(out, turn)
		}
		if req.PageToken = resp.GetNextPageToken(); req.PageToken == "" {
			slices.Reverse(out)
			return out, head, nil
		}
	}
}

// resumeTurns adds history to the answer of thread/resume: all turns in the
// deprecated form, one page if asked for, and cursors towards older ones. head
// is the seq that the history is shown at, 0 when none is shown.
func (s *Server) resumeTurns(ctx context.Context, r *call, p *protocol.ThreadResumeParams, out *protocol.Resumed) (turns []protocol.Turn, head uint64, err error) {
	if page := p.InitialTurnsPage; page != nil {
		view, wireView := viewOf(page.ItemsView)
		out.InitialTurnsPage, head, err = s.turnsPage(ctx, r.client, &heddlev1.ListTurnsRequest{
			ThreadId: p.ThreadID, PageSize: pageSize(page.Limit), Ascending: text(page.SortDirection) == "asc", View: view,
		}, wireView)
		if err != nil {
			return nil, 0, err
		}
	}
	if p.ExcludeTurns {
		return nil, head, nil
	}
	s.deprecated(r.client, "thread/resume")
	return s.allTurns(ctx, p.ThreadID)
}

func (s *Server) terminalsList(ctx context.Context, _ *call, p *protocol.TerminalsParams) (any, error) {
	if s.thread(p.ThreadID) == nil {
		return nil, invalid(textNotFound + p.ThreadID)
	}
	if p.Cursor != nil {
		return nil, invalid("invalid cursor: " + *p.Cursor)
	}
	resp, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.ListBackgroundTerminalsResponse, error) {
		return c.ListBackgroundTerminals(ctx, &heddlev1.ListBackgroundTerminalsRequest{ThreadId: p.ThreadID})
	})
	if err != nil {
		return nil, named(err, textNotFound, p.ThreadID)
	}
	data := []any{}
	for _, t := range resp.GetTerminals() {
		data = append(data, list{
			"itemId": t.GetItemId(), "processId": t.GetProcessId(), "command": t.GetCommand(), "cwd": t.GetCwd(),
			"osPid": ms(t.GetOsPid()), "cpuPercent": nil, "rssKb": nil,
		})
	}
	return list{"data": data, "nextCursor": nil}, nil
}

func (s *Server) terminate(ctx context.Context, thread, process string) (int32, error) {
	if s.thread(thread) == nil {
		return 0, invalid(textNotFound + thread)
	}
	resp, err := threads(ctx, s, func(ctx context.Context, c heddlev1.ThreadServiceClient) (*heddlev1.TerminateBackgroundTerminalResponse, error) {
		return c.TerminateBackgroundTerminal(ctx, &heddlev1.TerminateBackgroundTerminalRequest{ThreadId: thread, ProcessId: process})
	})
	return resp.GetTerminated(), named(err, textNotFound, thread)
}

func (s *Server) terminalsTerminate(ctx context.Context, _ *call, p *protocol.TerminalParams) (any, error) {
	n, err := s.terminate(ctx, p.ThreadID, p.ProcessID)
	return list{"terminated": n > 0}, err
}

func (s *Server) terminalsClean(ctx context.Context, _ *call, p *protocol.ThreadParams) (any, error) {
	_, err := s.terminate(ctx, p.ThreadID, "")
	return list{}, err
}
