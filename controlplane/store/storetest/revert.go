package storetest

import (
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Revert takes the turns from an ordinal on back.
func (h *Harness) Revert(id string, first int64) {
	h.Helper()
	last := h.State(id).Row.GetTurnCount()
	h.Add(id, &heddlev1.Event{Payload: &heddlev1.Event_ThreadReverted{ThreadReverted: &heddlev1.ThreadReverted{FirstOrdinal: first, LastOrdinal: last}}})
}

// What was taken back is seen by nobody; forks made before still see it, and
// what comes after has its place.
func testRevert(h *Harness) {
	h.Create("a", nil)
	h.AddTurn("a", "t1")
	h.AddTurn("a", "t2")
	h.AddTurn("a", "t3")
	h.Fork("early", "a", "t3")
	h.Revert("a", 2)
	h.wantTurns("a", "t1")
	h.wantItems("a", "u-t1", "c-t1", "m-t1")
	h.wantHistory("a", "ask t1", "answer t1")
	h.wantReason("a turn that was taken back", second(h.Turn(h.ctx(), "a", "t2")), errdefs.TurnNotFound)
	h.wantReason("its item", second(h.Item(h.ctx(), "a", "m-t3")), errdefs.ItemNotFound)

	// Entries without a turn belong behind the newest turn that is left.
	h.Add("a", History("", "injected"))
	h.Fork("late", "a", "t1")
	h.wantHistory("late", "ask t1", "answer t1", "injected")
	h.AddTurn("a", "t4")
	h.wantTurns("a", "t1", "t4")
	h.wantHistory("a", "ask t1", "answer t1", "injected", "ask t4", "answer t4")
	h.wantTurns("early", "t1", "t2", "t3")
	h.wantHistory("early", "ask t1", "answer t1", "ask t2", "answer t2", "ask t3", "answer t3")
	h.wantTurns("late", "t1")

	// A fork may take back what it shares; its source keeps it.
	h.AddTurn("early", "g4")
	h.Revert("early", 2)
	h.wantTurns("early", "t1")
	h.AddTurn("early", "g5")
	h.wantTurns("early", "t1", "g5")
	h.wantHistory("early", "ask t1", "answer t1", "ask g5", "answer g5")
	h.wantTurns("a", "t1", "t4")

	h.Revert("a", 4)
	h.Revert("a", 1)
	page, err := h.ListTurns(h.ctx(), &heddlev1.ListTurnsRequest{ThreadId: "a"})
	h.check(err)
	h.same("turns when all are taken back", len(page.GetTurns()), 0)
	h.wantTurns("late", "t1")
}

// A summary that was taken back uncovers what it stood for.
func testRevertSummary(h *Harness) {
	h.Create("a", nil)
	h.AddTurn("a", "t1")
	h.Add("a", Accepted("t2", "q"))
	replace := History("t2", "summary")
	replace.GetHistoryAppended().Replace = true
	h.Add("a", Started("t2"), replace, Completed("t2", heddlev1.TurnStatus_TURN_STATUS_COMPLETED))
	h.wantHistory("a", "summary")
	h.Revert("a", 2)
	h.wantHistory("a", "ask t1", "answer t1")
}
