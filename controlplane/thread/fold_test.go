package thread_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/thread"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

type ev = heddlev1.Event

func created() *ev {
	return &ev{Payload: &heddlev1.Event_ThreadCreated{ThreadCreated: &heddlev1.ThreadCreated{Thread: &heddlev1.Thread{Id: "th", Principal: "local"}}}}
}

func user(text string) *heddlev1.UserMessage {
	return &heddlev1.UserMessage{Parts: []*heddlev1.InputPart{{Part: &heddlev1.InputPart_Text{Text: text}}}}
}

func accepted(turn, text string) *ev {
	return &ev{TurnId: turn, Payload: &heddlev1.Event_TurnAccepted{TurnAccepted: &heddlev1.TurnAccepted{Turn: &heddlev1.Turn{Id: turn, SessionId: "s"}, Input: user(text)}}}
}

func started(turn string, attempt int32) *ev {
	return &ev{TurnId: turn, Payload: &heddlev1.Event_TurnStarted{TurnStarted: &heddlev1.TurnStarted{Turn: &heddlev1.Turn{Id: turn, Attempt: attempt}}}}
}

func ended(turn string, status heddlev1.TurnStatus) *ev {
	return &ev{TurnId: turn, Payload: &heddlev1.Event_TurnCompleted{TurnCompleted: &heddlev1.TurnCompleted{Turn: &heddlev1.Turn{Id: turn, Status: status}}}}
}

func completed(turn string) *ev { return ended(turn, heddlev1.TurnStatus_TURN_STATUS_COMPLETED) }

func agent(id, text string) *heddlev1.Item {
	return &heddlev1.Item{Id: id, Content: &heddlev1.Item_AgentMessage{AgentMessage: &heddlev1.AgentMessage{Text: text}}}
}

func command(id string) *heddlev1.Item {
	return &heddlev1.Item{Id: id, Content: &heddlev1.Item_CommandExecution{CommandExecution: &heddlev1.CommandExecution{}}}
}

func itemStarted(turn string, it *heddlev1.Item) *ev {
	return &ev{TurnId: turn, Payload: &heddlev1.Event_ItemStarted{ItemStarted: &heddlev1.ItemStarted{Item: it}}}
}

func itemCompleted(turn string, it *heddlev1.Item) *ev {
	return &ev{TurnId: turn, Payload: &heddlev1.Event_ItemCompleted{ItemCompleted: &heddlev1.ItemCompleted{Item: it}}}
}

func delta(item, text string) *ev {
	return &ev{TurnId: "t", Payload: &heddlev1.Event_ItemDelta{ItemDelta: &heddlev1.ItemDelta{ItemId: item, Delta: &heddlev1.ItemDelta_AgentText{AgentText: text}}}}
}

func output(item string) *ev {
	return &ev{TurnId: "t", Payload: &heddlev1.Event_OutputAdvanced{OutputAdvanced: &heddlev1.OutputAdvanced{ItemId: item, Length: 1}}}
}

func usage(turn string) *ev {
	return &ev{TurnId: turn, Payload: &heddlev1.Event_TokenUsageUpdated{TokenUsageUpdated: &heddlev1.TokenUsageUpdated{Usage: &heddlev1.ThreadTokenUsage{ModelContextWindow: 7}}}}
}

func asked(id string) *ev {
	return &ev{TurnId: "t", Payload: &heddlev1.Event_ApprovalRequested{ApprovalRequested: &heddlev1.ApprovalRequested{Approval: &heddlev1.Approval{Id: id, TurnId: "t", RequestId: 4}}}}
}

func decided(id string, d heddlev1.Decision) *ev {
	return &ev{TurnId: "t", Payload: &heddlev1.Event_ApprovalResolved{ApprovalResolved: &heddlev1.ApprovalResolved{Approval: &heddlev1.Approval{Id: id, TurnId: "t", Decision: d}}}}
}

func steer(turn string) *ev {
	return &ev{TurnId: turn, Payload: &heddlev1.Event_SteerAccepted{SteerAccepted: &heddlev1.SteerAccepted{}}}
}

