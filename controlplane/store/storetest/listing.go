package storetest

import (
	"fmt"
	"slices"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func (h *Harness) list(req *heddlev1.ListThreadsRequest) *heddlev1.ListThreadsResponse {
	h.Helper()
	resp, err := h.ListThreads(h.ctx(), "local", req)
	h.check(err)
	return resp
}

func testListOrder(h *Harness) {
	for _, id := range []string{"a", "b", "c"} {
		h.Create(id, nil)
		h.AddTurn(id, "t-"+id)
	}
	h.same("by creation", threadIDs(h.list(&heddlev1.ListThreadsRequest{}).GetThreads()), []string{"c", "b", "a"})
	h.same("ascending", threadIDs(h.list(&heddlev1.ListThreadsRequest{Ascending: true}).GetThreads()), []string{"a", "b", "c"})
	h.AddTurn("a", "again")
	h.Add("b", Warning("no turn"))
	h.same("by update", threadIDs(h.list(&heddlev1.ListThreadsRequest{SortKey: "updated_at"}).GetThreads()), []string{"a", "c", "b"})
	h.same("recency", threadIDs(h.list(&heddlev1.ListThreadsRequest{SortKey: "recency_at", Ascending: true}).GetThreads()), []string{"b", "c", "a"})
	h.same("creation again", threadIDs(h.list(&heddlev1.ListThreadsRequest{}).GetThreads()), []string{"c", "b", "a"})
	_, err := h.ListThreads(h.ctx(), "local", &heddlev1.ListThreadsRequest{SortKey: "size"})
	h.wantReason("unknown sort key", err, errdefs.InvalidArgument)
}

func testListPages(h *Harness) {
	var all []string
	for i := range 7 {
		id := fmt.Sprint("n", i)
		all = append([]string{id}, all...)
		// Equal times: the id decides.
		h.Create(id, func(r *heddlev1.Thread) { r.CreatedAtMs = 5000 + int64(i/2) })
	}
	for _, key := range []string{"created_at", "updated_at"} {
		var got []string
		req := &heddlev1.ListThreadsRequest{PageSize: 3, SortKey: key}
		var pages []*heddlev1.ListThreadsResponse
		for {
			page := h.list(req)
			pages = append(pages, page)
			got = append(got, threadIDs(page.GetThreads())...)
			if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
				break
			}
		}
		h.same("pages by "+key, got, all)
		turned := h.list(&heddlev1.ListThreadsRequest{SortKey: key, Ascending: true, PageToken: pages[1].GetPreviousPageToken()})
		h.same("turned round", threadIDs(turned.GetThreads()), reversed(all[:4]))
		back := h.list(&heddlev1.ListThreadsRequest{SortKey: key, PageSize: 2, Backwards: true, PageToken: pages[1].GetPreviousPageToken()})
		h.same("page before", threadIDs(back.GetThreads()), all[1:3])
		again := h.list(&heddlev1.ListThreadsRequest{SortKey: key, PageSize: 2, PageToken: back.GetNextPageToken()})
		h.same("and on", threadIDs(again.GetThreads()), all[3:5])
	}
}

func reversed(s []string) []string {
	s = slices.Clone(s)
	slices.Reverse(s)
	return s
}

