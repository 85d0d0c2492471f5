package thread

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// waiting sets what the open questions mean for the thread's status. A client
// tool that runs is no question to a person.
func (s *State) waiting(ch *Changes) {
	approval, input := false, false
	for _, a := range s.Approvals {
		switch {
		case a.GetReviewer() != "":
			// No person is waited for.
		case a.GetUserInput() != nil:
			input = true
		case a.GetDynamicTool() == nil:
			approval = true
		}
	}
	if s.Row.GetWaitingOnApproval() == approval && s.Row.GetWaitingOnUserInput() == input {
		return
	}
	row := s.row(ch)
	row.WaitingOnApproval, row.WaitingOnUserInput = approval, input
}

// reverted hides a range of turns that ends with the last one.
func (s *State) reverted(ev *heddlev1.Event, p *heddlev1.ThreadReverted, ch *Changes) error {
	if open := s.Row.GetActiveTurnId(); open != "" {
		return fmt.Errorf("fold: turns cannot be taken back while turn %s is open", open)
	}
	if p.GetFirstOrdinal() < 1 || p.GetLastOrdinal() != s.Row.GetTurnCount() || p.GetFirstOrdinal() > p.GetLastOrdinal() {
		return fmt.Errorf("fold: turns %d to %d of %d cannot be taken back", p.GetFirstOrdinal(), p.GetLastOrdinal(), s.Row.GetTurnCount())
	}
	row := s.row(ch)
	row.Reverted = append(row.GetReverted(), &heddlev1.RevertedTurns{FirstOrdinal: p.GetFirstOrdinal(), LastOrdinal: p.GetLastOrdinal(), Seq: ev.GetSeq()})
	row.Preview = p.GetPreview()
	row.State = heddlev1.ThreadState_THREAD_STATE_IDLE
	row.UpdatedAtMs = max(row.UpdatedAtMs, ev.GetTimeMs())
	s.readTo(ev, ch)
	return nil
}

// lastOrdinal is that of the newest turn that was not taken back.
func (s *State) lastOrdinal() int64 {
	n := s.Row.GetTurnCount()
	// Ranges end with what was the last turn then, so later ones are newer.
	for i := len(s.Row.GetReverted()) - 1; i >= 0; i-- {
		if r := s.Row.GetReverted()[i]; r.GetLastOrdinal() >= n && r.GetFirstOrdinal() <= n {
			n = r.GetFirstOrdinal() - 1
		}
	}
	return n
}

func (s *State) readState(ev *heddlev1.Event, p *heddlev1.ReadStateChanged, ch *Changes) {
	next := proto.CloneOf(p.GetReadState())
	if next == nil {
		next = &heddlev1.ReadState{}
	}
	next.Revision = ev.GetSeq()
	s.row(ch).ReadState = next
	p.ReadState = proto.CloneOf(next)
}

// readTo marks everything as read.
func (s *State) readTo(ev *heddlev1.Event, ch *Changes) {
	s.row(ch).ReadState = &heddlev1.ReadState{Revision: ev.GetSeq()}
}

// unread notes a turn that ended and was not read yet.
func (s *State) unread(ev *heddlev1.Event, turnID string, ch *Changes) {
	next := &heddlev1.ReadState{Revision: ev.GetSeq(), FirstUnreadTurnId: turnID, FromStart: s.Row.GetReadState().GetFromStart()}
	if first := s.Row.GetReadState().GetFirstUnreadTurnId(); first != "" {
		next.FirstUnreadTurnId = first
	}
	s.row(ch).ReadState = next
}

// maxPlaces bounds what is recorded of a thread's folders; the oldest go first.
const maxPlaces = 256

// MergePlaces adds places of folders of which nothing is known on their host.
func MergePlaces(known, seen []*heddlev1.Place) []*heddlev1.Place {
	out := slices.Clone(known)
	for _, p := range seen {
		if !slices.ContainsFunc(out, func(k *heddlev1.Place) bool { return k.GetPath() == p.GetPath() && k.GetHost() == p.GetHost() }) {
			out = append(out, p)
		}
	}
	return out[max(0, len(out)-maxPlaces):]
}
