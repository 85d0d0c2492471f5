package runner

import (
	"io"
	"sync"
	"syscall"
	"time"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

const (
	// termAfter and killAfter are the steps of an interrupt, from its start.
	termAfter = 300 * time.Millisecond
	killAfter = time.Second
	// maxInput bounds the standard input that waits for a process to read it.
	maxInput = 16 << 20
)

// control acts on a running action. One under another epoch is dropped: it was
// meant for an action that this lease does not have.
func (r *Runner) control(m *executorv1.ActionControl) {
	r.mu.Lock()
	a := r.actions[m.GetActionId()]
	r.mu.Unlock()
	if a == nil || a.leaseID != m.GetLeaseId() || a.epoch != m.GetEpoch() {
		r.log.Debug("control of an action that is not here", "action_id", m.GetActionId(), "epoch", m.GetEpoch())
		return
	}
	a.mu.Lock()
	proc, in := a.proc, a.input
	if a.result != nil {
		a.mu.Unlock()
		return
	}
	if proc == nil && m.GetStdin() == nil && m.GetResize() == nil {
		a.interrupted = true
	}
	a.mu.Unlock()
	switch c := m.GetControl().(type) {
	case *executorv1.ActionControl_Stdin:
		if in != nil {
			in.put(c.Stdin)
		}
	case *executorv1.ActionControl_Resize:
		if proc != nil {
			r.spawn(func() { _ = proc.Resize(size(c.Resize.GetRows(), defaultRows), size(c.Resize.GetCols(), defaultCols)) })
		}
	case *executorv1.ActionControl_Interrupt:
		if proc == nil {
			a.cancel(endedf(codeCancelled, "the action was interrupted before its process ran"))
			return
		}
		r.spawn(func() { interrupt(proc) })
	case *executorv1.ActionControl_Terminate:
		if proc == nil {
			a.cancel(endedf(codeCancelled, "the action was ended before its process ran"))
			return
		}
		r.spawn(func() { _ = proc.Kill() })
	}
}

// interrupt asks a process to end, then insists.
func interrupt(proc Process) {
	_ = proc.Signal(syscall.SIGINT)
	if goneWithin(proc, termAfter) {
		return
	}
	_ = proc.Signal(syscall.SIGTERM)
	if goneWithin(proc, killAfter-termAfter) {
		return
	}
	_ = proc.Kill()
}

func goneWithin(proc Process, d time.Duration) bool {
	late := time.NewTimer(d)
	defer late.Stop()
	select {
	case <-proc.Done():
		return true
	case <-late.C:
		return false
	}
}

// input feeds a process's standard input in the order of write_seq, from a
// goroutine of its own, so that a process that does not read holds up nothing.
type input struct {
	w    io.WriteCloser
	over func() // called when too much input waits

	mu      sync.Mutex
	cond    sync.Cond
	queue   [][]byte
	waiting int
	seq     uint64
	closing bool
	stopped bool
	overrun bool
}

func newInput(w io.WriteCloser, over func()) *input {
	in := &input{w: w, over: over}
	in.cond.L = &in.mu
	go in.feed()
	return in
}

// put queues one write. One whose number was taken already is ignored.
func (in *input) put(m *executorv1.Stdin) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if m.GetWriteSeq() <= in.seq || in.closing || in.stopped {
		return
	}
	in.seq = m.GetWriteSeq()
	if in.waiting+len(m.GetData()) > maxInput {
		in.overrun, in.stopped = true, true
		in.cond.Signal()
		go in.over()
		return
	}
	if len(m.GetData()) > 0 {
		in.queue = append(in.queue, m.GetData())
		in.waiting += len(m.GetData())
	}
	in.closing = m.GetClose()
	in.cond.Signal()
}

func (in *input) feed() {
	defer in.w.Close()
	for {
		in.mu.Lock()
		for len(in.queue) == 0 && !in.closing && !in.stopped {
			in.cond.Wait()
		}
		if in.stopped || len(in.queue) == 0 {
			in.mu.Unlock()
			return
		}
		data := in.queue[0]
		in.queue = in.queue[1:]
		in.mu.Unlock()
		_, err := in.w.Write(data)
		in.mu.Lock()
		in.waiting -= len(data)
		if err != nil { // the process closed its input: the rest has no reader
			in.stopped = true
		}
		in.mu.Unlock()
	}
}

// stop ends feeding; the process is gone.
func (in *input) stop() {
	in.mu.Lock()
	in.stopped = true
	in.queue = nil
	in.cond.Signal()
	in.mu.Unlock()
	in.w.Close() // frees a write that nobody reads any more
}

func (in *input) taken() uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.seq
}

func (in *input) overran() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.overrun
}
