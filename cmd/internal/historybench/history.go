package main

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/store/boltstore"
	"github.com/heddle-dev/heddle/controlplane/thread"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// history fills a store through the commits that a log makes, many to one.
type history struct {
	store *boltstore.Store
	cwd   string
	time  int64
}

const threadsPerCommit, turnsPerCommit = 1000, 250

// short makes threads of one turn.
func (h *history) short(n int) error {
	for i := 0; i < n; i += threadsPerCommit {
		var appends []store.Append
		for j := i; j < min(n, i+threadsPerCommit); j++ {
			a, st := h.create()
			if err := h.turn(a, st, j); err != nil {
				return err
			}
			appends = append(appends, *a)
		}
		if err := h.store.Commit(context.Background(), appends); err != nil {
			return err
		}
	}
	return nil
}

// long makes one thread of n turns and returns its id.
func (h *history) long(n int) (string, error) {
	a, st := h.create()
	for i := range n {
		if err := h.turn(a, st, i); err != nil {
			return "", err
		}
		if (i+1)%turnsPerCommit != 0 && i+1 < n {
			continue
		}
		if err := h.store.Commit(context.Background(), []store.Append{*a}); err != nil {
			return "", err
		}
		a = &store.Append{ThreadID: a.ThreadID, Epoch: 1, ExpectedSeq: st.LastSeq}
	}
	return a.ThreadID, nil
}

func (h *history) create() (*store.Append, *thread.State) {
	id := uuid.Must(uuid.NewV7()).String()
	a := &store.Append{ThreadID: id, Epoch: 1, Create: true}
	a.Events = append(a.Events, &heddlev1.Event{Payload: &heddlev1.Event_ThreadCreated{ThreadCreated: &heddlev1.ThreadCreated{Thread: &heddlev1.Thread{
		Id: id, Principal: "local", Source: "vscode", CreatedAtMs: h.now(), UpdatedAtMs: h.now(),
		Settings: &heddlev1.ThreadSettings{Cwd: h.cwd, ModelProvider: "openai", Model: "m"},
	}}}})
	return a, thread.New()
}

func (h *history) now() int64 { h.time++; return 1_700_000_000_000 + h.time }

// turn adds a turn with a question, a command and an answer, and folds what is
// new of the append.
func (h *history) turn(a *store.Append, st *thread.State, n int) error {
	id := uuid.Must(uuid.NewV7()).String()
	input := &heddlev1.UserMessage{Parts: []*heddlev1.InputPart{{Part: &heddlev1.InputPart_Text{Text: fmt.Sprintf("please do number %d of the things on the list", n)}}}}
	row := func(s heddlev1.TurnStatus) *heddlev1.Turn {
		return &heddlev1.Turn{Id: id, RootTurnId: id, Status: s, StartedAtMs: h.now(), CompletedAtMs: h.now()}
	}
	const running, done = heddlev1.TurnStatus_TURN_STATUS_IN_PROGRESS, heddlev1.TurnStatus_TURN_STATUS_COMPLETED
	a.Events = append(a.Events,
		&heddlev1.Event{Payload: &heddlev1.Event_TurnAccepted{TurnAccepted: &heddlev1.TurnAccepted{Turn: row(running), Input: input}}},
		&heddlev1.Event{Payload: &heddlev1.Event_TurnStarted{TurnStarted: &heddlev1.TurnStarted{Turn: row(running)}}})
	for kind, item := range []*heddlev1.Item{
		{Content: &heddlev1.Item_UserMessage{UserMessage: input}},
		{Content: &heddlev1.Item_CommandExecution{CommandExecution: &heddlev1.CommandExecution{Command: "go test ./...", Cwd: h.cwd, AggregatedOutput: []byte("ok\n")}}},
		{Content: &heddlev1.Item_AgentMessage{AgentMessage: &heddlev1.AgentMessage{Text: fmt.Sprintf("Number %d is done: all tests pass, and what was asked for is in place.", n)}}},
	} {
		item.Id, item.TurnId, item.StartedAtMs = fmt.Sprintf("i%d-%s", kind, id), id, h.now()
		item.Status = heddlev1.ItemStatus_ITEM_STATUS_IN_PROGRESS
		a.Events = append(a.Events, &heddlev1.Event{Payload: &heddlev1.Event_ItemStarted{ItemStarted: &heddlev1.ItemStarted{Item: item}}})
		ended := &heddlev1.Item{Id: item.GetId(), TurnId: id, StartedAtMs: item.GetStartedAtMs(), CompletedAtMs: h.now(), Status: heddlev1.ItemStatus_ITEM_STATUS_COMPLETED, Content: item.GetContent()}
		a.Events = append(a.Events, &heddlev1.Event{Payload: &heddlev1.Event_ItemCompleted{ItemCompleted: &heddlev1.ItemCompleted{Item: ended}}})
	}
	a.Events = append(a.Events, &heddlev1.Event{Payload: &heddlev1.Event_TurnCompleted{TurnCompleted: &heddlev1.TurnCompleted{Turn: row(done)}}})
	for _, ev := range a.Events {
		if ev.GetSeq() > 0 {
			continue
		}
		ev.Seq, ev.ThreadId, ev.TimeMs = st.LastSeq+1, a.ThreadID, h.now()
		if ev.GetThreadCreated() == nil {
			ev.TurnId = id
		}
		if err := st.Fold(ev, &a.Changes); err != nil {
			return err
		}
	}
	return nil
}
