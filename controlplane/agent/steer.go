package agent

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/eventlog"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// maxSteers bounds the inputs that wait in one turn.
const maxSteers = 128

// errSteered ends an open model request because new input came.
var errSteered = errors.New("new input")

// steer accepts input durably, together with the events that belong to it. An
// open model request is dropped; it is asked again with the input.
func (t *turn) steer(ctx context.Context, in *heddlev1.UserMessage, with []*heddlev1.Event) error {
	recorded, err := t.enqueue(in, with)
	if err != nil {
		return err
	}
	if err = recorded.Wait(ctx); err != nil && ctx.Err() == nil {
		t.withdraw(in)
	}
	return err
}

// enqueue lets the input wait in the turn and appends its acceptance to the log.
func (t *turn) enqueue(in *heddlev1.UserMessage, with []*heddlev1.Event) (*eventlog.Pending, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || t.ctx.Err() != nil {
		return nil, noActiveTurn("steer")
	}
	if k := t.row.GetKind(); !steerable(k) {
		return nil, errdefs.New(errdefs.TurnNotSteerable, "cannot steer a %s turn", k).With("kind", k)
	}
	if len(t.inputs) >= maxSteers {
		return nil, errdefs.New(errdefs.Overloaded, "%d inputs wait in this turn already", maxSteers)
	}
	if len(in.GetParts()) > 0 {
		with = append(with, steerAccepted(t.row.GetId(), newID(), in))
		t.inputs = append(t.inputs, in)
		if t.dropRequest != nil {
			t.dropRequest(errSteered)
		}
	}
	return t.lt.append(with...), nil
}

// withdraw takes an input back that could not be accepted. One that a step has
// taken meanwhile, or that the log has after all, is shown.
func (t *turn) withdraw(in *heddlev1.UserMessage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inputs = slices.DeleteFunc(t.inputs, func(i *heddlev1.UserMessage) bool { return i == in })
}

// takeInputs takes the inputs that wait. With closing set, and none waiting, it
// closes the turn for further ones.
func (t *turn) takeInputs(closing bool) (inputs []*heddlev1.UserMessage, closed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	inputs, t.inputs = t.inputs, nil
	if closing && len(inputs) == 0 {
		t.closed = true
	}
	return inputs, t.closed
}

// close refuses further input and returns what still waits.
func (t *turn) close() []*heddlev1.UserMessage {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	inputs := t.inputs
	t.inputs = nil
	return inputs
}

// steerInstead gives a turn request to the turn that already runs.
func (lt *live) steerInstead(ctx context.Context, t *turn, r TurnRequest) (*TurnAnswer, error) {
	changed, events := lt.overlay(r.Settings)
	if len(r.Input.GetParts()) == 0 && len(events) == 0 {
		if t.ending() {
			return nil, noActiveTurn("steer")
		}
		return &TurnAnswer{Turn: proto.CloneOf(t.snapshot()), Steered: true}, nil
	}
	if err := lt.change(ctx, changed, func() error { return t.steer(ctx, r.Input, events) }); err != nil {
		return nil, err
	}
	return &TurnAnswer{Turn: proto.CloneOf(t.snapshot()), Steered: true, Changed: changed}, nil
}
