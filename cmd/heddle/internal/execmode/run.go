package execmode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// sessionKey is the metadata key that carries the session id.
const sessionKey = "heddle-session"

// Bounds of the runner.
const (
	// lossLimit is how long a lost control plane is waited for.
	lossLimit = 60 * time.Second
	// settleLimit is how long processes may take to end after the turn.
	settleLimit = 5 * time.Second
	// interruptLimit is how long an interrupted turn may take to end.
	interruptLimit = 10 * time.Second
	closeLimit     = 2 * time.Second
)

var errInterrupted = errors.New("interrupted")

type runner struct {
	opts    Options
	view    view
	conn    *grpc.ClientConn
	threads heddlev1.ThreadServiceClient
	turns   heddlev1.TurnServiceClient
	thread  *heddlev1.Thread
	state   turnState
}

func (r *runner) run(ctx context.Context) (Outcome, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := sync.OnceFunc(r.interruptBefore(cancel))
	defer stop()
	if r.opts.Attach.GetSessionId() == "" {
		r.opts.Attach.SessionId = uuid.Must(uuid.NewV7()).String()
	}
	conn, err := r.opts.Dial(ctx)
	if err != nil {
		return Outcome{}, cause(ctx, err)
	}
	defer conn.Close()
	r.conn = conn
	r.threads, r.turns = heddlev1.NewThreadServiceClient(conn), heddlev1.NewTurnServiceClient(conn)

	session := newSession(conn, r.opts.Attach)
	session.notice = r.notice
	defer session.close()
	attached, err := session.open(ctx)
	if err != nil {
		return Outcome{}, cause(ctx, err)
	}
	ctx = metadata.AppendToOutgoingContext(ctx, sessionKey, r.opts.Attach.GetSessionId())
	warnings := append([]string(nil), r.opts.Notes...)
	for _, w := range attached.GetConfigWarnings() {
		warnings = append(warnings, configWarning(w))
	}
	more, err := r.openThread(ctx)
	if err != nil {
		return Outcome{}, cause(ctx, err)
	}
	defer r.unload(ctx)
	r.view.threadStarted(r.thread)
	for _, w := range append(warnings, more...) {
		r.view.warning(w)
	}
	if r.opts.Resume != nil && r.opts.Resume.ForkOnly {
		return Outcome{}, nil
	}
	r.state = newTurnState(r.thread)
	turn, err := r.startTurn(ctx)
	if err != nil {
		return Outcome{}, cause(ctx, err)
	}
	stop()
	return r.follow(ctx, turn)
}

// interruptBefore makes an interrupt end the run as long as there is no turn.
func (r *runner) interruptBefore(cancel context.CancelCauseFunc) (stop func()) {
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-r.opts.Interrupt:
			cancel(errInterrupted)
		case <-done:
		}
	}()
	return func() { close(done); <-stopped }
}

// cause prefers what ended ctx to the error that it led to.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil && !errors.Is(c, context.Canceled) {
		return c
	}
	if e := errdefs.From(err); e != nil {
		return e
	}
	if st, ok := status.FromError(err); ok && st.Code() != codes.Unknown {
		return fmt.Errorf("%s (%s)", st.Message(), st.Code())
	}
	return err
}

func (r *runner) openThread(ctx context.Context) (warnings []string, err error) {
	if r.opts.Resume == nil {
		resp, err := retry(ctx, func() (*heddlev1.StartThreadResponse, error) {
			return r.threads.StartThread(ctx, r.opts.Thread)
		})
		if err != nil {
			return nil, err
		}
		r.thread = resp.GetThread()
		return resp.GetWarnings(), nil
	}
	id := r.opts.Resume.ID
	if id == "" {
		if id, err = r.lastThread(ctx); err != nil {
			return nil, err
		}
	}
	if r.opts.Resume.Fork {
		return nil, r.forkThread(ctx, id)
	}
	resp, err := retry(ctx, func() (*heddlev1.LoadThreadResponse, error) {
		return r.threads.LoadThread(ctx, &heddlev1.LoadThreadRequest{ThreadId: id, Settings: r.opts.Thread.GetSettings()})
	})
	if err != nil {
		return nil, err
	}
	r.thread = resp.GetThread()
	return nil, nil
}

func (r *runner) forkThread(ctx context.Context, id string) error {
	t := r.opts.Thread
	resp, err := retry(ctx, func() (*heddlev1.ForkThreadResponse, error) {
		return r.threads.ForkThread(ctx, &heddlev1.ForkThreadRequest{
			ThreadId: id, Settings: t.GetSettings(), Ephemeral: t.GetEphemeral(), Source: t.GetSource(),
			ThreadSource: t.GetThreadSource(), Originator: t.GetOriginator(), Version: t.GetVersion(),
		})
	})
	if err != nil {
		return err
	}
	r.thread = resp.GetThread()
	return nil
}

