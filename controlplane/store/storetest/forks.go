package storetest

import (
	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func (h *Harness) wantTurns(thread string, want ...string) {
	h.Helper()
	page, err := h.ListTurns(h.ctx(), &heddlev1.ListTurnsRequest{ThreadId: thread, Ascending: true})
	h.check(err)
	h.same("turns of "+thread, turnIDs(page.GetTurns()), want)
	page, err = h.ListTurns(h.ctx(), &heddlev1.ListTurnsRequest{ThreadId: thread, PageSize: 1})
	h.check(err)
	h.same("last turn of "+thread, turnIDs(page.GetTurns()), want[len(want)-1:])
}

func (h *Harness) wantHistory(thread string, want ...string) {
	h.Helper()
	got, err := h.History(h.ctx(), thread)
	h.check(err)
	h.same("history of "+thread, texts(got), want)
}

func (h *Harness) wantItems(thread string, want ...string) {
	h.Helper()
	page, err := h.ListItems(h.ctx(), &heddlev1.ListItemsRequest{ThreadId: thread})
	h.check(err)
	h.same("items of "+thread, itemIDs(page.GetItems()), want)
}

func testForkSharesAll(h *Harness) {
	h.Create("a", nil)
	h.AddTurn("a", "t1")
	h.Fork("f", "a", "t1")
	h.Fork("empty", "a", "")
	h.AddTurn("a", "t2")
	h.AddTurn("f", "g2")
	h.wantTurns("f", "t1", "g2")
	h.wantTurns("a", "t1", "t2")
	h.wantHistory("f", "ask t1", "answer t1", "ask g2", "answer g2")
	h.wantItems("f", "u-t1", "c-t1", "m-t1", "u-g2", "c-g2", "m-g2")
	turn, err := h.Turn(h.ctx(), "f", "t1")
	h.check(err)
	h.same("thread of a shared turn", turn.GetThreadId(), "f")
	it, err := h.Item(h.ctx(), "f", "c-t1")
	h.check(err)
	h.same("owner of a shared item", it.ThreadID, "a")
	h.wantReason("later turn", second(h.Turn(h.ctx(), "f", "t2")), errdefs.TurnNotFound)
	h.wantReason("later item", second(h.Item(h.ctx(), "f", "c-t2")), errdefs.ItemNotFound)
	page, err := h.ListTurns(h.ctx(), &heddlev1.ListTurnsRequest{ThreadId: "empty"})
	h.check(err)
	h.same("turns of a fork that shares none", len(page.GetTurns()), 0)
	page, err = h.ListTurns(h.ctx(), &heddlev1.ListTurnsRequest{ThreadId: "f", Ascending: true, PageSize: 1})
	h.check(err)
	page, err = h.ListTurns(h.ctx(), &heddlev1.ListTurnsRequest{ThreadId: "f", Ascending: true, PageToken: page.GetNextPageToken()})
	h.check(err)
	h.same("page across the cut", turnIDs(page.GetTurns()), []string{"g2"})

	h.wantReason("delete the source", h.DeleteThread(h.ctx(), "a"), errdefs.ThreadHasForks)
	row, err := h.Thread(h.ctx(), "a")
	h.check(err)
	h.same("has forks", row.GetHasForks(), true)
	h.check(h.DeleteThread(h.ctx(), "f"))
	h.check(h.DeleteThread(h.ctx(), "empty"))
	row, err = h.Thread(h.ctx(), "a")
	h.check(err)
	h.same("has forks", row.GetHasForks(), false)
	h.check(h.DeleteThread(h.ctx(), "a"))
}

// P13: nothing from after the cut, a later steer included.
func testForkCut(h *Harness) {
	h.Create("a", nil)
	h.AddTurn("a", "t1")
	h.AddTurn("a", "t2")
	h.Add("a", Accepted("t3", "q"))
	h.Add("a", Started("t3"), &heddlev1.Event{TurnId: "t3", Payload: &heddlev1.Event_SteerAccepted{SteerAccepted: &heddlev1.SteerAccepted{SteerId: "s"}}},
		ItemStarted("t3", UserItem("steer", "more")), ItemCompleted("t3", UserItem("steer", "more")), History("t3", "more"))
	h.Fork("f", "a", "t1")
	h.wantTurns("f", "t1")
	h.wantHistory("f", "ask t1", "answer t1")
	h.wantItems("f", "u-t1", "c-t1", "m-t1")
}

func testForkOfRunningTurn(h *Harness) {
	h.Create("a", nil)
	h.AddTurn("a", "t1")
	h.Add("a", Accepted("t2", "q"))
	h.Add("a", Started("t2"), ItemStarted("t2", UserItem("u", "q")), ItemCompleted("t2", UserItem("u", "q")), History("t2", "q"),
		ItemStarted("t2", AgentItem("m1", "")), ItemCompleted("t2", AgentItem("m1", "part")), ItemStarted("t2", AgentItem("m2", "")))
	h.Fork("f", "a", "t2")
	h.Add("a", ItemCompleted("t2", AgentItem("m2", "rest")), History("t2", "rest"), ItemStarted("t2", CommandItem("c")), ItemCompleted("t2", CommandItem("c")))
	h.Add("a", Completed("t2", heddlev1.TurnStatus_TURN_STATUS_COMPLETED))

	turn, err := h.Turn(h.ctx(), "f", "t2")
	h.check(err)
	h.same("status in the fork", turn.GetStatus(), heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED)
	h.same("last message in the fork", turn.GetLastAgentMessage().GetId(), "m1")
	if turn.GetCompletedAtMs() == 0 {
		h.Error("the turn has no end in the fork")
	}
	h.wantItems("f", "u-t1", "c-t1", "m-t1", "u", "m1")
	h.wantHistory("f", "ask t1", "answer t1", "q")
	page, err := h.ListTurns(h.ctx(), &heddlev1.ListTurnsRequest{ThreadId: "f", PageSize: 1})
	h.check(err)
	h.same("summary in the fork", itemIDs(page.GetTurns()[0].GetItems()), []string{"u", "m1"})
	own, err := h.Turn(h.ctx(), "a", "t2")
	h.check(err)
	h.same("status in the source", own.GetStatus(), heddlev1.TurnStatus_TURN_STATUS_COMPLETED)
	open, err := h.OpenThreads(h.ctx())
	h.check(err)
	h.same("open threads", len(open), 0)
}

func testForkOfFork(h *Harness) {
	h.Create("a", nil)
	h.AddTurn("a", "a1")
	h.AddTurn("a", "a2")
	h.Fork("b", "a", "a2")
	h.AddTurn("b", "b3")
	h.AddTurn("b", "b4")
	h.Fork("c", "b", "b3")
	h.AddTurn("c", "c4")
	h.Fork("d", "b", "a1") // the cut lies in the source's source
	h.AddTurn("d", "d2")
	h.AddTurn("a", "a3")
	h.wantTurns("c", "a1", "a2", "b3", "c4")
	h.wantTurns("d", "a1", "d2")
	h.wantHistory("d", "ask a1", "answer a1", "ask d2", "answer d2")
	h.wantItems("c", "u-a1", "c-a1", "m-a1", "u-a2", "c-a2", "m-a2", "u-b3", "c-b3", "m-b3", "u-c4", "c-c4", "m-c4")
	it, err := h.Item(h.ctx(), "c", "m-a1")
	h.check(err)
	h.same("owner", it.ThreadID, "a")
	h.wantReason("turn past the cut", second(h.Turn(h.ctx(), "d", "a2")), errdefs.TurnNotFound)
	turn, err := h.Turn(h.ctx(), "c", "c4")
	h.check(err)
	h.same("ordinals go on", turn.GetOrdinal(), int64(4))
}

// A fork from before a replacement of the history sees what was replaced.
func testForkBeforeFloor(h *Harness) {
	h.Create("a", nil)
	h.AddTurn("a", "t1")
	h.AddTurn("a", "t2")
	h.Add("a", Accepted("t3", "q"))
	h.Add("a", Started("t3"), Replaced("t3", "summary"))
	h.Add("a", Completed("t3", heddlev1.TurnStatus_TURN_STATUS_COMPLETED))
	h.Fork("before", "a", "t2")
	h.Fork("after", "a", "t3")
	h.wantHistory("before", "ask t1", "answer t1", "ask t2", "answer t2")
	h.AddTurn("after", "x")
	h.wantHistory("after", "summary", "ask x", "answer x")
	h.Add("before", Accepted("y", "q"))
	h.Add("before", Started("y"), Replaced("y", "own"))
	h.wantHistory("before", "own")
}

// A background terminal of the source is ended from the fork's view.
func testForkBackground(h *Harness) {
	h.Create("a", nil)
	h.Add("a", Accepted("t1", "q"))
	h.Add("a", Started("t1"), ItemStarted("t1", CommandItem("bg")))
	h.Add("a", Completed("t1", heddlev1.TurnStatus_TURN_STATUS_COMPLETED))
	h.Fork("f", "a", "t1")
	it, err := h.Item(h.ctx(), "f", "bg")
	h.check(err)
	if it.Open() || it.Item.GetCompletedAtMs() == 0 {
		h.Errorf("the fork shows an open item: %v", it.Item)
	}
	h.wantItems("f", "bg")
	own, err := h.Item(h.ctx(), "a", "bg")
	h.check(err)
	h.same("open in the source", own.Open(), true)
}

func testShared(h *Harness) {
	h.Create("a", nil)
	h.AddTurn("a", "t1")
	h.AddTurn("a", "t2")
	h.Fork("b", "a", "t2")
	h.AddTurn("b", "t3")
	fork := &heddlev1.Thread{Id: "copy", ForkedFromId: "b", ForkedLastTurnId: "t3", ForkedSeq: 100, CreatedAtMs: h.Now}
	ch, err := h.Shared(h.ctx(), fork, 3)
	h.check(err)
	a := h.CreateAppend("copy", func(r *heddlev1.Thread) { r.TurnCount = 3 })
	ch.Merge(&a.Changes)
	a.Changes = ch
	h.check(h.Commit(h.ctx(), []store.Append{a}))
	h.AddTurn("copy", "own")
	h.wantTurns("copy", "t1", "t2", "t3", "own")
	h.wantHistory("copy", "ask t1", "answer t1", "ask t2", "answer t2", "ask t3", "answer t3", "ask own", "answer own")
	h.Fork("again", "copy", "t2")
	h.wantTurns("again", "t1", "t2")
	h.wantHistory("again", "ask t1", "answer t1", "ask t2", "answer t2")
	h.wantItems("again", "u-t1", "c-t1", "m-t1", "u-t2", "c-t2", "m-t2")
}
