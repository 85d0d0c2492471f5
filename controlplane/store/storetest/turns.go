package storetest

import (
	"fmt"
	"strings"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func testTurnPages(h *Harness) {
	h.Create("a", nil)
	for i := range 5 {
		h.AddTurn("a", fmt.Sprint("t", i+1))
	}
	h.Create("b", nil)
	h.AddTurn("b", "other")
	page, err := h.ListTurns(h.ctx(), &heddlev1.ListTurnsRequest{ThreadId: "a", PageSize: 2})
	h.check(err)
	h.same("newest first", turnIDs(page.GetTurns()), []string{"t5", "t4"})
	page, err = h.ListTurns(h.ctx(), &heddlev1.ListTurnsRequest{ThreadId: "a", PageSize: 2, PageToken: page.GetNextPageToken()})
	h.check(err)
	h.same("second page", turnIDs(page.GetTurns()), []string{"t3", "t2"})
	back, err := h.ListTurns(h.ctx(), &heddlev1.ListTurnsRequest{ThreadId: "a", PageToken: page.GetPreviousPageToken(), Ascending: true})
	h.check(err)
	h.same("turned round at the first turn", turnIDs(back.GetTurns()), []string{"t3", "t4", "t5"})
	page, err = h.ListTurns(h.ctx(), &heddlev1.ListTurnsRequest{ThreadId: "a", PageSize: 2, PageToken: page.GetNextPageToken()})
	h.check(err)
	h.same("last page", turnIDs(page.GetTurns()), []string{"t1"})
	h.same("no next page", page.GetNextPageToken(), "")
	page, err = h.ListTurns(h.ctx(), &heddlev1.ListTurnsRequest{ThreadId: "a", UpToTurnId: "t3"})
	h.check(err)
	h.same("up to", turnIDs(page.GetTurns()), []string{"t3", "t2", "t1"})
	_, err = h.ListTurns(h.ctx(), &heddlev1.ListTurnsRequest{ThreadId: "a", UpToTurnId: "other"})
	h.wantReason("up to a turn of another thread", err, errdefs.TurnNotFound)
	turn, err := h.Turn(h.ctx(), "a", "t2")
	h.check(err)
	h.same("ordinal", turn.GetOrdinal(), int64(2))
	h.same("status", turn.GetStatus(), heddlev1.TurnStatus_TURN_STATUS_COMPLETED)
}

func testTurnViews(h *Harness) {
	h.Create("a", nil)
	h.AddTurn("a", "t1")
	h.Add("a", Accepted("t2", "q"))
	h.Add("a", Started("t2"), ItemStarted("t2", UserItem("u", "q")), ItemCompleted("t2", UserItem("u", "q")),
		ItemStarted("t2", AgentItem("m1", "")), ItemCompleted("t2", AgentItem("m1", "one")), ItemStarted("t2", CommandItem("c")), ItemStarted("t2", AgentItem("m2", "")))
	for view, want := range map[heddlev1.ItemsView][]string{
		heddlev1.ItemsView_ITEMS_VIEW_UNSPECIFIED: {"u", "m1"},
		heddlev1.ItemsView_ITEMS_VIEW_SUMMARY:     {"u", "m1"},
		heddlev1.ItemsView_ITEMS_VIEW_FULL:        {"u", "m1", "c", "m2"},
		heddlev1.ItemsView_ITEMS_VIEW_NONE:        nil,
	} {
		page, err := h.ListTurns(h.ctx(), &heddlev1.ListTurnsRequest{ThreadId: "a", PageSize: 1, View: view})
		h.check(err)
		h.same(view.String(), itemIDs(page.GetTurns()[0].GetItems()), want)
		h.same("status", page.GetTurns()[0].GetTurn().GetStatus(), heddlev1.TurnStatus_TURN_STATUS_IN_PROGRESS)
	}
	page, err := h.ListTurns(h.ctx(), &heddlev1.ListTurnsRequest{ThreadId: "a", Ascending: true, PageSize: 1})
	h.check(err)
	h.same("summary of the first turn", itemIDs(page.GetTurns()[0].GetItems()), []string{"u-t1", "m-t1"})
}

func testItemPages(h *Harness) {
	h.Create("a", nil)
	h.AddTurn("a", "t1")
	h.AddTurn("a", "t2")
	all := []string{"u-t1", "c-t1", "m-t1", "u-t2", "c-t2", "m-t2"}
	var got []string
	req := &heddlev1.ListItemsRequest{ThreadId: "a", PageSize: 4}
	for {
		page, err := h.ListItems(h.ctx(), req)
		h.check(err)
		got = append(got, itemIDs(page.GetItems())...)
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	h.same("oldest first", got, all)
	page, err := h.ListItems(h.ctx(), &heddlev1.ListItemsRequest{ThreadId: "a", Descending: true, PageSize: 2})
	h.check(err)
	h.same("newest first", itemIDs(page.GetItems()), []string{"m-t2", "c-t2"})
	page, err = h.ListItems(h.ctx(), &heddlev1.ListItemsRequest{ThreadId: "a", Descending: true, PageToken: page.GetNextPageToken()})
	h.check(err)
	h.same("rest", itemIDs(page.GetItems()), []string{"u-t2", "m-t1", "c-t1", "u-t1"})
	page, err = h.ListItems(h.ctx(), &heddlev1.ListItemsRequest{ThreadId: "a", TurnId: "t2", PageSize: 1})
	h.check(err)
	h.same("of one turn", itemIDs(page.GetItems()), []string{"u-t2"})
	page, err = h.ListItems(h.ctx(), &heddlev1.ListItemsRequest{ThreadId: "a", TurnId: "t2", PageToken: page.GetNextPageToken()})
	h.check(err)
	h.same("rest of the turn", itemIDs(page.GetItems()), []string{"c-t2", "m-t2"})
	h.same("end", page.GetNextPageToken(), "")
	it, err := h.Item(h.ctx(), "a", "m-t2")
	h.check(err)
	h.same("item", it.Item.GetAgentMessage().GetText(), "answer t2")
	h.same("owner", it.ThreadID, "a")
	h.same("turn", it.Item.GetTurnId(), "t2")
}

// P12, P18: pages of large items end early and none is lost.
func testLargeItems(h *Harness) {
	h.Create("a", nil)
	big := strings.Repeat("x", 200<<10)
	var want []string
	for i := range 6 {
		turn, id := fmt.Sprint("t", i), fmt.Sprint("m", i)
		h.Add("a", Accepted(turn, "q"))
		h.Add("a", Started(turn), ItemStarted(turn, AgentItem(id, "")), ItemCompleted(turn, AgentItem(id, big)))
		h.Add("a", Completed(turn, heddlev1.TurnStatus_TURN_STATUS_COMPLETED))
		want = append(want, id)
	}
	huge := strings.Repeat("y", 6<<20)
	h.Add("a", Accepted("t6", "q"))
	h.Add("a", Started("t6"), ItemStarted("t6", AgentItem("m6", "")), ItemCompleted("t6", AgentItem("m6", huge)))
	want = append(want, "m6")
	var got []string
	req := &heddlev1.ListItemsRequest{ThreadId: "a"}
	for pages := 1; ; pages++ {
		page, err := h.ListItems(h.ctx(), req)
		h.check(err)
		got = append(got, itemIDs(page.GetItems())...)
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			h.same("pages", pages, 4)
			break
		}
	}
	h.same("items", got, want)
	turns, err := h.ListTurns(h.ctx(), &heddlev1.ListTurnsRequest{ThreadId: "a", Ascending: true})
	h.check(err)
	if n := len(turns.GetTurns()); n == 0 || n > 3 || turns.GetNextPageToken() == "" {
		h.Errorf("%d turns of 400 KiB in a page, next %q", n, turns.GetNextPageToken())
	}
	it, err := h.Item(h.ctx(), "a", "m6")
	h.check(err)
	h.same("length of the huge item", len(it.Item.GetAgentMessage().GetText()), len(huge))
	events, _, err := h.Events(h.ctx(), "a", h.State("a").LastSeq-1, 1000)
	h.check(err)
	h.same("event of the huge item", len(events), 1)
}

func testHistory(h *Harness) {
	h.Create("a", nil)
	h.AddTurn("a", "t1")
	h.AddTurn("a", "t2")
	got, err := h.History(h.ctx(), "a")
	h.check(err)
	h.same("history", texts(got), []string{"ask t1", "answer t1", "ask t2", "answer t2"})
	h.Add("a", Accepted("t3", "q"))
	h.Add("a", Started("t3"), Replaced("t3", "summary"), History("t3", "q"))
	got, err = h.History(h.ctx(), "a")
	h.check(err)
	h.same("after a replacement", texts(got), []string{"summary", "q"})
}

func testOpenWork(h *Harness) {
	h.Create("quiet", nil)
	h.AddTurn("quiet", "t0")
	h.Create("a", nil)
	h.Add("a", Accepted("t", "q"))
	turns, err := h.OpenTurns(h.ctx())
	h.check(err)
	h.same("open turn", turns[0].GetId(), "t")
	h.Add("a", Started("t"), ItemStarted("t", CommandItem("c1")), ItemStarted("t", CommandItem("c2")), Intended("t", "x1"), Intended("t", "x2"))
	items, err := h.OpenItems(h.ctx(), "a")
	h.check(err)
	h.same("open items", itemIDs(items), []string{"c1", "c2"})
	actions, err := h.OpenActions(h.ctx(), "a")
	h.check(err)
	h.same("open actions", len(actions), 2)
	h.Add("a", ItemCompleted("t", CommandItem("c1")), Resolved("t", "x1"))
	// A command may outlive its turn; then the thread still has open work.
	h.Add("a", Completed("t", heddlev1.TurnStatus_TURN_STATUS_COMPLETED))
	turns, err = h.OpenTurns(h.ctx())
	h.check(err)
	h.same("open turns", len(turns), 0)
	open, err := h.OpenThreads(h.ctx())
	h.check(err)
	h.same("open threads", open, []string{"a"})
	st, err := h.Load(h.ctx(), "a")
	h.check(err)
	h.same("loaded item", itemIDs(st.OpenItems()), []string{"c2"})
	h.same("loaded action", st.OpenActions()[0].GetActionId(), "x2")
	h.same("loaded row", st.Row.GetTurnCount(), int64(1))
	h.Add("a", ItemCompleted("", CommandItem("c2")), Resolved("", "x2"))
	open, err = h.OpenThreads(h.ctx())
	h.check(err)
	h.same("nothing open", len(open), 0)
}

func testApprovals(h *Harness) {
	h.Create("a", nil)
	h.Add("a", Accepted("t", "q"))
	h.Add("a", Started("t"), Asked("t", "ap2", 5), Asked("t", "ap1", 4))
	pending, err := h.PendingApprovals(h.ctx(), "a")
	h.check(err)
	h.same("order", []int64{pending[0].GetRequestId(), pending[1].GetRequestId()}, []int64{4, 5})
	row, err := h.Thread(h.ctx(), "a")
	h.check(err)
	h.same("waiting", row.GetWaitingOnApproval(), true)
	h.Add("a", Decided("t", "ap1", 4, heddlev1.Decision_DECISION_DECLINE), Decided("t", "ap2", 5, heddlev1.Decision_DECISION_ACCEPT))
	pending, err = h.PendingApprovals(h.ctx(), "a")
	h.check(err)
	h.same("pending", len(pending), 0)
	a, err := h.Approval(h.ctx(), "a", "ap1")
	h.check(err)
	h.same("decision", a.GetDecision(), heddlev1.Decision_DECISION_DECLINE)
	row, err = h.Thread(h.ctx(), "a")
	h.check(err)
	h.same("waiting", row.GetWaitingOnApproval(), false)
	h.Add("a", Completed("t", heddlev1.TurnStatus_TURN_STATUS_FAILED))
	row, err = h.Thread(h.ctx(), "a")
	h.check(err)
	h.same("state", row.GetState(), heddlev1.ThreadState_THREAD_STATE_SYSTEM_ERROR)
}

func testRequestIDs(h *Harness) {
	h.Create("a", nil)
	for want := range int64(3) {
		got, err := h.NextRequestID(h.ctx(), "a")
		h.check(err)
		h.same("id", got, want)
	}
	h.Add("a", Accepted("t", "q"))
	h.Add("a", Started("t"), Asked("t", "ap", 40))
	got, err := h.NextRequestID(h.ctx(), "a")
	h.check(err)
	h.same("id after a committed one", got, int64(41))
}

func testMeta(h *Harness) {
	v, err := h.Meta(h.ctx(), "k")
	h.check(err)
	h.same("unset", v, []byte(nil))
	h.check(h.SetMeta(h.ctx(), "k", []byte("v")))
	h.check(h.SetMeta(h.ctx(), "schema", []byte("x")))
	v, err = h.Meta(h.ctx(), "k")
	h.check(err)
	h.same("set", string(v), "v")
	h.check(h.SetMeta(h.ctx(), "k", nil))
	v, err = h.Meta(h.ctx(), "k")
	h.check(err)
	h.same("removed", v, []byte(nil))
}

func testDelete(h *Harness) {
	h.Create("a", nil)
	h.AddTurn("a", "t1")
	h.Create("b", nil)
	h.AddTurn("b", "t1")
	h.Add("a", Accepted("t2", "open"))
	h.check(h.DeleteThread(h.ctx(), "a"))
	h.wantReason("read", second(h.Thread(h.ctx(), "a")), errdefs.ThreadNotFound)
	h.wantReason("again", h.DeleteThread(h.ctx(), "a"), errdefs.ThreadNotFound)
	open, err := h.OpenThreads(h.ctx())
	h.check(err)
	h.same("open", len(open), 0)
	list, err := h.ListThreads(h.ctx(), "local", &heddlev1.ListThreadsRequest{})
	h.check(err)
	h.same("list", threadIDs(list.GetThreads()), []string{"b"})
	h.Create("a", nil)
	events, head, err := h.Events(h.ctx(), "a", 0, 0)
	h.check(err)
	h.same("a new thread of the same id starts anew", []int{len(events), int(head)}, []int{1, 1})
}
