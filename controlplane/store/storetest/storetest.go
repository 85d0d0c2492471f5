// Package storetest defines what a store.Store does: every implementation runs
// this one suite.
package storetest

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/thread"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Run runs the suite. open returns an empty store; the suite closes it.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	t.Helper()
	cases := map[string]func(*Harness){
		"Conditions":        testConditions,
		"CommitIsAtomic":    testAtomic,
		"NotFound":          testNotFound,
		"Events":            testEvents,
		"UnknownEvent":      testUnknownEvent,
		"Compaction":        testCompaction,
		"TurnPages":         testTurnPages,
		"TurnViews":         testTurnViews,
		"ItemPages":         testItemPages,
		"LargeItems":        testLargeItems,
		"History":           testHistory,
		"OpenWork":          testOpenWork,
		"Approvals":         testApprovals,
		"RequestIDs":        testRequestIDs,
		"Meta":              testMeta,
		"Delete":            testDelete,
		"ForkSharesAll":     testForkSharesAll,
		"ForkCut":           testForkCut,
		"ForkOfRunningTurn": testForkOfRunningTurn,
		"ForkOfFork":        testForkOfFork,
		"ForkBeforeFloor":   testForkBeforeFloor,
		"ForkBackground":    testForkBackground,
		"Revert":            testRevert,
		"RevertSummary":     testRevertSummary,
		"Shared":            testShared,
		"ListOrder":         testListOrder,
		"ListPages":         testListPages,
		"ListFilters":       testListFilters,
		"ListPrincipals":    testListPrincipals,
		"BadCursors":        testBadCursors,
		"Queue":             testQueue,
		"Attachments":       testAttachments,
		"Groups":            testGroups,
		"Records":           testRecords,
	}
	for name, run := range cases {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			run(NewHarness(t, s))
		})
	}
}

// Harness drives a store the way the event log does: it folds events and
// commits them, one commit per call.
type Harness struct {
	*testing.T
	store.Store
	// Now is the time of the next event in milliseconds; each event adds one.
	Now    int64
	states map[string]*thread.State
}

// NewHarness returns a harness for a store.
func NewHarness(t *testing.T, s store.Store) *Harness {
	t.Helper()
	return &Harness{T: t, Store: s, Now: 1_000, states: map[string]*thread.State{}}
}

func (h *Harness) ctx() context.Context { return context.Background() }

func (h *Harness) check(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// State returns the folded state of a thread.
func (h *Harness) State(id string) *thread.State { return h.states[id] }

// Create makes a thread; set changes its first row.
func (h *Harness) Create(id string, set func(*heddlev1.Thread)) {
	h.Helper()
	h.check(h.Commit(h.ctx(), []store.Append{h.CreateAppend(id, set)}))
}

// CreateAppend returns the append that makes a thread.
func (h *Harness) CreateAppend(id string, set func(*heddlev1.Thread)) store.Append {
	h.Helper()
	row := &heddlev1.Thread{Id: id, Principal: "local", CreatedAtMs: h.Now, Source: "cli", Settings: &heddlev1.ThreadSettings{Cwd: "/w", ModelProvider: "openai"}}
	if set != nil {
		set(row)
	}
	st := thread.New()
	st.Epoch = 1
	h.states[id] = st
	a := h.Append(id, &heddlev1.Event{Payload: &heddlev1.Event_ThreadCreated{ThreadCreated: &heddlev1.ThreadCreated{Thread: row}}})
	a.Create = true
	return a
}

// Fork makes a fork of source at a turn; an empty turn shares nothing.
func (h *Harness) Fork(id, source, turn string) {
	h.Helper()
	src, err := h.Thread(h.ctx(), source)
	h.check(err)
	var base int64
	if turn != "" {
		t, err := h.Turn(h.ctx(), source, turn)
		h.check(err)
		base = t.GetOrdinal()
	}
	a := h.CreateAppend(id, func(r *heddlev1.Thread) {
		r.ForkedFromId, r.ForkedLastTurnId, r.ForkedSeq, r.TurnCount = source, turn, src.GetLastSeq(), base
	})
	a.BaseOrdinal = base
	h.states[id].BaseOrdinal = base
	h.check(h.Commit(h.ctx(), []store.Append{a}))
}

// Append folds events and returns the append that holds them.
func (h *Harness) Append(id string, events ...*heddlev1.Event) store.Append {
	h.Helper()
	st := h.states[id]
	a := store.Append{ThreadID: id, ExpectedSeq: st.LastSeq, Epoch: st.Epoch, Events: events}
	for _, ev := range events {
		ev.Seq, ev.ThreadId, ev.TimeMs = st.LastSeq+1, id, h.Now
		h.Now++
		if err := st.Fold(ev, &a.Changes); err != nil {
			h.Fatal(err)
		}
	}
	return a
}

// Add folds and commits events.
func (h *Harness) Add(id string, events ...*heddlev1.Event) {
	h.Helper()
	h.check(h.Commit(h.ctx(), []store.Append{h.Append(id, events...)}))
}

// AddTurn records a whole turn: a question, an answer, history.
func (h *Harness) AddTurn(id, turn string) {
	h.Helper()
	h.Add(id, Accepted(turn, "ask "+turn))
	h.Add(id, Started(turn),
		ItemStarted(turn, UserItem("u-"+turn, "ask "+turn)), ItemCompleted(turn, UserItem("u-"+turn, "ask "+turn)), History(turn, "ask "+turn),
		ItemStarted(turn, CommandItem("c-"+turn)), ItemCompleted(turn, CommandItem("c-"+turn)),
		ItemStarted(turn, AgentItem("m-"+turn, "")), ItemCompleted(turn, AgentItem("m-"+turn, "answer "+turn)), History(turn, "answer "+turn))
	h.Add(id, Completed(turn, heddlev1.TurnStatus_TURN_STATUS_COMPLETED))
}

func (h *Harness) same(what string, got, want any) {
	h.Helper()
	if gm, ok := got.(proto.Message); ok {
		if wm, ok := want.(proto.Message); !ok || !proto.Equal(gm, wm) {
			h.Errorf("%s: got %v, want %v", what, got, want)
		}
		return
	}
	if !equal(got, want) {
		h.Errorf("%s: got %v, want %v", what, got, want)
	}
}
