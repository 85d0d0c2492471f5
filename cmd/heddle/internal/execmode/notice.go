package execmode

import (
	"fmt"
	"io"
	"sync"
)

// lockedWriter is written by the view and by what arrives beside a thread's log.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// notice shows what the control plane says beside the log, on standard error in
// every form of output: the log may be what cannot be written.
func (r *runner) notice(text string) {
	fmt.Fprint(r.opts.Stderr, visible("warning: "+text+"\n", false))
}
