package agent

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/heddle-dev/heddle/controlplane/approval"
	"github.com/heddle-dev/heddle/controlplane/eventlog"
	"github.com/heddle-dev/heddle/controlplane/mcp/oauth"
	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/proto/errdefs"
	"github.com/heddle-dev/heddle/proto/failpoint"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Config configures an Agent.
type Config struct {
	Log     *eventlog.Log
	Streams Streams
	// Blobs keeps patches; nil means that none is kept, and their records say so.
	Blobs      Blobs
	Dispatcher Dispatcher
	Broker     *approval.Broker
	Resolver   Resolver
	Rules      Rules
	// Marks remembers which rules came without an escalation.
	Marks Marks
	// Clock is time.Now when nil.
	Clock  func() time.Time
	Logger *slog.Logger
	// Lost reports whether a session is not attached or its process is dead; nil
	// means never.
	Lost func(sessionID string) bool
	// Held reports whether a session holds a thread; nil means always.
	Held func(threadID string) bool
	// MaxTurns bounds the turns that run at a time, MaxTurnsOf those of one
	// principal, MaxThreads the threads that are held open; 0 means 512, as many as
	// of all, and 16384.
	MaxTurns, MaxTurnsOf, MaxThreads int
	// Notify tells the clients of a thread what its log cannot say; may be nil.
	Notify func(threadID, message string)
	// Version is written into user agents.
	Version string
	// Instructions finds which instruction files of a thread's workspace count.
	Instructions InstructionsOf
	// Servers finds the MCP servers of a thread; nil means that there are none.
	Servers ServersOf
	// CreateThread makes a thread durable for a session and gives it to Adopt; nil
	// means that there are no sub-agents.
	CreateThread func(ctx context.Context, sessionID string, row *heddlev1.Thread) (*heddlev1.Thread, error)
	// Logins are those at MCP servers; nil means that there are none.
	Logins *oauth.Logins
	// Home is where the user's skills are; empty means that there are none.
	Home string
}

// Agent runs the turns of one control plane.
type Agent struct {
	cfg   Config
	store store.Reader
	// ctx ends with Close; work on processes that outlive a turn hangs on it.
	ctx  context.Context
	stop context.CancelCauseFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	live   map[string]*live
	active int
	// activeOf counts the turns of each principal.
	activeOf map[string]int
	stopping bool

	// recovered waits for Resume, unrecovered is what the store kept from it; back
	// finds the clients of its turns.
	recovered   []*recovered
	unrecovered []string
	back        AwaitSession
	// looks bounds what withServers starts.
	looks chan struct{}
	// samples bounds the model calls beside turns.
	samples chan struct{}
}

// New returns an Agent without any turn.
func New(cfg Config) *Agent {
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxTurns == 0 {
		cfg.MaxTurns = 512
	}
	if cfg.MaxTurnsOf == 0 {
		cfg.MaxTurnsOf = cfg.MaxTurns
	}
	if cfg.MaxThreads == 0 {
		cfg.MaxThreads = 16 << 10
	}
	ctx, stop := context.WithCancelCause(context.Background())
	return &Agent{
		cfg: cfg, store: cfg.Log.Store(), ctx: ctx, stop: stop, live: map[string]*live{}, activeOf: map[string]int{},
		looks: make(chan struct{}, maxLooks), samples: make(chan struct{}, maxSamples),
	}
}

// TurnRequest asks for a turn.
type TurnRequest struct {
	ThreadID string
	Input    *heddlev1.UserMessage
	// Settings are overrides for this and later turns; may be nil.
	Settings     *heddlev1.ThreadSettings
	OutputSchema *structpb.Struct
	SessionID    string
	OnDisconnect heddlev1.OnDisconnect

	// queued is the id of the queued message that the turn takes up.
	queued string
	// kind and task are empty for what a person asks for.
	kind string
	task *heddlev1.TurnTask
	// root is the turn that this one works for; empty for its own.
	root string
}

