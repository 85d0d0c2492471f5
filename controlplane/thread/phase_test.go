package thread_test

import (
	"errors"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/thread"
)

// moves holds every legal move of a turn; all other pairs are refused.
func moves() map[thread.Phase][]thread.Phase {
	ended := []thread.Phase{thread.PhaseCompleted, thread.PhaseInterrupted, thread.PhaseFailed}
	active := []thread.Phase{thread.PhaseRunning, thread.PhaseModelStep, thread.PhaseActionStep, thread.PhaseWaitingApproval, thread.PhaseWaitingInput}
	cut := []thread.Phase{thread.PhaseInterrupted, thread.PhaseFailed}
	all := append(append([]thread.Phase{}, active...), ended...)
	asking := append(append([]thread.Phase{}, active...), cut...)
	return map[thread.Phase][]thread.Phase{
		thread.PhaseNone:            {thread.PhaseAccepted},
		thread.PhaseAccepted:        append([]thread.Phase{thread.PhaseRunning}, cut...),
		thread.PhaseRunning:         all,
		thread.PhaseModelStep:       all,
		thread.PhaseActionStep:      all,
		thread.PhaseWaitingApproval: asking,
		thread.PhaseWaitingInput:    asking,
	}
}

func TestEveryPairOfPhases(t *testing.T) {
	legal := map[[2]thread.Phase]bool{}
	for from, tos := range moves() {
		for _, to := range tos {
			legal[[2]thread.Phase{from, to}] = true
		}
	}
	for from := thread.PhaseNone - 1; from <= thread.PhaseFailed+1; from++ {
		for to := thread.PhaseNone - 1; to <= thread.PhaseFailed+1; to++ {
			got, err := from.To(to)
			if legal[[2]thread.Phase{from, to}] {
				if err != nil || got != to {
					t.Errorf("%v to %v: %v, %v", from, to, got, err)
				}
				continue
			}
			var illegal *thread.TransitionError
			if !errors.As(err, &illegal) || got != from || illegal.From != from || illegal.To != to {
				t.Errorf("%v to %v: got %v, %v, want a refusal", from, to, got, err)
			}
		}
	}
}

func TestEndedAndActive(t *testing.T) {
	for p := thread.PhaseNone; p <= thread.PhaseFailed; p++ {
		ended := p == thread.PhaseCompleted || p == thread.PhaseInterrupted || p == thread.PhaseFailed
		active := !ended && p != thread.PhaseNone && p != thread.PhaseAccepted
		if p.Ended() != ended || p.Active() != active {
			t.Errorf("%v: ended %v, active %v", p, p.Ended(), p.Active())
		}
	}
}
