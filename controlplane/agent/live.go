package agent

import (
	"context"
	"errors"
	"sync"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/agent/prompt"
	"github.com/heddle-dev/heddle/controlplane/approval"
	"github.com/heddle-dev/heddle/controlplane/eventlog"
	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// live is a thread that this control plane works on.
type live struct {
	agent *Agent
	id    string
	// load reads the thread once; loadErr says why it could not be.
	load    sync.Once
	loadErr error
	// gate serialises what begins a turn or ends the thread's work.
	gate chan struct{}
	// claiming serialises claims, so that the newest epoch is the one kept.
	claiming sync.Mutex
	// telling serialises entries for the model with the reading of its history.
	telling sync.Mutex
	// placing serialises the first look at where folders lead.
	placing sync.Mutex
	// memory is what was accepted for the session; read through remembered.
	memory approval.Memory
	// parent and depth tell where a sub-agent stands; fixed after load.
	parent  string
	depth   int32
	recall  sync.Once
	servers servers

	mu         sync.Mutex
	epoch      uint64
	reclaims   int // after failed commits
	principal  string
	ephemeral  bool
	originator string
	agents     subAgents
	settings   *heddlev1.ThreadSettings
	usage      *heddlev1.ThreadTokenUsage
	goal       *heddlev1.Goal
	turn       *turn
	procs      map[int64]*process
	inspection *executorv1.Inspection
	inspected  string
	// places are where folders of the thread led when it was given them; placed
	// are those folders.
	places []*heddlev1.Place
	placed map[string]bool
	// grants are replaced, never changed in place: readers keep the slice.
	grants []*heddlev1.PermissionGrant
	report *heddlev1.SandboxReport
	// told is what the model was last told about its surroundings.
	told *prompt.Context
	// loaded are the settings that a thread with turns was read with: what its
	// model was told before this control plane.
	loaded *heddlev1.ThreadSettings
	// queued is false when no message waits for sure.
	queued bool
	// warned are the warnings this thread has shown.
	warned map[string]bool
	// sessionBegun is true after the first input that was shown here.
	sessionBegun bool
}

func newLive(a *Agent, id string) *live {
	return &live{agent: a, id: id, gate: make(chan struct{}, 1), procs: map[int64]*process{}, warned: map[string]bool{}, servers: newServers()}
}

// thread returns the live thread, reading and claiming it on first use.
func (a *Agent) thread(ctx context.Context, id string) (*live, error) {
	a.mu.Lock()
	lt := a.live[id]
	if lt == nil {
		lt = newLive(a, id)
		a.live[id] = lt
	}
	a.mu.Unlock()
	lt.load.Do(func() { lt.loadErr = lt.read(context.WithoutCancel(ctx)) })
	if lt.loadErr != nil {
		a.forget(lt)
		return nil, lt.loadErr
	}
	return lt, nil
}

// Adopt takes a thread that was just created under an epoch, with what is known
// of its workspace (nil for nothing).
func (a *Agent) Adopt(row *heddlev1.Thread, epoch uint64, found *executorv1.Inspection) {
	lt := newLive(a, row.GetId())
	lt.load.Do(func() {})
	lt.fill(row, epoch)
	// One that was created just now has nothing queued.
	lt.queued = row.GetLastSeq() > 1
	if found != nil {
		lt.inspection, lt.inspected = found, row.GetSettings().GetCwd()
	}
	a.mu.Lock()
	a.live[row.GetId()] = lt
	a.mu.Unlock()
}

// Knows reports whether the agent holds the thread.
func (a *Agent) Knows(threadID string) bool { return a.peek(threadID) != nil }

func (a *Agent) forget(lt *live) {
	a.mu.Lock()
	if a.live[lt.id] == lt {
		delete(a.live, lt.id)
	}
	a.mu.Unlock()
}

func (lt *live) read(ctx context.Context) error {
	row, err := lt.agent.store.Thread(ctx, lt.id)
	if err != nil {
		return err
	}
	if row.GetArchived() {
		return errdefs.New(errdefs.ThreadArchived, "thread %s is archived", lt.id).With("thread", lt.id)
	}
	epoch, err := lt.agent.cfg.Log.Claim(ctx, lt.id)
	if err != nil {
		return err
	}
	lt.fill(row, epoch)
	return nil
}

func (lt *live) fill(row *heddlev1.Thread, epoch uint64) {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	lt.epoch = epoch
	lt.principal = row.GetPrincipal()
	lt.parent, lt.depth = row.GetParentThreadId(), row.GetAgentDepth()
	lt.queued = true
	lt.ephemeral = row.GetEphemeral()
	lt.originator = row.GetOriginator()
	lt.settings = proto.CloneOf(row.GetSettings())
	lt.usage = proto.CloneOf(row.GetTokenUsage())
	lt.report = proto.CloneOf(row.GetSandboxReport())
	lt.goal = proto.CloneOf(row.GetGoal())
	lt.knowPlaces(row.GetPlaces())
	lt.grants = row.GetGrants()
	if row.GetTurnCount() > 0 {
		lt.loaded = extended(proto.CloneOf(row.GetSettings()), lt.grants)
	}
	if lt.settings == nil {
		lt.settings = &heddlev1.ThreadSettings{}
	}
	if lt.usage == nil {
		lt.usage = &heddlev1.ThreadTokenUsage{}
	}
}

func (lt *live) acquire(ctx context.Context) error {
	select {
	case lt.gate <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (lt *live) release() { <-lt.gate }

// acquired returns the live thread with its gate held. One that was forgotten
// while somebody waited for the gate is looked up again: its epoch is old.
func (a *Agent) acquired(ctx context.Context, id string) (*live, error) {
	for {
		lt, err := a.thread(ctx, id)
		if err != nil {
			return nil, err
		}
		if err := lt.acquire(ctx); err != nil {
			return nil, err
		}
		if a.peek(id) == lt {
			return lt, nil
		}
		lt.release()
	}
}

// append puts events into the thread's log under the held epoch.
func (lt *live) append(events ...*heddlev1.Event) *eventlog.Pending {
	lt.mu.Lock()
	epoch := lt.epoch
	lt.mu.Unlock()
	return lt.agent.cfg.Log.Append(lt.id, epoch, events...)
}

// appendSince appends unless the thread was claimed anew since claims returned n.
// One that is claimed meanwhile takes nothing: the number of its owner is the old one.
func (lt *live) appendSince(n int, events ...*heddlev1.Event) (p *eventlog.Pending, same bool) {
	lt.mu.Lock()
	epoch, now := lt.epoch, lt.reclaims
	lt.mu.Unlock()
	if now != n {
		return nil, false
	}
	return lt.agent.cfg.Log.Append(lt.id, epoch, events...), true
}

// persist appends events and waits until they are durable. A log that takes
// nothing since an earlier commit failed is claimed anew first.
func (lt *live) persist(ctx context.Context, events ...*heddlev1.Event) error {
	p := lt.append(events...)
	if p.Err() != nil {
		if _, err := lt.reclaim(ctx); err != nil {
			return errors.Join(p.Err(), err)
		}
		p = lt.append(events...)
	}
	return p.Wait(ctx)
}

// reclaim takes the thread again after a failed commit, and returns what claims
// returns then.
func (lt *live) reclaim(ctx context.Context) (int, error) {
	lt.claiming.Lock()
	defer lt.claiming.Unlock()
	epoch, err := lt.agent.cfg.Log.Claim(ctx, lt.id)
	if err != nil {
		return 0, err
	}
	lt.mu.Lock()
	defer lt.mu.Unlock()
	lt.epoch = epoch
	lt.reclaims++
	return lt.reclaims, nil
}

// claims counts how often the thread was taken again.
func (lt *live) claims() int {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	return lt.reclaims
}

func (lt *live) current() *turn {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	return lt.turn
}

func (lt *live) setTurn(t *turn) {
	lt.mu.Lock()
	lt.turn = t
	lt.mu.Unlock()
}

// open counts the running turn and the running processes.
func (lt *live) open() int {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	n := 0
	if lt.turn != nil {
		n++
	}
	for _, p := range lt.procs {
		if !p.ended() {
			n++
		}
	}
	return n
}

// Record appends events of the thread itself (name, archive state) durably.
func (a *Agent) Record(ctx context.Context, threadID string, events ...*heddlev1.Event) error {
	lt, err := a.acquired(ctx, threadID)
	if err != nil {
		return err
	}
	defer lt.release()
	return lt.persist(ctx, events...)
}

// MarkAborted tells the model that the last turn of a thread's history was cut,
// for a fork of a running turn.
func (a *Agent) MarkAborted(ctx context.Context, threadID string) error {
	return a.Record(ctx, threadID, historyAppended("", prompt.Aborted()))
}

// newID is a time-ordered id for everything that has none of its own.
func newID() string { return uuid.Must(uuid.NewV7()).String() }

// note appends events of a process that nobody waits for.
func (lt *live) note(events ...*heddlev1.Event) {
	if err := lt.append(events...).Err(); err != nil {
		lt.agent.cfg.Logger.Error("record events", "thread", lt.id, "error", err)
	}
}