// TurnAnswer is what became of a TurnRequest.
type TurnAnswer struct {
	Turn    *heddlev1.Turn
	Steered bool
	// Changed are the settings after the overrides, when they changed something.
	Changed *heddlev1.ThreadSettings
}

// StartTurn accepts a turn durably and lets it run. While a turn runs, the
// input steers that one.
func (a *Agent) StartTurn(ctx context.Context, r TurnRequest) (*TurnAnswer, error) {
	lt, err := a.acquired(ctx, r.ThreadID)
	if err != nil {
		return nil, err
	}
	defer lt.release()
	for {
		t := lt.current()
		if t == nil {
			return a.begin(ctx, lt, r)
		}
		ans, err := lt.steerInstead(ctx, t, r)
		if !errdefs.Is(err, errdefs.NoActiveTurn) {
			return ans, err
		}
		// It is ending; the new turn follows it.
		if err := t.awaitEnd(ctx); err != nil {
			return nil, err
		}
	}
}

// begin accepts a new turn on a thread without one. lt is acquired.
func (a *Agent) begin(ctx context.Context, lt *live, r TurnRequest) (*TurnAnswer, error) {
	if err := a.reserve(lt.principal); err != nil {
		return nil, err
	}
	started := false
	defer func() {
		if !started {
			a.unreserve(lt.principal)
		}
	}()
	changed, events := lt.overlay(r.Settings)
	id := newID()
	row := &heddlev1.Turn{
		Id: id, RootTurnId: cmp.Or(r.root, id), ThreadId: lt.id, Status: heddlev1.TurnStatus_TURN_STATUS_IN_PROGRESS,
		AcceptedAtMs: a.now(), SessionId: r.SessionID, OnDisconnect: r.OnDisconnect, OutputSchema: r.OutputSchema, Kind: cmp.Or(r.kind, kindRegular), Task: r.task,
	}
	if row.OnDisconnect == heddlev1.OnDisconnect_ON_DISCONNECT_UNSPECIFIED {
		row.OnDisconnect = heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT
	}
	if err := lt.change(ctx, changed, func() error { return lt.persist(ctx, append(events, turnAccepted(row, r.Input, r.queued))...) }); err != nil {
		return nil, err
	}
	failpoint.Hit("agent/turn-accepted")
	t := newTurn(lt, row)
	t.first = taskInput(r)
	lt.setTurn(t)
	started = true
	a.wg.Go(t.run)
	return &TurnAnswer{Turn: proto.CloneOf(row), Changed: changed}, nil
}

// Steer adds input to the running turn, durably.
func (a *Agent) Steer(ctx context.Context, threadID, expected string, in *heddlev1.UserMessage) (string, error) {
	t := a.running(threadID)
	if t == nil {
		return "", noActiveTurn("steer")
	}
	if err := t.mustBe(expected); err != nil {
		return "", err
	}
	if len(in.GetParts()) == 0 {
		return "", errdefs.New(errdefs.InvalidArgument, "input must not be empty")
	}
	return t.id(), t.steer(ctx, in, nil)
}

// Interrupt asks for the end of the running turn and returns at once. An empty
// turnID means whatever runs.
func (a *Agent) Interrupt(threadID, turnID string) error {
	t := a.running(threadID)
	if t == nil {
		return noActiveTurn("interrupt")
	}
	if turnID != "" {
		if err := t.mustBe(turnID); err != nil {
			return err
		}
	}
	t.interrupt(causeClient)
	return nil
}

// SessionGone interrupts the turns that are tied to a session which has ended.
func (a *Agent) SessionGone(sessionID string) {
	for _, lt := range a.threads() {
		t := lt.current()
		if t == nil {
			continue
		}
		row := t.snapshot()
		if row.GetSessionId() == sessionID && row.GetOnDisconnect() != heddlev1.OnDisconnect_ON_DISCONNECT_CONTINUE {
			t.interrupt(causeSessionLost)
		}
	}
}

// settlePoll is how often AwaitEnd looks at a turn whose client is away.
const settlePoll = 10 * time.Millisecond

