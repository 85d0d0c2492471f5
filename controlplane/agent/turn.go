package agent

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Kinds of turns, as in Turn.kind.
const (
	kindRegular = "regular"
	kindCompact = "compact"
)

// Causes of an interruption, as in Turn.interrupt_cause.
const (
	causeClient            = "client"
	causeSessionLost       = "session_lost"
	causeApprovalCancelled = "approval_cancelled"
	causeThreadClosed      = "thread_closed"
)

// maxSteps bounds the model calls of one turn, so that a model that never
// stops calling tools ends.
const maxSteps = 5000

// ErrSuspended stops a turn without ending it: the control plane stops, and the
// next one goes on.
var ErrSuspended = errors.New("control plane stops")

// interruption is the cause of a turn's context when somebody interrupted it.
type interruption struct{ cause string }

func (i *interruption) Error() string { return "turn interrupted: " + i.cause }

// turn is one running turn. run owns it; the fields below mu are shared.
type turn struct {
	lt    *live
	agent *Agent
	rt    *Runtime
	ctx   context.Context
	// cancel ends the turn's work: an *interruption or ErrSuspended.
	cancel context.CancelCauseFunc
	// done is closed after TurnCompleted is durable.
	done chan struct{}
	// claimed is what claims of the thread returned when the turn began.
	claimed int
	// stuck is closed when the store keeps refusing the record of the end.
	stuck chan struct{}

	// first is the input that the turn was started with.
	first   *heddlev1.UserMessage
	history []*heddlev1.HistoryEntry
	// seen are the call ids of the turn; a repeated one is not run again.
	seen    map[string]int
	repeats int
	diff    turnDiff
	last    *heddlev1.Item
	started time.Time
	// ids are the item ids this turn has used.
	ids map[string]bool
	// private is true while a reviewer works: what it is shown and says is not part
	// of the conversation, whose history is outer. reviewing is true between the two
	// review items; verdict is what the reviewer said last.
	private   bool
	reviewing bool
	outer     []*heddlev1.HistoryEntry
	verdict   string
	// reviewModel is what the config names for reviewers; empty is the thread's.
	reviewModel string
	// spentBefore is what the thread had used before the turn.
	spentBefore int64
	// continued is how often stop hooks made the turn go on.
	continued int
	// resume holds what a turn that is continued after a restart has to finish.
	resume *resumption
	hosts  hostQuestions

	mu     sync.Mutex
	row    *heddlev1.Turn
	inputs []*heddlev1.UserMessage
	denied denials
	// witnessed is the history for those who read it beside the turn.
	witnessed []*heddlev1.HistoryEntry
	// inForce are the overrides with which the present model step began.
	inForce *heddlev1.TurnOverrides
	// closed means that no input is taken any more.
	closed bool
	// dropRequest ends the open model request; nil while there is none.
	dropRequest context.CancelCauseFunc
	// inbox holds entries that were recorded for the model meanwhile.
	inbox []*heddlev1.HistoryEntry
}

func newTurn(lt *live, row *heddlev1.Turn) *turn {
	t := &turn{
		lt: lt, agent: lt.agent, row: row, done: make(chan struct{}), stuck: make(chan struct{}), seen: map[string]int{}, ids: map[string]bool{},
		private: row.GetKind() == kindReview, spentBefore: lt.spent(), claimed: lt.claims(),
	}
	t.ctx, t.cancel = context.WithCancelCause(context.WithoutCancel(lt.agent.ctx))
	return t
}

func (t *turn) id() string { return t.snapshot().GetId() }

// snapshot is the turn's row; it must not be changed.
func (t *turn) snapshot() *heddlev1.Turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.row
}

// change replaces the row by a changed copy and returns it.
func (t *turn) change(f func(*heddlev1.Turn)) *heddlev1.Turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	row := proto.CloneOf(t.row)
	f(row)
	t.row = row
	return row
}

// settings are the thread's with what was granted, and changed for this turn, laid over its sandbox policy;
// a reviewer has no grants. They must not be changed.
func (t *turn) settings() *heddlev1.ThreadSettings {
	if t.private {
		return reviewSettings(overridden(withModel(t.lt.currentSettings(), t.reviewModel), t.overrides()))
	}
	return overridden(t.lt.grantedSettings(t.id()), t.overrides())
}

func (t *turn) mustBe(id string) error {
	if found := t.id(); found != id {
		return errdefs.New(errdefs.TurnMismatch, "expected active turn id %s but found %s", id, found).With("expected", id).With("found", found)
	}
	return nil
}

// ending reports whether the turn takes no more input.
func (t *turn) ending() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed || t.ctx.Err() != nil
}

// waits reports whether the turn waits for its client after a restart.
func (t *turn) waits() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.resume != nil && t.resume.waiting
}

