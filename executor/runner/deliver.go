package runner

import (
	"time"

	"github.com/heddle-dev/heddle/executor/output"
	"github.com/heddle-dev/heddle/proto/failpoint"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

// delivery is what was sent of an action on the present session.
type delivery struct {
	link    Link
	dead    bool // sending on link failed; the next session starts over
	credits *output.Credits
	started bool
	input   uint64 // the last write that was said to be taken
	result  bool
}

// deliver sends an action's start, output and result, on every session again
// what is not acknowledged, until the result is.
func (r *Runner) deliver(a *action) {
	var d delivery
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	defer a.discard()
	for {
		if link := r.current(); link != d.link {
			started := d.started && link != nil
			d = delivery{link: link, credits: d.credits, started: started}
			if d.credits != nil && link != nil {
				d.credits.Reset(link.Window())
			}
		}
		var wait time.Duration
		if d.link != nil && !d.dead {
			w, err := r.push(a, &d)
			d.dead, wait = err != nil, w
		}
		if wait <= 0 {
			wait = time.Hour
		}
		timer.Reset(wait)
		select {
		case <-a.wake:
		case <-timer.C:
		case <-a.acked:
			return
		case <-r.stop:
			return
		}
	}
}

// push sends what may be sent now. wait is when to look again by itself.
func (r *Runner) push(a *action, d *delivery) (wait time.Duration, err error) {
	a.mu.Lock()
	started, pid, streams, result := a.started, a.pid, a.streams, a.result
	if a.again {
		a.again, d.started, d.result = false, false, false
	}
	a.mu.Unlock()
	if started && !d.started {
		err := d.link.Send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_ActionStarted{
			ActionStarted: &executorv1.ActionStarted{ActionId: a.id, LeaseId: a.leaseID, Epoch: a.epoch, Pid: pid}}})
		if err != nil {
			return 0, err
		}
		d.started = true
	}
	if err := pushInput(a, d); err != nil {
		return 0, err
	}
	if a.network != nil {
		if err := a.network.push(a, d.link); err != nil {
			return 0, err
		}
	}
	if streams != nil {
		if d.credits == nil {
			d.credits = output.NewCredits(streams)
			d.credits.Reset(d.link.Window())
		}
		if wait, err := pushOutput(a, d); err != nil || !d.credits.Done() {
			return wait, err
		}
	}
	if result == nil || d.result {
		return 0, nil
	}
	if err := d.link.Send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_Result{Result: result}}); err != nil {
		return 0, err
	}
	failpoint.Hit("executor/delivered")
	d.result = true
	select {
	case <-a.delivered:
	default:
		close(a.delivered)
	}
	return 0, nil
}

// pushInput says what of its input the process has.
func pushInput(a *action, d *delivery) error {
	if a.input == nil {
		return nil
	}
	n := a.input.taken()
	if n <= d.input {
		return nil
	}
	d.input = n
	return d.link.Send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_InputTaken{
		InputTaken: &executorv1.InputTaken{ActionId: a.id, LeaseId: a.leaseID, Epoch: a.epoch, WriteSeq: n}}})
}

// pushOutput sends chunks until the window is full or there is nothing to send.
func pushOutput(a *action, d *delivery) (wait time.Duration, err error) {
	for {
		chunk, ok, wait, err := d.credits.Next(time.Now())
		if err != nil || !ok {
			return wait, err
		}
		err = d.link.Send(&executorv1.ConnectRequest{Message: &executorv1.ConnectRequest_Output{Output: &executorv1.OutputChunk{
			ActionId: a.id, LeaseId: a.leaseID, Epoch: a.epoch, Stream: int32(chunk.Stream) + 1,
			Offset: chunk.Offset, Data: chunk.Data, Dropped: chunk.Dropped,
		}}})
		if err != nil {
			return 0, err
		}
	}
}

// discard frees an action's output.
func (a *action) discard() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.streams {
		s.Discard()
	}
}
