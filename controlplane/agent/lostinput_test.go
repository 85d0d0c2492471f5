package agent

import (
	"testing"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// I1: an input whose item was lost with a failed commit still waits when one that
// was accepted after it is shown.
func TestLostInputWaits(t *testing.T) {
	said := func(s string) *heddlev1.UserMessage {
		return &heddlev1.UserMessage{Parts: []*heddlev1.InputPart{{Part: &heddlev1.InputPart_Text{Text: s}}}}
	}
	p := &resumption{hooks: map[string]*heddlev1.HookRun{}, first: said("a"), steers: []*heddlev1.UserMessage{said("b"), said("c")}}
	p.inputShown(said("a"))
	p.inputShown(said("c"))
	if p.first != nil || len(p.steers) != 1 || saidIn(p.steers[0]) != "b" {
		t.Errorf("first %v, waiting %v", p.first, p.steers)
	}
	p.inputShown(said("b"))
	if len(p.steers) != 0 {
		t.Errorf("waiting %v", p.steers)
	}
}