// AwaitEnd waits while the thread's turn is being ended or its client is away
// and may not come back, at most until ctx ends. It returns the turn that runs
// then, if any.
func (a *Agent) AwaitEnd(ctx context.Context, threadID string) *heddlev1.Turn {
	t := a.running(threadID)
	if t == nil {
		return nil
	}
	for t.ending() || a.forlorn(t) {
		select {
		case <-t.done:
			return nil
		case <-ctx.Done():
			return proto.CloneOf(t.snapshot())
		case <-time.After(settlePoll):
		}
	}
	return proto.CloneOf(t.snapshot())
}

// Settle waits for the end of a turn whose client is away, so that who reads the
// thread next does not see it running still.
func (a *Agent) Settle(ctx context.Context, threadID string) {
	if t := a.running(threadID); t != nil && a.forlorn(t) {
		a.AwaitEnd(ctx, threadID)
	}
}

// forlorn reports whether the turn is tied to a client that is away.
func (a *Agent) forlorn(t *turn) bool {
	row := t.snapshot()
	if row.GetOnDisconnect() == heddlev1.OnDisconnect_ON_DISCONNECT_CONTINUE || row.GetSessionId() == "" {
		return false
	}
	return t.waits() || (a.cfg.Lost != nil && a.cfg.Lost(row.GetSessionId()))
}

// Busy is the number of turns and processes that are open.
func (a *Agent) Busy() int {
	n := 0
	for _, lt := range a.threads() {
		n += lt.open()
	}
	return n
}

// ActiveTurns is the number of turns that run.
func (a *Agent) ActiveTurns() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.active
}

// Close suspends every turn where it stands, for the orderly stop of a control
// plane; what is open stays open in the store and is picked up by Recover.
func (a *Agent) Close(ctx context.Context) error {
	a.mu.Lock()
	a.stopping = true
	a.mu.Unlock()
	a.stop(ErrSuspended)
	for _, lt := range a.threads() {
		if t := lt.current(); t != nil {
			t.cancel(ErrSuspended)
		}
		lt.endServers()
	}
	done := make(chan struct{})
	go func() { a.wg.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Room refuses a thread that is not held open yet when too many are.
func (a *Agent) Room(threadID string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.live[threadID] == nil && len(a.live) >= a.cfg.MaxThreads {
		return errdefs.New(errdefs.Overloaded, "%d threads are open already, which is the limit", len(a.live))
	}
	return nil
}

func (a *Agent) reserve(principal string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stopping {
		return errdefs.New(errdefs.Busy, "the control plane is stopping")
	}
	if a.active >= a.cfg.MaxTurns {
		return errdefs.New(errdefs.Overloaded, "%d turns run already, which is the limit", a.cfg.MaxTurns)
	}
	if a.activeOf[principal] >= a.cfg.MaxTurnsOf {
		return errdefs.New(errdefs.Overloaded, "%d turns of yours run already, which is the limit", a.cfg.MaxTurnsOf)
	}
	a.count(principal, 1)
	return nil
}

// count adds to the running turns. a.mu is held.
func (a *Agent) count(principal string, n int) {
	a.active += n
	if a.activeOf[principal] += n; a.activeOf[principal] == 0 {
		delete(a.activeOf, principal)
	}
}

func (a *Agent) unreserve(principal string) {
	a.mu.Lock()
	a.count(principal, -1)
	a.mu.Unlock()
}

func (a *Agent) now() int64 { return a.cfg.Clock().UnixMilli() }

func (a *Agent) threads() []*live {
	a.mu.Lock()
	defer a.mu.Unlock()
	list := make([]*live, 0, len(a.live))
	for _, lt := range a.live {
		list = append(list, lt)
	}
	return list
}

func (a *Agent) peek(id string) *live {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.live[id]
}

// running is the turn that a thread runs, nil for none.
func (a *Agent) running(threadID string) *turn {
	if lt := a.peek(threadID); lt != nil {
		return lt.current()
	}
	return nil
}

func noActiveTurn(verb string) error {
	return errdefs.New(errdefs.NoActiveTurn, "no active turn to %s", verb)
}
