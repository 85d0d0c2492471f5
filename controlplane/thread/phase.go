package thread

import (
	"fmt"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Phase is where a turn stands.
type Phase int

// Phases of a turn. A turn is ended in the last three.
const (
	PhaseNone Phase = iota
	PhaseAccepted
	PhaseRunning
	PhaseModelStep
	PhaseActionStep
	PhaseWaitingApproval
	PhaseWaitingInput
	PhaseCompleted
	PhaseInterrupted
	PhaseFailed
	phaseCount
)

var phaseNames = [phaseCount]string{"none", "accepted", "running", "model step", "action step", "waiting for approval", "waiting for input", "completed", "interrupted", "failed"}

func (p Phase) String() string {
	if p < 0 || p >= phaseCount {
		return fmt.Sprintf("phase %d", int(p))
	}
	return phaseNames[p]
}

// Ended reports whether no move leads out of the phase.
func (p Phase) Ended() bool { return p >= PhaseCompleted && p <= PhaseFailed }

// Active reports whether the turn has started and not ended.
func (p Phase) Active() bool { return p >= PhaseRunning && p <= PhaseWaitingInput }

// TransitionError is an illegal move of a turn.
type TransitionError struct {
	From, To Phase
}

func (e *TransitionError) Error() string {
	return fmt.Sprintf("turn cannot go from %s to %s", e.From, e.To)
}

// To moves the turn and returns the new phase, or the old one with a
// *TransitionError. Moving an active turn to running is a new attempt, after
// its control plane was replaced.
func (p Phase) To(next Phase) (Phase, error) {
	if p.allows(next) {
		return next, nil
	}
	return p, &TransitionError{From: p, To: next}
}

func (p Phase) allows(next Phase) bool {
	switch {
	case next <= PhaseNone || next >= phaseCount || p < PhaseNone || p >= PhaseCompleted:
		return false
	case p == PhaseNone:
		return next == PhaseAccepted
	case p == PhaseAccepted:
		// A turn can be interrupted or fail before it ran; it cannot complete.
		return next == PhaseRunning || next == PhaseInterrupted || next == PhaseFailed
	case next == PhaseAccepted:
		return false
	case p == PhaseRunning:
		return true
	case p == PhaseWaitingApproval || p == PhaseWaitingInput:
		// An answer goes back to a step; a turn never completes while it asks.
		return next != PhaseCompleted
	}
	return true
}

// PhaseOf returns the phase that a turn's row shows. Steps within a running
// turn are not recorded in the row, so it never returns one of them.
func PhaseOf(t *heddlev1.Turn) Phase {
	switch t.GetStatus() {
	case heddlev1.TurnStatus_TURN_STATUS_COMPLETED:
		return PhaseCompleted
	case heddlev1.TurnStatus_TURN_STATUS_INTERRUPTED:
		return PhaseInterrupted
	case heddlev1.TurnStatus_TURN_STATUS_FAILED:
		return PhaseFailed
	case heddlev1.TurnStatus_TURN_STATUS_IN_PROGRESS:
		if t.GetStartedAtMs() > 0 {
			return PhaseRunning
		}
		return PhaseAccepted
	}
	return PhaseNone
}