// fold applies events at the times 1000, 2000, ... and returns the error of the
// last one; an earlier one may not fail.
func fold(t *testing.T, events ...*ev) (*thread.State, *thread.Changes, error) {
	t.Helper()
	st, ch := thread.New(), &thread.Changes{}
	for i, e := range events {
		e.Seq, e.ThreadId, e.TimeMs = st.LastSeq+1, "th", int64(i+1)*1000
		if err := st.Fold(e, ch); err != nil {
			if i < len(events)-1 {
				t.Fatalf("event %d: %v", i, err)
			}
			return st, ch, err
		}
	}
	return st, ch, nil
}

// I2 and P14: what may follow what. The last event of each row is the one that
// is judged.
func TestP14WhatMayFollow(t *testing.T) {
	run := []*ev{created(), accepted("t", "q"), started("t", 1)}
	for name, c := range map[string]struct {
		before []*ev
		last   *ev
		ok     bool
	}{
		"create twice":                      {[]*ev{created()}, created(), false},
		"event before creation":             {nil, accepted("t", "q"), false},
		"accept":                            {[]*ev{created()}, accepted("t", "q"), true},
		"accept while one is open":          {run, accepted("u", "q"), false},
		"start unknown":                     {[]*ev{created()}, started("t", 1), false},
		"start twice":                       {run, started("t", 1), false},
		"start again after a crash":         {run, started("t", 2), true},
		"complete before start":             {[]*ev{created(), accepted("t", "q")}, completed("t"), false},
		"interrupt before start":            {[]*ev{created(), accepted("t", "q")}, ended("t", heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED), true},
		"complete":                          {run, completed("t"), true},
		"complete without status":           {run, ended("t", heddlev1.TurnStatus_TURN_STATUS_UNSPECIFIED), false},
		"complete in progress":              {run, ended("t", heddlev1.TurnStatus_TURN_STATUS_IN_PROGRESS), false},
		"complete twice":                    {plus(run, completed("t")), completed("t"), false},
		"next turn":                         {plus(run, completed("t")), accepted("u", "q"), true},
		"item before start":                 {[]*ev{created(), accepted("t", "q")}, itemStarted("t", agent("m", "")), false},
		"item after the end":                {plus(run, completed("t")), itemStarted("t", agent("m", "")), false},
		"item of no turn":                   {run, itemStarted("", agent("m", "")), false},
		"item without id":                   {run, itemStarted("t", agent("", "")), false},
		"item with a huge id":               {run, itemStarted("t", agent(strings.Repeat("x", 600), "")), false},
		"item twice":                        {plus(run, itemStarted("t", agent("m", ""))), itemStarted("t", agent("m", "")), false},
		"complete an unknown item":          {run, itemCompleted("t", agent("m", "")), false},
		"complete an item twice":            {plus(run, itemStarted("t", agent("m", "")), itemCompleted("t", agent("m", ""))), itemCompleted("t", agent("m", "")), false},
		"end with an open message":          {plus(run, itemStarted("t", agent("m", ""))), completed("t"), false},
		"end with an open command":          {plus(run, itemStarted("t", command("c"))), completed("t"), true},
		"background command ends later":     {plus(run, itemStarted("t", command("c")), completed("t")), itemCompleted("t", command("c")), true},
		"its output too":                    {plus(run, itemStarted("t", command("c")), completed("t")), output("c"), true},
		"delta of an open item":             {plus(run, itemStarted("t", agent("m", ""))), delta("m", "x"), true},
		"delta of a completed item":         {plus(run, itemStarted("t", agent("m", "")), itemCompleted("t", agent("m", ""))), delta("m", "x"), false},
		"output of an unknown item":         {run, output("c"), false},
		"usage":                             {run, usage("t"), true},
		"usage after the end":               {plus(run, completed("t")), usage("t"), false},
		"usage of the thread":               {plus(run, completed("t")), usage(""), true},
		"steer":                             {run, steer("t"), true},
		"steer of another turn":             {run, steer("u"), false},
		"ask":                               {run, asked("a"), true},
		"ask twice":                         {plus(run, asked("a")), asked("a"), false},
		"ask after the end":                 {plus(run, completed("t")), asked("a"), false},
		"decide":                            {plus(run, asked("a")), decided("a", heddlev1.Decision_DECISION_ACCEPT), true},
		"decide nothing":                    {plus(run, asked("a")), decided("a", heddlev1.Decision_DECISION_UNSPECIFIED), false},
		"decide twice":                      {plus(run, asked("a"), decided("a", heddlev1.Decision_DECISION_ACCEPT)), decided("a", heddlev1.Decision_DECISION_DECLINE), false},
		"end while asking":                  {plus(run, asked("a")), ended("t", heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED), false},
		"an event of a newer version":       {run, &ev{}, true},
		"resolve an action that is unknown": {run, &ev{Payload: &heddlev1.Event_ActionsResolved{ActionsResolved: &heddlev1.ActionsResolved{ActionIds: []string{"x"}}}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			events := plus(nil, append(append([]*ev{}, c.before...), c.last)...)
			st, _, err := fold(t, events...)
			if (err == nil) != c.ok {
				t.Fatalf("error %v, want ok = %v", err, c.ok)
			}
			want := uint64(len(events))
			if !c.ok {
				want--
			}
			if st.LastSeq != want {
				t.Errorf("last seq %d, want %d", st.LastSeq, want)
			}
		})
	}
}

