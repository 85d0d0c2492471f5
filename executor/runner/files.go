package runner

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/executor/files"
	"github.com/heddle-dev/heddle/executor/output"
	"github.com/heddle-dev/heddle/executor/search"
	"github.com/heddle-dev/heddle/executor/watch"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// maxCommand bounds one message of a watch or a search.
const maxCommand = 1 << 20

// takesInput reports whether an action reads input.
func takesInput(m *executorv1.Action) bool {
	switch k := m.GetKind().(type) {
	case *executorv1.Action_StartProcess:
		return k.StartProcess.GetTty() || k.StartProcess.GetStdin() == executorv1.StdinMode_STDIN_MODE_PIPE
	case *executorv1.Action_FileOperation:
		return k.FileOperation.GetWrite() != nil
	case *executorv1.Action_WatchFiles, *executorv1.Action_SearchFiles:
		return true
	}
	return false
}

// serve gives an action without a process an output stream, and its input to w
// unless that is nil. The output waits for its reader and ends with ctx.
func (a *action) serve(ctx context.Context, w io.WriteCloser) (out *output.Stream, done func()) {
	out = output.New(output.Config{Direct: true, Notify: a.poke})
	stop := context.AfterFunc(ctx, out.Discard)
	a.mu.Lock()
	a.started, a.streams = true, []*output.Stream{out}
	a.mu.Unlock()
	a.poke()
	if w != nil && a.input != nil {
		a.input.attach(w)
	}
	return out, func() { stop() }
}

// fileOperation does one operation of a client on files.
func (r *Runner) fileOperation(ctx context.Context, a *action, m *executorv1.Action, op *heddlev1.FileOperation, res *executorv1.ActionResult) *heddlev1.ActionError {
	b, err := r.box(ctx, a.lease, r.policy(m))
	if err != nil {
		return failure(ctx, err, codeIO)
	}
	var w io.WriteCloser
	in := newContent(op.GetWrite().GetSize())
	if op.GetWrite() != nil {
		w = in
	}
	out, done := a.serve(ctx, w)
	defer done()
	outcome, err := files.Do(ctx, b.FS(), op, func() ([]byte, error) { return in.all(ctx) }, out)
	if err != nil {
		return failure(ctx, err, codeIO)
	}
	res.Outcome = &executorv1.ActionResult_FileOutcome{FileOutcome: outcome}
	return nil
}

// content gathers what a client writes to a file.
type content struct {
	limit int64
	mu    sync.Mutex
	data  []byte
	over  bool
	done  chan struct{}
	once  sync.Once
}

func newContent(size int64) *content {
	return &content{limit: min(size, files.MaxFile), done: make(chan struct{})}
}

// Write keeps p; what is more than announced is only noted.
func (c *content) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if int64(len(c.data)+len(p)) > c.limit {
		c.over = true
		return len(p), nil
	}
	c.data = append(c.data, p...)
	return len(p), nil
}

// Close says that everything came.
func (c *content) Close() error {
	c.once.Do(func() { close(c.done) })
	return nil
}

// all waits for the whole content.
func (c *content) all(ctx context.Context) ([]byte, error) {
	select {
	case <-c.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil, errors.New("more content came than was announced")
	}
	return c.data, nil
}

// watchFiles watches for a client until its input ends.
func (r *Runner) watchFiles(ctx context.Context, a *action, res *executorv1.ActionResult) *heddlev1.ActionError {
	next, out, done := converse(ctx, a, func() *heddlev1.WatchCommand { return &heddlev1.WatchCommand{} })
	defer done()
	err := watch.Serve(ctx, watch.Config{}, next, func(e *heddlev1.WatchEvent) error { return emit(out, e) })
	return ended(ctx, err, res)
}

// searchFiles searches for a client until its input ends.
func (r *Runner) searchFiles(ctx context.Context, a *action, s *heddlev1.SearchStart, res *executorv1.ActionResult) *heddlev1.ActionError {
	next, out, done := converse(ctx, a, func() *heddlev1.SearchQuery { return &heddlev1.SearchQuery{} })
	defer done()
	err := search.Serve(ctx, search.Config{Roots: s.GetRoots(), Limit: int(s.GetLimit())}, next,
		func(m *heddlev1.SearchResults) error { return emit(out, m) })
	return ended(ctx, err, res)
}

func ended(ctx context.Context, err error, res *executorv1.ActionResult) *heddlev1.ActionError {
	if err != nil {
		return failure(ctx, err, codeIO)
	}
	res.Outcome = &executorv1.ActionResult_Ended{Ended: &executorv1.Ended{}}
	return nil
}

// converse reads an action's input as messages. next returns io.EOF at its end.
func converse[M proto.Message](ctx context.Context, a *action, fresh func() M) (next func() (M, error), out *output.Stream, done func()) {
	pr, pw := io.Pipe()
	stop := context.AfterFunc(ctx, func() { pr.CloseWithError(context.Cause(ctx)) })
	out, stopOut := a.serve(ctx, pw)
	in := bufio.NewReader(pr)
	next = func() (M, error) {
		m := fresh()
		err := protodelim.UnmarshalOptions{MaxSize: maxCommand}.UnmarshalFrom(in, m)
		if err != nil && !errors.Is(err, io.EOF) {
			err = fmt.Errorf("read input: %w", err)
		}
		return m, err
	}
	return next, out, func() {
		stop()
		stopOut()
		pr.CloseWithError(io.ErrClosedPipe) // frees the feeding of what nobody reads
	}
}

func emit(out io.Writer, m proto.Message) error {
	_, err := protodelim.MarshalTo(out, m)
	return err
}
