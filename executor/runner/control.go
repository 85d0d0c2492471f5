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
	proc, in, over := a.proc, a.input, a.result != nil
	if c := m.GetResize(); c != nil && proc == nil {
		a.size = c // applied when the process runs
	}
	a.mu.Unlock()
	if over {
		return
	}
	switch c := m.GetControl().(type) {
	case *executorv1.ActionControl_Stdin:
		if in != nil {
			in.put(c.Stdin)
		}
	case *executorv1.ActionControl_Resize:
		if proc != nil {
			r.spawnOpen(func() { resize(proc, c.Resize) })
		}
	case *executorv1.ActionControl_Interrupt:
		if proc == nil {
			a.cancel(endedf(codeCancelled, "the action was interrupted before its process ran"))
			return
		}
		r.spawnOpen(func() { interrupt(proc) })
	case *executorv1.ActionControl_Terminate:
		if proc == nil {
			a.cancel(endedf(codeCancelled, "the action was ended before its process ran"))
			return
		}
		r.spawnOpen(func() { _ = proc.Kill() })
	}
}

func resize(proc Process, m *executorv1.Resize) {
	_ = proc.Resize(size(m.GetRows(), defaultRows), size(m.GetCols(), defaultCols))
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
	over  func() // called once, without locks, when too much input waits
	moved func() // called when read has grown

	mu      sync.Mutex
	cond    sync.Cond
	w       io.WriteCloser // nil until the process runs
	queue   []piece
	waiting int
	seq     uint64 // the last write that came
	read    uint64 // the last write that the process has, or will never read
	closing bool
	stopped bool
}

// piece is one write.
type piece struct {
	data []byte
	seq  uint64
}

func newInput(over, moved func()) *input {
	in := &input{over: over, moved: moved}
	in.cond.L = &in.mu
	return in
}

// attach starts feeding what came and what comes.
func (in *input) attach(w io.WriteCloser) {
	in.mu.Lock()
	in.w = w
	in.mu.Unlock()
	go in.feed(w)
}

// put queues one write. One whose number was taken already is ignored.
func (in *input) put(m *executorv1.Stdin) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if m.GetWriteSeq() <= in.seq {
		return
	}
	in.seq = m.GetWriteSeq()
	if in.closing || in.stopped {
		in.read = in.seq
		in.moved()
		return
	}
	if in.waiting+len(m.GetData()) > maxInput {
		in.stopped = true
		in.cond.Signal()
		go in.over()
		return
	}
	if len(m.GetData()) > 0 {
		in.queue = append(in.queue, piece{m.GetData(), in.seq})
		in.waiting += len(m.GetData())
	} else if in.waiting == 0 {
		in.read = in.seq
	}
	in.closing = m.GetClose()
	in.cond.Signal()
}

func (in *input) feed(w io.WriteCloser) {
	defer w.Close()
	for {
		in.mu.Lock()
		for len(in.queue) == 0 && !in.closing && !in.stopped {
			in.cond.Wait()
		}
		if in.stopped || len(in.queue) == 0 {
			in.mu.Unlock()
			return
		}
		next := in.queue[0]
		in.queue = in.queue[1:]
		in.mu.Unlock()
		_, err := w.Write(next.data)
		in.mu.Lock()
		in.waiting -= len(next.data)
		in.read = next.seq
		if len(in.queue) == 0 {
			in.read = in.seq // with writes of nothing behind it
		}
		if err != nil { // the process closed its input: the rest has no reader
			in.stopped, in.read = true, in.seq
		}
		in.mu.Unlock()
		in.moved()
	}
}

// stop ends feeding; the process is gone.
func (in *input) stop() {
	in.mu.Lock()
	in.stopped = true
	in.queue = nil
	in.cond.Signal()
	w := in.w
	in.mu.Unlock()
	if w != nil {
		w.Close() // frees a write that nobody reads any more
	}
}

// taken is up to which write the process has its input.
func (in *input) taken() uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.read
}

func (in *input) received() uint64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.seq
}