// plus returns clones, so that rows of a table do not share events.
func plus(base []*ev, more ...*ev) []*ev {
	var out []*ev
	for _, e := range append(append([]*ev{}, base...), more...) {
		out = append(out, proto.CloneOf(e))
	}
	return out
}

func TestSeqMustContinue(t *testing.T) {
	st := thread.New()
	for _, seq := range []uint64{0, 2} {
		e := created()
		e.Seq = seq
		if err := st.Fold(e, &thread.Changes{}); err == nil {
			t.Errorf("first seq %d was accepted", seq)
		}
	}
}

func TestRowOfAWholeTurn(t *testing.T) {
	last := completed("t")
	st, ch, err := fold(t, created(), accepted("t", "  fix the\ttest  "), started("t", 1),
		itemStarted("t", agent("m", "")), itemCompleted("t", agent("m", "done")), usage("t"), last)
	if err != nil {
		t.Fatal(err)
	}
	want := &heddlev1.Thread{
		Id: "th", Principal: "local", Preview: "fix the\ttest", CreatedAtMs: 1000, UpdatedAtMs: 7000, TurnCount: 1,
		State: heddlev1.ThreadState_THREAD_STATE_IDLE, TokenUsage: &heddlev1.ThreadTokenUsage{ModelContextWindow: 7},
		ReadState: &heddlev1.ReadState{Revision: 7, FirstUnreadTurnId: "t"},
	}
	if !proto.Equal(st.Row, want) || ch.Row != st.Row {
		t.Errorf("row %v, want %v", st.Row, want)
	}
	turn := ch.Turns["t"]
	wantTurn := &heddlev1.Turn{
		Id: "t", ThreadId: "th", SessionId: "s", Status: heddlev1.TurnStatus_TURN_STATUS_COMPLETED, Ordinal: 1, Attempt: 1,
		AcceptedAtMs: 2000, StartedAtMs: 3000, CompletedAtMs: 7000, DurationMs: 4000, FirstSeq: 2, LastSeq: 7, LastAgentMessage: turn.GetLastAgentMessage(),
	}
	if !proto.Equal(turn, wantTurn) {
		t.Errorf("turn %v, want %v", turn, wantTurn)
	}
	if turn.GetLastAgentMessage().GetAgentMessage().GetText() != "done" {
		t.Errorf("last message %v", turn.GetLastAgentMessage())
	}
	if !proto.Equal(last.GetTurnCompleted().GetTurn(), turn) {
		t.Error("the event does not show the turn as its row does")
	}
	if st.Busy() {
		t.Errorf("something is open: %+v", st)
	}
	it := ch.Items[thread.ItemKey{Ordinal: 1, StartSeq: 4}]
	if it.EndSeq != 5 || it.Item.GetStartedAtMs() != 4000 || it.Item.GetCompletedAtMs() != 5000 || it.Item.GetTurnId() != "t" {
		t.Errorf("item %+v", it)
	}
}

