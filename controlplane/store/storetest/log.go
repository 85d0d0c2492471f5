package storetest

import (
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/thread"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func (h *Harness) wantReason(what string, err error, reason errdefs.Reason) {
	h.Helper()
	if !errdefs.Is(err, reason) {
		h.Errorf("%s: error %v, want reason %s", what, err, reason)
	}
}

func testConditions(h *Harness) {
	h.Create("a", nil)
	base := store.Append{ThreadID: "a", ExpectedSeq: 1, Epoch: 1}
	ahead, old, claimed := base, base, base
	ahead.ExpectedSeq = 2
	h.wantReason("wrong seq", h.Commit(h.ctx(), []store.Append{ahead}), errdefs.StaleEpoch)
	claimed.Epoch, claimed.Claim = 2, true
	h.check(h.Commit(h.ctx(), []store.Append{claimed}))
	h.wantReason("second claim", h.Commit(h.ctx(), []store.Append{claimed}), errdefs.StaleEpoch)
	h.wantReason("old epoch", h.Commit(h.ctx(), []store.Append{old}), errdefs.StaleEpoch)
	again := h.CreateAppend("a", nil)
	h.wantReason("create again", h.Commit(h.ctx(), []store.Append{again}), errdefs.InvalidArgument)
	row, err := h.Thread(h.ctx(), "a")
	h.check(err)
	h.same("epoch", row.GetEpoch(), uint64(2))
	h.same("seq", row.GetLastSeq(), uint64(1))
	st, err := h.Load(h.ctx(), "a")
	h.check(err)
	h.same("loaded", []uint64{st.LastSeq, st.Epoch}, []uint64{1, 2})
}

func testAtomic(h *Harness) {
	h.Create("a", nil)
	h.Create("b", nil)
	good, bad := h.Append("a", Warning("x")), h.Append("b", Warning("y"))
	bad.Epoch = 7
	err := h.Commit(h.ctx(), []store.Append{good, bad})
	h.wantReason("conflict", err, errdefs.StaleEpoch)
	var conflict *store.ConflictError
	if c, ok := err.(*store.ConflictError); ok { //nolint:errorlint // the type itself is the contract
		conflict = c
	}
	if conflict == nil || conflict.ThreadID != "b" {
		h.Errorf("conflict %v does not name the thread", err)
	}
	events, head, err := h.Events(h.ctx(), "a", 1, 0)
	h.check(err)
	h.same("events of the other thread", len(events), 0)
	h.same("head", head, uint64(1))
}

func testNotFound(h *Harness) {
	for name, err := range map[string]error{
		"thread":    second(h.Thread(h.ctx(), "x")),
		"load":      second(h.Load(h.ctx(), "x")),
		"turn":      second(h.Turn(h.ctx(), "x", "t")),
		"turns":     second(h.ListTurns(h.ctx(), &heddlev1.ListTurnsRequest{ThreadId: "x"})),
		"items":     second(h.ListItems(h.ctx(), &heddlev1.ListItemsRequest{ThreadId: "x"})),
		"history":   second(h.History(h.ctx(), "x")),
		"actions":   second(h.OpenActions(h.ctx(), "x")),
		"approvals": second(h.PendingApprovals(h.ctx(), "x")),
		"delete":    h.DeleteThread(h.ctx(), "x"),
		"append":    h.Commit(h.ctx(), []store.Append{{ThreadID: "x", Epoch: 1}}),
		"empty id":  second(h.Thread(h.ctx(), "")),
	} {
		h.wantReason(name, err, errdefs.ThreadNotFound)
	}
	_, _, err := h.Events(h.ctx(), "x", 0, 0)
	h.wantReason("events", err, errdefs.ThreadNotFound)
	h.Create("a", nil)
	h.wantReason("turn", second(h.Turn(h.ctx(), "a", "t")), errdefs.TurnNotFound)
	h.wantReason("item", second(h.Item(h.ctx(), "a", "i")), errdefs.ItemNotFound)
	h.wantReason("approval", second(h.Approval(h.ctx(), "a", "i")), errdefs.ApprovalNotFound)
}

func second[T any](_ T, err error) error { return err }

func testEvents(h *Harness) {
	h.Create("a", nil)
	for range 20 {
		h.Add("a", Warning(strings.Repeat("x", 100)), Warning(strings.Repeat("y", 100)))
	}
	next := uint64(1)
	for after := uint64(0); ; {
		events, head, err := h.Events(h.ctx(), "a", after, 500)
		h.check(err)
		h.same("head", head, uint64(41))
		if len(events) == 0 {
			break
		}
		if len(events) > 6 {
			h.Errorf("%d events of about 110 bytes with a limit of 500", len(events))
		}
		for _, ev := range events {
			h.same("seq", ev.GetSeq(), next)
			next++
		}
		after = next - 1
	}
	h.same("last", next, uint64(42))
	events, _, err := h.Events(h.ctx(), "a", 40, 1)
	h.check(err)
	h.same("one event whatever the limit", len(events), 1)
	for _, after := range []uint64{41, 1000} {
		events, _, err := h.Events(h.ctx(), "a", after, 0)
		h.check(err)
		h.same("events past the head", len(events), 0)
	}
}

// An event of a newer version is kept as it came.
func testUnknownEvent(h *Harness) {
	h.Create("a", nil)
	ev := &heddlev1.Event{}
	raw := protowire.AppendTag(nil, 900, protowire.BytesType)
	raw = protowire.AppendBytes(raw, []byte("from the future"))
	ev.ProtoReflect().SetUnknown(raw)
	h.Add("a", ev)
	h.Add("a", Warning("after"))
	events, _, err := h.Events(h.ctx(), "a", 1, 0)
	h.check(err)
	h.same("events", len(events), 2)
	h.same("payload", string(events[0].ProtoReflect().GetUnknown()), string(raw))
}

func testCompaction(h *Harness) {
	h.Create("a", nil)
	h.Add("a", Accepted("t", "q"))
	h.Add("a", Started("t"), ItemStarted("t", AgentItem("m", "")), ItemStarted("t", AgentItem("n", "")))
	first := h.State("a").LastSeq + 1
	big := strings.Repeat("z", 500)
	for range 10 {
		h.Add("a", Delta("t", "m", big), Delta("t", "m", big))
	}
	h.Add("a", Delta("t", "n", big), Delta("t", "m", big))
	last := h.State("a").LastSeq
	done := h.Append("a", ItemCompleted("t", AgentItem("m", "all")))
	h.same("compactable", done.Changes.Compactable[0].First, first)
	h.same("compactable", done.Changes.Compactable[0].Last, last)
	done.Compact = []thread.Compaction{done.Changes.Compactable[0]}
	h.check(h.Commit(h.ctx(), []store.Append{done}))

	events, _, err := h.Events(h.ctx(), "a", first-1, 0)
	h.check(err)
	next := first
	kinds := ""
	for _, ev := range events {
		h.same("seq", ev.GetSeq(), next)
		next = store.EndOf(ev) + 1
		switch {
		case ev.GetRangeCompacted() != nil:
			h.same("item", ev.GetRangeCompacted().GetItemId(), "m")
			kinds += "g"
		case ev.GetItemDelta() != nil:
			kinds += "d"
		default:
			kinds += "."
		}
	}
	h.same("kinds", kinds, "gdg.")
	h.same("end", next, last+2)
	// A cursor within the range gets the range from its start.
	events, _, err = h.Events(h.ctx(), "a", first+3, 0)
	h.check(err)
	h.same("range", events[0].GetSeq(), first)
}
