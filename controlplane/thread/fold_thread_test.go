package thread_test

import (
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/thread"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func question(id string, set func(*heddlev1.Approval)) *ev {
	e := asked(id)
	set(e.GetApprovalRequested().GetApproval())
	return e
}

// What a thread waits for follows from all of its open questions.
func TestWhatAThreadWaitsFor(t *testing.T) {
	input := question("i", func(a *heddlev1.Approval) {
		a.Subject = &heddlev1.Approval_UserInput{UserInput: &heddlev1.UserInputRequest{}}
	})
	tool := question("d", func(a *heddlev1.Approval) {
		a.Subject = &heddlev1.Approval_DynamicTool{DynamicTool: &heddlev1.DynamicToolRequest{}}
	})
	run := []*ev{created(), accepted("t", "q"), started("t", 1)}
	for name, c := range map[string]struct {
		events          []*ev
		approval, input bool
	}{
		"a tool":             {[]*ev{tool}, false, false},
		"an approval":        {[]*ev{tool, asked("a")}, true, false},
		"both":               {[]*ev{input, asked("a")}, true, true},
		"one is answered":    {[]*ev{input, asked("a"), decided("a", heddlev1.Decision_DECISION_ACCEPT)}, false, true},
		"all are answered":   {[]*ev{input, decided("i", heddlev1.Decision_DECISION_ACCEPT)}, false, false},
		"the other one goes": {[]*ev{input, asked("a"), decided("i", heddlev1.Decision_DECISION_CANCEL)}, true, false},
	} {
		st, _, err := fold(t, plus(run, c.events...)...)
		if err != nil || st.Row.GetWaitingOnApproval() != c.approval || st.Row.GetWaitingOnUserInput() != c.input {
			t.Errorf("%s: approval %v, input %v, %v", name, st.Row.GetWaitingOnApproval(), st.Row.GetWaitingOnUserInput(), err)
		}
	}
}

func reverted(first, last int64) *ev {
	return &ev{Payload: &heddlev1.Event_ThreadReverted{ThreadReverted: &heddlev1.ThreadReverted{FirstOrdinal: first, LastOrdinal: last}}}
}

// Only a range that ends with the last turn can be taken back, and only while no
// turn is open.
func TestWhatCanBeTakenBack(t *testing.T) {
	done := []*ev{created(), accepted("t", "q"), started("t", 1), completed("t")}
	for name, c := range map[string]struct {
		events []*ev
		ok     bool
	}{
		"the last turn":  {plus(done, reverted(1, 1)), true},
		"nothing":        {plus(done, reverted(2, 1)), false},
		"a later one":    {plus(done, reverted(2, 2)), false},
		"before all":     {plus(done, reverted(0, 1)), false},
		"a running turn": {plus(done, accepted("u", "q"), reverted(2, 2)), false},
		"twice":          {plus(done, reverted(1, 1), reverted(1, 1)), true},
	} {
		if _, _, err := fold(t, c.events...); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Private entries are in no later turn's history.
func TestPrivateHistory(t *testing.T) {
	private := &ev{TurnId: "t", Payload: &heddlev1.Event_HistoryAppended{HistoryAppended: &heddlev1.HistoryAppended{
		Entries: []*heddlev1.HistoryEntry{{}}, Replace: true, Private: true}}}
	st, ch, err := fold(t, created(), accepted("t", "q"), started("t", 1), private)
	if err != nil || len(ch.History) != 0 || len(ch.Floors) != 0 || st.Row.GetHistoryFloor() != 0 {
		t.Errorf("%+v, %v", ch, err)
	}
}

func TestReadStateFollowsTurns(t *testing.T) {
	read := &ev{Payload: &heddlev1.Event_ReadStateChanged{ReadStateChanged: &heddlev1.ReadStateChanged{ReadState: &heddlev1.ReadState{}}}}
	turn := func(id string) []*ev { return []*ev{accepted(id, "q"), started(id, 1), completed(id)} }
	st, _, err := fold(t, plus(plus([]*ev{created()}, turn("t")...), turn("u")...)...)
	if err != nil || st.Row.GetReadState().GetFirstUnreadTurnId() != "t" || st.Row.GetReadState().GetRevision() != 7 {
		t.Errorf("after two turns: %v, %v", st.Row.GetReadState(), err)
	}
	st, _, err = fold(t, plus(plus(plus([]*ev{created()}, turn("t")...), read), turn("u")...)...)
	if err != nil || st.Row.GetReadState().GetFirstUnreadTurnId() != "u" {
		t.Errorf("after reading: %v, %v", st.Row.GetReadState(), err)
	}
}

// TestPlacesStay: where a folder led first is what counts, for each host.
func TestPlacesStay(t *testing.T) {
	at := func(path, real, host string) *heddlev1.Place {
		return &heddlev1.Place{Path: path, Real: real, Host: host}
	}
	got := thread.MergePlaces([]*heddlev1.Place{at("/a", "/a", "1")}, []*heddlev1.Place{at("/a", "/out", "1"), at("/a", "/x", "2"), at("/b", "/b", "1")})
	var text []string
	for _, p := range got {
		text = append(text, p.GetPath()+">"+p.GetReal())
	}
	if s := strings.Join(text, " "); s != "/a>/a /a>/x /b>/b" {
		t.Errorf("places %s", s)
	}
}