// awaitEnd waits until the turn's end is durable. It fails when that cannot be
// recorded, and when ctx ends.
func (t *turn) awaitEnd(ctx context.Context) error {
	select {
	case <-t.done:
		return nil
	case <-t.stuck:
		return errEndNotRecorded()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t *turn) interrupt(cause string) { t.cancel(&interruption{cause: cause}) }

// run is the turn's goroutine.
func (t *turn) run() {
	defer t.agent.unreserve(t.lt.principal)
	defer t.cancel(nil)
	err := t.work()
	if errors.Is(err, ErrSuspended) {
		return
	}
	t.leaveReview(err)
	if i, ok := errors.AsType[*interruption](err); ok {
		t.agent.stopAgents(t.lt.id, i.cause)
	}
	t.finish(err)
}

// work runs the turn up to its end; nil means that it completed.
func (t *turn) work() error {
	t.started = t.agent.cfg.Clock()
	row := t.change(func(r *heddlev1.Turn) {
		r.Attempt++
		if r.StartedAtMs == 0 {
			r.StartedAtMs = t.agent.now()
		}
	})
	// What the person is warned of comes before the turn's first event.
	err := t.prepare()
	if t.resume == nil || !t.resume.started {
		t.record(turnStarted(row))
	}
	if t.resume != nil {
		t.closeHooks()
	}
	if t.resume != nil && t.ctx.Err() != nil {
		return t.abandonPast()
	}
	if err != nil {
		return err
	}
	t.warnOfHooks()
	if t.resume != nil && len(t.resume.order)+len(t.resume.open) > 0 {
		if err := t.continueCalls(); err != nil {
			return err
		}
	}
	refused := false
	if t.first != nil {
		if err := t.compactIfNeeded(); err != nil {
			return err
		}
		t.answerOpenCalls()
		shown, err := t.admit(t.first)
		if err != nil {
			return err
		}
		t.first, refused = nil, !shown
	}
	if ended, err := t.workOnTask(); ended || err != nil {
		return err
	}
	if refused {
		if ended, err := t.nextInput(); ended || err != nil {
			return err
		}
	}
	return t.loop()
}

// nextInput shows the inputs that wait. The turn ends when there are none that
// hooks let through.
func (t *turn) nextInput() (ended bool, err error) {
	for {
		inputs, closed := t.takeInputs(true)
		if closed {
			return true, nil
		}
		if shown, err := t.admitAll(inputs); shown || err != nil {
			return false, err
		}
	}
}

// loop asks the model until it has nothing more to do.
func (t *turn) loop() error {
	for range maxSteps {
		inputs, _ := t.takeInputs(false)
		if _, err := t.admitAll(inputs); err != nil {
			return err
		}
		t.takeInbox()
		calls, err := t.modelStep()
		if errors.Is(err, errSteered) {
			continue
		}
		if err != nil {
			return err
		}
		if len(calls) == 0 {
			if again, err := t.stopHooks(); again {
				continue
			} else if err != nil {
				return err
			}
			if ended, err := t.nextInput(); ended || err != nil {
				return err
			}
			continue
		}
		if err := t.runCalls(calls); err != nil {
			return err
		}
		if err := t.compactIfNeeded(); err != nil {
			return err
		}
	}
	return errdefs.New(errdefs.Internal, "the turn was stopped after %d model calls", maxSteps)
}

// record appends events that nobody waits for; the next barrier carries them. A
// log that takes no more fails the turn.
func (t *turn) record(events ...*heddlev1.Event) {
	if err := t.lt.append(events...).Err(); err != nil {
		t.agent.cfg.Logger.Error("record events", "thread", t.lt.id, "turn", t.id(), "error", err)
		t.cancel(err)
	}
}

// commit appends events and waits until everything so far is durable.
func (t *turn) commit(events ...*heddlev1.Event) error {
	return t.lt.append(events...).Wait(context.WithoutCancel(t.ctx))
}

// prepare reads the history and resolves the settings.
func (t *turn) prepare() error {
	if err := t.readHistory(); err != nil {
		return err
	}
	t.takeOverrides()
	if err := t.resolve(); err != nil {
		return err
	}
	t.awaitServers()
	return context.Cause(t.ctx)
}

// turnError is the failure as clients see it.
func turnError(err error) *heddlev1.TurnError {
	var me *model.Error
	if errors.As(err, &me) {
		return me.TurnError()
	}
	kind := model.KindOther
	if errdefs.Is(err, errdefs.NotEnforceable) {
		kind = "sandboxError"
	}
	return &heddlev1.TurnError{Message: strings.ToValidUTF8(err.Error(), "\uFFFD"), Kind: kind}
}

// begunItem is an item in progress, under the model's id for it if that is free.
func (t *turn) begunItem(id string) *heddlev1.Item {
	return &heddlev1.Item{Id: t.itemID(id), TurnId: t.id(), StartedAtMs: t.agent.now(), Status: heddlev1.ItemStatus_ITEM_STATUS_IN_PROGRESS}
}

// itemID is the model's id for an item, or one of ours where the thread has an
// item with that id already.
func (t *turn) itemID(id string) string {
	if id == "" {
		return newID()
	}
	t.mu.Lock()
	used := t.ids[id]
	t.ids[id] = true
	t.mu.Unlock()
	if used {
		return newID()
	}
	if _, err := t.agent.store.Item(t.ctx, t.lt.id, id); !errdefs.Is(err, errdefs.ItemNotFound) {
		return newID()
	}
	return id
}
