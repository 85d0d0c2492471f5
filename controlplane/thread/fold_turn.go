package thread

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// activeTurn returns the open turn that the event belongs to.
func (s *State) activeTurn(ev *heddlev1.Event, what string) (*heddlev1.Turn, error) {
	t := s.Turns[ev.GetTurnId()]
	if t == nil {
		return nil, fmt.Errorf("fold: %s belongs to turn %q, which is not open", what, ev.GetTurnId())
	}
	return t, nil
}

func (s *State) setTurn(t *heddlev1.Turn, ch *Changes) {
	if PhaseOf(t).Ended() {
		delete(s.Turns, t.GetId())
	} else {
		s.Turns[t.GetId()] = t
	}
	put(&ch.Turns, t.GetId(), t)
}

func (s *State) turnAccepted(ev *heddlev1.Event, p *heddlev1.TurnAccepted, ch *Changes) error {
	in := p.GetTurn()
	if err := checkID("a turn", in.GetId()); err != nil {
		return err
	}
	if in.GetId() != ev.GetTurnId() {
		return fmt.Errorf("fold: accepted turn %q is not the event's turn %q", in.GetId(), ev.GetTurnId())
	}
	if open := s.Row.GetActiveTurnId(); open != "" {
		return fmt.Errorf("fold: turn %s cannot be accepted while turn %s is open", in.GetId(), open)
	}
	if err := s.takenUp(p.GetQueuedId(), ch); err != nil {
		return err
	}
	row := s.row(ch)
	row.TurnCount++
	row.ActiveTurnId = in.GetId()
	row.State = heddlev1.ThreadState_THREAD_STATE_ACTIVE
	row.UpdatedAtMs = max(row.UpdatedAtMs, ev.GetTimeMs())
	if row.Preview == "" {
		row.Preview = previewOf(p.GetInput())
	}
	t := proto.CloneOf(in)
	t.ThreadId, t.Ordinal, t.FirstSeq, t.LastSeq = s.Row.GetId(), row.TurnCount, ev.GetSeq(), 0
	t.Status = heddlev1.TurnStatus_TURN_STATUS_IN_PROGRESS
	t.StartedAtMs, t.CompletedAtMs = 0, 0
	if t.AcceptedAtMs == 0 {
		t.AcceptedAtMs = ev.GetTimeMs()
	}
	s.setTurn(t, ch)
	p.Turn = proto.CloneOf(t)
	return nil
}

func (s *State) turnStarted(ev *heddlev1.Event, p *heddlev1.TurnStarted, ch *Changes) error {
	t, err := s.activeTurn(ev, "turn/started")
	if err != nil {
		return err
	}
	phase := PhaseOf(t)
	if phase == PhaseRunning && p.GetTurn().GetAttempt() <= t.GetAttempt() {
		return fmt.Errorf("fold: turn %s has started already", t.GetId())
	}
	if _, err := phase.To(PhaseRunning); err != nil {
		return fmt.Errorf("fold: turn %s: %w", t.GetId(), err)
	}
	next := proto.CloneOf(t)
	next.Attempt = max(p.GetTurn().GetAttempt(), t.GetAttempt(), 1)
	if phase == PhaseAccepted {
		next.StartedAtMs = firstSet(p.GetTurn().GetStartedAtMs(), ev.GetTimeMs())
	}
	s.setTurn(next, ch)
	p.Turn = proto.CloneOf(next)
	row := s.row(ch)
	row.UpdatedAtMs = max(row.UpdatedAtMs, ev.GetTimeMs())
	return nil
}

func (s *State) turnSettingsChanged(ev *heddlev1.Event, p *heddlev1.TurnSettingsChanged, ch *Changes) error {
	t, err := s.activeTurn(ev, "a change of settings")
	if err != nil {
		return err
	}
	next := proto.CloneOf(t)
	next.Overrides = p.GetOverrides()
	s.setTurn(next, ch)
	return nil
}

func (s *State) turnCompleted(ev *heddlev1.Event, p *heddlev1.TurnCompleted, ch *Changes) error {
	t, err := s.activeTurn(ev, "turn/completed")
	if err != nil {
		return err
	}
	in := p.GetTurn()
	if _, err := PhaseOf(t).To(PhaseOf(in)); err != nil {
		return fmt.Errorf("fold: turn %s: %w", t.GetId(), err)
	}
	if err := s.nothingOpen(t.GetId()); err != nil {
		return err
	}
	next := proto.CloneOf(t)
	next.Status, next.Error, next.InterruptCause = in.GetStatus(), in.GetError(), in.GetInterruptCause()
	next.CompletedAtMs = firstSet(in.GetCompletedAtMs(), ev.GetTimeMs())
	next.DurationMs = in.GetDurationMs()
	if next.DurationMs == 0 && next.StartedAtMs > 0 {
		next.DurationMs = max(0, next.CompletedAtMs-next.StartedAtMs)
	}
	next.LastSeq, next.Diff = ev.GetSeq(), in.GetDiff()
	s.setTurn(next, ch)
	p.Turn = proto.CloneOf(next)

	if next.Status == heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED {
		s.holdQueue(ch)
	}
	row := s.row(ch)
	row.ActiveTurnId = ""
	row.Grants = AfterTurn(row.GetGrants(), next.GetId())
	row.UpdatedAtMs = max(row.UpdatedAtMs, ev.GetTimeMs())
	row.State = heddlev1.ThreadState_THREAD_STATE_IDLE
	if next.Status == heddlev1.TurnStatus_TURN_STATUS_FAILED {
		row.State = heddlev1.ThreadState_THREAD_STATE_SYSTEM_ERROR
	}
	s.unread(ev, next.GetId(), ch)
	return nil
}

// nothingOpen refuses the end of a turn that still has open parts. A command
// may outlive its turn as a background terminal.
func (s *State) nothingOpen(turnID string) error {
	for id, it := range s.Items {
		if it.Item.GetTurnId() == turnID && it.Item.GetCommandExecution() == nil {
			return fmt.Errorf("fold: turn %s cannot end while item %s is open", turnID, id)
		}
	}
	for id, a := range s.Approvals {
		if a.GetTurnId() == turnID {
			return fmt.Errorf("fold: turn %s cannot end while approval %s is pending", turnID, id)
		}
	}
	return nil
}

func firstSet(a, b int64) int64 {
	if a != 0 {
		return a
	}
	return b
}
