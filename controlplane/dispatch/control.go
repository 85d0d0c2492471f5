package dispatch

import (
	"context"

	"github.com/heddle-dev/heddle/controlplane/lease"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

// control runs f under the lock on an action that has not ended.
func (d *Dispatcher) control(a *action, f func(*action)) error {
	d.mu.Lock()
	defer d.unlock(true)
	if a.state >= stateEnded {
		return ErrEnded
	}
	f(a)
	return nil
}

// stop passes on what the flags of the action ask for: from the queue it is
// taken, else its executor is told, now or when it comes back. mu is held.
func (d *Dispatcher) stop(a *action) {
	switch {
	case a.state == stateWaiting:
		d.conclude(a, a.cancelledResult("cancelled before an executor took it"), nil)
	case a.terminated:
		d.sendControl(a, &executorv1.ActionControl{Control: &executorv1.ActionControl_Terminate{Terminate: &executorv1.Terminate{}}})
	case a.interrupted:
		d.sendControl(a, &executorv1.ActionControl{Control: &executorv1.ActionControl_Interrupt{Interrupt: &executorv1.Interrupt{}}})
	}
}

// sendControl posts a control when the action's executor is there; what must not
// get lost is repeated by resendControls.
func (d *Dispatcher) sendControl(a *action, c *executorv1.ActionControl) {
	s := d.sessionOf(a)
	if s == nil || !a.live() {
		return
	}
	c.ActionId, c.LeaseId, c.Epoch = a.id, a.leaseID, a.epoch
	d.post(s, &executorv1.ConnectResponse{Message: &executorv1.ConnectResponse_Control{Control: c}})
}

// resendControls repeats on a new session what the executor may have missed.
// taken is the last write of standard input that it says it has.
func (d *Dispatcher) resendControls(s *session, a *action, taken uint64) {
	kept := a.stdinKept[:0]
	for _, w := range a.stdinKept {
		if w.msg.GetWriteSeq() <= taken {
			if s.ex.reg.GetReportsInput() {
				kept = append(kept, w) // there, and not read yet
				continue
			}
			a.stdinBytes -= len(w.msg.GetData())
			continue
		}
		w.session, w.round = s, s.round
		kept = append(kept, w)
		d.sendControl(a, &executorv1.ActionControl{Control: &executorv1.ActionControl_Stdin{Stdin: w.msg}})
	}
	a.stdinKept = kept
	if a.resize != nil {
		d.sendControl(a, &executorv1.ActionControl{Control: &executorv1.ActionControl_Resize{Resize: a.resize}})
	}
	if a.interrupted || a.terminated {
		d.stop(a)
	}
}

// stdin queues one write. It waits while too many bytes are not known to be read
// by the process, or received by an executor that does not say what is read.
func (d *Dispatcher) stdin(ctx context.Context, a *action, data []byte, closeAfter bool) error {
	for {
		d.mu.Lock()
		if a.state >= stateEnded {
			d.mu.Unlock()
			return ErrEnded
		}
		if a.stdinBytes+len(data) <= stdinBound {
			break
		}
		// An early renewal round makes the executor answer, which frees the bytes.
		if s := d.sessionOf(a); s != nil && !s.inFlight && !s.ex.reg.GetReportsInput() {
			d.renew(s, d.cfg.Clock())
		}
		room := a.stdinRoom
		d.unlock(true)
		select {
		case <-room:
		case <-a.done:
			return ErrEnded
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	defer d.unlock(true)
	a.stdinSeq++
	w := sentStdin{msg: &executorv1.Stdin{WriteSeq: a.stdinSeq, Data: append([]byte(nil), data...), Close: closeAfter}}
	if s := d.sessionOf(a); s != nil && a.live() {
		w.session, w.round = s, s.round
		d.sendControl(a, &executorv1.ActionControl{Control: &executorv1.ActionControl_Stdin{Stdin: w.msg}})
	}
	a.stdinKept = append(a.stdinKept, w)
	a.stdinBytes += len(data)
	return nil
}

// dropStdin forgets the writes that an acknowledged round proves received: those
// sent before that round was.
func (a *action) dropStdin(s *session, acked uint64) {
	a.dropInput(func(w sentStdin) bool { return w.session == s && w.round < acked })
}

// dropInput forgets the first writes for which done holds, which makes room.
func (a *action) dropInput(done func(sentStdin) bool) {
	n := 0
	for _, w := range a.stdinKept {
		if !done(w) {
			break
		}
		a.stdinBytes -= len(w.msg.GetData())
		n++
	}
	if n > 0 {
		a.stdinKept = append([]sentStdin(nil), a.stdinKept[n:]...)
		close(a.stdinRoom)
		a.stdinRoom = make(chan struct{})
	}
}

func (d *Dispatcher) postRevoke(l lease.Lease, reason string) {
	if ex := d.executors[l.Holder]; ex != nil && ex.session != nil {
		d.post(ex.session, &executorv1.ConnectResponse{Message: &executorv1.ConnectResponse_Revoke{
			Revoke: &executorv1.LeaseRevoke{LeaseId: l.ID, Epoch: l.Epoch, Reason: reason},
		}})
	}
}
