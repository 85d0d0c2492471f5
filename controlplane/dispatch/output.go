package dispatch

import (
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

// kick gets an action's queue consumed and ends the handle when its result is
// here and the queue is empty; mu is held. The consumer runs on a goroutine of
// its own that lives while there is something to consume, so that a slow one
// holds up nobody else; an action without pending output ends right here.
func (d *Dispatcher) kick(a *action) {
	if !a.claimed || a.draining || a.state == stateDone {
		return
	}
	if a.spec.Output == nil || a.failed != nil {
		d.discard(a)
	}
	if len(a.queue) > 0 {
		a.draining = true
		go d.drain(a)
		return
	}
	d.settle(a)
}

// settle ends the handle of an ended action whose output is consumed.
func (d *Dispatcher) settle(a *action) {
	if a.state != stateEnded {
		return
	}
	d.finish(a)
	if a.acked && a.reported {
		if ex := d.executors[a.executorID]; ex != nil && ex.session != nil {
			d.postResultAck(ex.session, a.id)
		}
	}
}

// discard consumes what is queued without a consumer.
func (d *Dispatcher) discard(a *action) {
	for _, c := range a.queue {
		a.took(c)
	}
	a.queue, a.queued = nil, 0
	if s := d.sessionOf(a); s != nil && a.live() {
		d.postOutputAcks(s, a)
	}
}

// drain hands the queue to the consumer until it is empty.
func (d *Dispatcher) drain(a *action) {
	d.mu.Lock()
	for len(a.queue) > 0 && a.failed == nil && a.state != stateDone {
		c := a.queue[0]
		a.queue[0] = nil
		a.queue = a.queue[1:]
		d.unlock(true)
		err := a.spec.Output(c)
		d.mu.Lock()
		a.queued -= int64(len(c.GetData()))
		a.took(c)
		if err != nil {
			a.failed, a.terminated = err, true
			if a.live() {
				d.stop(a)
			}
			break
		}
		st := &a.output[c.GetStream()]
		if s := d.sessionOf(a); s != nil && a.live() && (len(a.queue) == 0 || st.consumed-st.acked >= d.cfg.Window/4) {
			d.postOutputAcks(s, a)
		}
	}
	a.draining = false
	d.kick(a)
	d.unlock(true)
}

// took moves the consumed position past a chunk.
func (a *action) took(c *executorv1.OutputChunk) {
	st := &a.output[c.GetStream()]
	st.consumed = max(st.consumed, c.GetOffset()+int64(len(c.GetData())))
}

// sessionOf is the session that an action's messages go to; nil while there is
// none.
func (d *Dispatcher) sessionOf(a *action) *session {
	if ex := d.executors[a.executorID]; ex != nil {
		return ex.session
	}
	return nil
}

// postOutputAcks tells the executor what was consumed of an action's streams.
func (d *Dispatcher) postOutputAcks(s *session, a *action) {
	for i := 1; i < len(a.output); i++ {
		if st := &a.output[i]; a.claimed && st.known && st.consumed > 0 {
			st.acked = st.consumed
			d.postOutputAck(s, a.id, int32(i), st.consumed)
		}
	}
}

func (d *Dispatcher) postOutputAck(s *session, id string, stream int32, offset int64) {
	d.post(s, &executorv1.ConnectResponse{Message: &executorv1.ConnectResponse_OutputAck{
		OutputAck: &executorv1.OutputAck{ActionId: id, Stream: stream, Offset: offset},
	}})
}