func (r *runner) lastThread(ctx context.Context) (string, error) {
	req := &heddlev1.ListThreadsRequest{PageSize: 1, SortKey: "updated_at", WithTurns: true}
	if cwd := r.opts.Resume.Cwd; cwd != "" {
		req.Cwds = []string{cwd}
	}
	resp, err := retry(ctx, func() (*heddlev1.ListThreadsResponse, error) { return r.threads.ListThreads(ctx, req) })
	if err != nil {
		return "", err
	}
	if len(resp.GetThreads()) == 0 {
		return "", errors.New("there is no thread to resume here; see --all, or start one without resume")
	}
	return resp.GetThreads()[0].GetId(), nil
}

// startTurn survives the loss of the answer: a turn that was accepted is in the
// log and is found there instead of being asked for twice.
func (r *runner) startTurn(ctx context.Context) (*heddlev1.Turn, error) {
	start, err := r.turnStarter()
	if err != nil {
		return nil, err
	}
	asked := false
	resp, err := retry(ctx, func() (*heddlev1.StartTurnResponse, error) {
		if asked {
			if turn, err := r.acceptedTurn(ctx); err != nil || turn != nil {
				return &heddlev1.StartTurnResponse{Turn: turn}, err
			}
		}
		asked = true
		return start(ctx)
	})
	if err != nil {
		return nil, err
	}
	for _, w := range resp.GetWarnings() {
		r.view.warning(w)
	}
	return resp.GetTurn(), nil
}

// turnStarter is the call that starts what was asked for.
func (r *runner) turnStarter() (func(context.Context) (*heddlev1.StartTurnResponse, error), error) {
	if review := r.opts.Review; review != nil {
		review.ThreadId = r.thread.GetId()
		return func(ctx context.Context) (*heddlev1.StartTurnResponse, error) {
			resp, err := r.turns.StartReview(ctx, review)
			return &heddlev1.StartTurnResponse{Turn: resp.GetTurn()}, err
		}, nil
	}
	req := &heddlev1.StartTurnRequest{
		ThreadId: r.thread.GetId(), Input: r.opts.Input, OnDisconnect: r.opts.Attach.GetOnDisconnect(),
	}
	if r.opts.Schema != nil {
		schema, err := structpb.NewStruct(r.opts.Schema)
		if err != nil {
			return nil, errdefs.New(errdefs.InvalidArgument, "output schema: %w", err)
		}
		req.OutputSchema = schema
	}
	return func(ctx context.Context) (*heddlev1.StartTurnResponse, error) { return r.turns.StartTurn(ctx, req) }, nil
}

// acceptedTurn finds a turn that the thread did not have when it was opened; nil
// when there is none.
func (r *runner) acceptedTurn(ctx context.Context) (*heddlev1.Turn, error) {
	now, err := r.threads.GetThread(ctx, &heddlev1.GetThreadRequest{ThreadId: r.thread.GetId()})
	if err != nil || now.GetThread().GetTurnCount() == r.thread.GetTurnCount() {
		return nil, err
	}
	last, err := r.threads.ListTurns(ctx, &heddlev1.ListTurnsRequest{
		ThreadId: r.thread.GetId(), PageSize: 1, View: heddlev1.ItemsView_ITEMS_VIEW_NONE,
	})
	if err != nil || len(last.GetTurns()) == 0 {
		return nil, err
	}
	return last.GetTurns()[0].GetTurn(), nil
}

// unload lets go of the thread, with a deadline of its own.
func (r *runner) unload(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer cancel()
	_, _ = r.threads.UnloadThread(ctx, &heddlev1.UnloadThreadRequest{ThreadId: r.thread.GetId()})
}

// lost tells the loss of the control plane from its answer.
func lost(err error) bool {
	if err == nil || errdefs.From(err) != nil && !errdefs.Is(err, errdefs.SessionUnknown) {
		return false
	}
	return status.Code(err) == codes.Unavailable || errdefs.Is(err, errdefs.SessionUnknown)
}

// retry repeats a call while the control plane is away; the session attaches
// again meanwhile.
func retry[T any](ctx context.Context, call func() (T, error)) (T, error) {
	deadline := time.Now().Add(lossLimit)
	for {
		resp, err := call()
		if !lost(err) || time.Now().After(deadline) {
			return resp, err
		}
		select {
		case <-ctx.Done():
			return resp, context.Cause(ctx)
		case <-time.After(retryPause):
		}
	}
}

func configWarning(w *heddlev1.ConfigWarning) string {
	text := w.GetSummary()
	if w.GetPath() != "" {
		text = fmt.Sprintf("%s:%d: %s", w.GetPath(), max(w.GetLine(), 1), text)
	}
	if w.GetDetails() != "" {
		text += ": " + w.GetDetails()
	}
	return text
}

func writeAnswer(path, answer string) error {
	if err := os.WriteFile(path, []byte(answer), 0o666); err != nil {
		return fmt.Errorf("write the last message: %w", err)
	}
	return nil
}
