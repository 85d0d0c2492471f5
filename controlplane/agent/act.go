package agent

import (
	"context"
	"errors"
	"time"

	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// act runs one short action for the thread to its end. When ctx ends first the
// action is interrupted and given a moment: a patch that is being written must
// not be reported as unknown without need.
func (lt *live) act(ctx context.Context, action *executorv1.Action) (*executorv1.ActionResult, error) {
	return lt.actUnder(ctx, action, 0)
}

// actUnder is act for an action that may run under one lease only; 0 for any.
func (lt *live) actUnder(ctx context.Context, action *executorv1.Action, epoch uint64) (*executorv1.ActionResult, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if action.GetActionId() == "" {
		action.ActionId = newID()
	}
	if action.GetAttempt() == 0 {
		action.Attempt = 1
	}
	if err := lt.pin(ctx, action); err != nil {
		return nil, err
	}
	// The dispatcher kills what its context ends; here an interrupt comes first.
	h, err := lt.agent.cfg.Dispatcher.Start(context.WithoutCancel(ctx), Spec{ThreadID: lt.id, Principal: lt.principal, Action: action, Epoch: epoch})
	if err != nil {
		return nil, err
	}
	res, err := h.Result(ctx)
	if ctx.Err() != nil && err != nil && !suspended(ctx) {
		if action.GetCommitPatch() == nil {
			// Nothing was changed, so nobody waits for the end.
			return nil, errors.Join(context.Cause(ctx), h.Terminate(context.WithoutCancel(ctx)))
		}
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
		defer cancel()
		if ierr := h.Interrupt(after); ierr != nil {
			lt.agent.cfg.Logger.Warn("interrupt action", "thread", lt.id, "action", action.GetActionId(), "error", ierr)
		}
		if res, err = h.Result(after); err != nil {
			err = errdefs.New(errdefs.UnknownOutcome, "the turn was interrupted before the executor answered")
		}
	}
	if err == nil {
		// The result is in the log's queue soon after; what is not acknowledged is
		// only shown again.
		time.AfterFunc(settleAfter, h.Settle)
	}
	return res, err
}

// failure is why an action gave no usable result; nil when it did.
func failure(res *executorv1.ActionResult, err error) *heddlev1.ActionError {
	if err != nil {
		return actionError(err)
	}
	return res.GetError()
}