func TestStates(t *testing.T) {
	run := []*ev{created(), accepted("t", "q")}
	for name, c := range map[string]struct {
		events []*ev
		want   heddlev1.ThreadState
	}{
		"new":         {[]*ev{created()}, heddlev1.ThreadState_THREAD_STATE_IDLE},
		"accepted":    {run, heddlev1.ThreadState_THREAD_STATE_ACTIVE},
		"interrupted": {plus(run, ended("t", heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED)), heddlev1.ThreadState_THREAD_STATE_IDLE},
		"failed":      {plus(run, ended("t", heddlev1.TurnStatus_TURN_STATUS_FAILED)), heddlev1.ThreadState_THREAD_STATE_SYSTEM_ERROR},
		"after that":  {plus(run, ended("t", heddlev1.TurnStatus_TURN_STATUS_FAILED), accepted("u", "q")), heddlev1.ThreadState_THREAD_STATE_ACTIVE},
	} {
		st, _, err := fold(t, plus(nil, c.events...)...)
		if err != nil || st.Row.GetState() != c.want {
			t.Errorf("%s: %v, %v", name, st.Row.GetState(), err)
		}
	}
}

func TestPreview(t *testing.T) {
	long := strings.Repeat("ü", 2000)
	st, _, err := fold(t, created(), accepted("t", long))
	if err != nil || !utf8.ValidString(st.Row.GetPreview()) || len(st.Row.GetPreview()) > thread.PreviewBytes || len(st.Row.GetPreview()) < thread.PreviewBytes-4 {
		t.Errorf("preview of %d bytes, %v", len(st.Row.GetPreview()), err)
	}
	second := &heddlev1.Item{Id: "u", Content: &heddlev1.Item_UserMessage{UserMessage: user("the first text")}}
	st, _, err = fold(t, created(), accepted("t", ""), started("t", 1), itemStarted("t", second), itemCompleted("t", second),
		itemStarted("t", &heddlev1.Item{Id: "v", Content: &heddlev1.Item_UserMessage{UserMessage: user("a later text")}}))
	if err != nil || st.Row.GetPreview() != "the first text" {
		t.Errorf("preview %q, %v", st.Row.GetPreview(), err)
	}
}

func TestCompactable(t *testing.T) {
	big := strings.Repeat("x", 600)
	_, ch, err := fold(t, created(), accepted("t", "q"), started("t", 1), itemStarted("t", agent("m", "")), itemStarted("t", agent("n", "")),
		delta("m", big), delta("n", "small"), delta("m", big), delta("m", big), delta("m", big), itemCompleted("t", agent("m", "all")), itemCompleted("t", agent("n", "small")))
	if err != nil || len(ch.Compactable) != 1 {
		t.Fatalf("%v, %v", ch.Compactable, err)
	}
	if c := ch.Compactable[0]; c.ItemID != "m" || c.First != 6 || c.Last != 10 {
		t.Errorf("%+v", c)
	}
}

// Rows that were handed out are never changed by later events.
func TestRowsAreImmutable(t *testing.T) {
	st, ch := thread.New(), &thread.Changes{}
	var rows []*heddlev1.Thread
	var copies []*heddlev1.Thread
	for i, e := range []*ev{created(), accepted("t", "q"), started("t", 1), asked("a"), decided("a", heddlev1.Decision_DECISION_ACCEPT), usage("t"), completed("t")} {
		e.Seq, e.ThreadId, e.TimeMs = uint64(i)+1, "th", int64(i)
		if err := st.Fold(e, ch); err != nil {
			t.Fatal(err)
		}
		rows, copies = append(rows, st.Row), append(copies, proto.CloneOf(st.Row))
	}
	for i := range rows {
		if !proto.Equal(rows[i], copies[i]) {
			t.Errorf("row %d was changed", i)
		}
	}
	if ch.NextRequestID != 5 {
		t.Errorf("next request id %d", ch.NextRequestID)
	}
}