func testListFilters(h *Harness) {
	set := func(cwd, provider, source, parent string) func(*heddlev1.Thread) {
		return func(r *heddlev1.Thread) {
			r.Settings = &heddlev1.ThreadSettings{Cwd: cwd, ModelProvider: provider}
			r.Source, r.ParentThreadId = source, parent
		}
	}
	h.Create("a", set("/w", "openai", "cli", ""))
	h.AddTurn("a", "Alpha-Turn")
	h.Create("b", set("/w/sub", "openai", "vscode", "a"))
	h.Create("c", set("/w", "local", "exec", ""))
	h.AddTurn("c", "gamma")
	h.Add("c", named("Größe und Form"))
	h.Create("d", set("/w", "openai", "cli", ""))
	h.AddTurn("d", "delta")
	h.Add("d", archived())
	for name, c := range map[string]struct {
		req  *heddlev1.ListThreadsRequest
		want []string
	}{
		"all":        {&heddlev1.ListThreadsRequest{}, []string{"c", "b", "a"}},
		"archived":   {&heddlev1.ListThreadsRequest{Archived: true}, []string{"d"}},
		"with turns": {&heddlev1.ListThreadsRequest{WithTurns: true}, []string{"c", "a"}},
		"cwd":        {&heddlev1.ListThreadsRequest{Cwds: []string{"/w"}}, []string{"c", "a"}},
		"cwds":       {&heddlev1.ListThreadsRequest{Cwds: []string{"/w/sub", "/w"}}, []string{"c", "b", "a"}},
		"cwd parent": {&heddlev1.ListThreadsRequest{Cwds: []string{"/"}}, nil},
		"provider":   {&heddlev1.ListThreadsRequest{ModelProviders: []string{"local"}}, []string{"c"}},
		"sources":    {&heddlev1.ListThreadsRequest{Sources: []string{"cli", "vscode"}}, []string{"b", "a"}},
		"parent":     {&heddlev1.ListThreadsRequest{ParentThreadId: "a"}, []string{"b"}},
		"preview":    {&heddlev1.ListThreadsRequest{SearchTerm: "alpha-TURN"}, []string{"a"}},
		"name":       {&heddlev1.ListThreadsRequest{SearchTerm: "GRÖSSE"}, nil},
		"name folds": {&heddlev1.ListThreadsRequest{SearchTerm: "gröSSE"}, nil},
		"umlaut":     {&heddlev1.ListThreadsRequest{SearchTerm: "GRÖß"}, []string{"c"}},
		"both":       {&heddlev1.ListThreadsRequest{SearchTerm: "ask", Cwds: []string{"/w"}, Sources: []string{"exec"}}, []string{"c"}},
	} {
		h.same(name, threadIDs(h.list(c.req).GetThreads()), c.want)
	}
}

func testListPrincipals(h *Harness) {
	for _, p := range []string{"ann", "anna", "bob"} {
		h.Create("of-"+p, func(r *heddlev1.Thread) { r.Principal = p })
	}
	for _, p := range []string{"ann", "anna", "bob"} {
		for _, asc := range []bool{false, true} {
			resp, err := h.ListThreads(h.ctx(), p, &heddlev1.ListThreadsRequest{Ascending: asc})
			h.check(err)
			h.same("threads of "+p, threadIDs(resp.GetThreads()), []string{"of-" + p})
		}
	}
	resp, err := h.ListThreads(h.ctx(), "", &heddlev1.ListThreadsRequest{})
	h.check(err)
	h.same("threads of nobody", len(resp.GetThreads()), 0)
}

func testBadCursors(h *Harness) {
	h.Create("a", nil)
	h.AddTurn("a", "t1")
	h.AddTurn("a", "t2")
	created := h.list(&heddlev1.ListThreadsRequest{}).GetPreviousPageToken()
	for _, tok := range []string{"bogus", "!", "AAAA", created + "=", created[:8]} {
		_, err := h.ListThreads(h.ctx(), "local", &heddlev1.ListThreadsRequest{PageToken: tok})
		h.wantReason("threads "+tok, err, errdefs.InvalidCursor)
		_, err = h.ListTurns(h.ctx(), &heddlev1.ListTurnsRequest{ThreadId: "a", PageToken: tok})
		h.wantReason("turns "+tok, err, errdefs.InvalidCursor)
		_, err = h.ListItems(h.ctx(), &heddlev1.ListItemsRequest{ThreadId: "a", PageToken: tok})
		h.wantReason("items "+tok, err, errdefs.InvalidCursor)
	}
	_, err := h.ListThreads(h.ctx(), "local", &heddlev1.ListThreadsRequest{PageToken: created, SortKey: "updated_at"})
	h.wantReason("token of another sort key", err, errdefs.InvalidCursor)
	_, err = h.ListTurns(h.ctx(), &heddlev1.ListTurnsRequest{ThreadId: "a", PageToken: created})
	h.wantReason("token of another listing", err, errdefs.InvalidCursor)
}
