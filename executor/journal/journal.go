// Package journal remembers accepted actions and their results over the death
// of the executor process.
//
// The journal is one append-only file of checksummed records. An action is
// written before it starts, its result before it is sent; both stay until the
// control plane acknowledged the result. Writes are plain write(2) calls
// without fsync: the page cache outlives a killed process, and a boot id in the
// file tells a machine that went down from a process that did. Whatever ran
// when the file was last closed or its owner died is reported by Open, with
// result "outcome_unknown", and never run again.
//
// All methods may be called concurrently. One process at a time owns a journal.
package journal

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	fileName = "journal"
	// keptIDs is how many acknowledged actions are still known as done.
	keptIDs = 4096
	// compactAt is the file size above which acknowledged records are removed
	// as soon as they are most of the file.
	compactAt = 16 << 20
)

// ErrClosed is returned after Close.
var ErrClosed = errors.New("journal is closed")

// Config of a journal.
type Config struct {
	// Dir is an existing directory.
	Dir string
	// BootID identifies the boot of the machine.
	BootID string
	Logger *slog.Logger
}

// State of an action in the journal.
type State uint8

const (
	Unknown  State = iota // never accepted, or too long ago
	Running               // accepted, no result yet
	Finished              // has a result that is not acknowledged
	Acked                 // its result was acknowledged
)

type entry struct {
	accepted []byte // record payload
	result   []byte // record payload, nil while running
}

// Journal is the open file and what of it still matters.
type Journal struct {
	cfg Config

	mu     sync.Mutex
	f      *os.File
	size   int64 // bytes in the file
	live   int64 // bytes of entries
	open   map[string]*entry
	done   map[string]bool
	doneIn []string // ids of done in the order of acknowledgement
	closed bool
}

// Open reads the journal in cfg.Dir, making it when there is none, ends every
// action that has no result as "outcome_unknown" and compacts the file.
func Open(cfg Config) (*Journal, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	j := &Journal{cfg: cfg, open: map[string]*entry{}, done: map[string]bool{}}
	boot, err := j.load()
	if err != nil {
		return nil, err
	}
	if err := j.endOrphans(boot); err != nil {
		return nil, err
	}
	if err := j.compact(); err != nil {
		return nil, err
	}
	return j, nil
}

func (j *Journal) path() string { return filepath.Join(j.cfg.Dir, fileName) }

// load replays the file and returns the boot id it was written under.
func (j *Journal) load() (boot string, err error) {
	data, err := os.ReadFile(j.path())
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read journal: %w", err)
	}
	rest := data
	for len(rest) > 0 {
		rec, n, err := decode(rest)
		if err != nil {
			j.cfg.Logger.Warn("journal: the end of the file is not usable", "offset", len(data)-len(rest), "bytes", len(rest), "cause", err)
			break
		}
		rest = rest[n:]
		if rec.kind == kindBoot {
			boot = string(rec.payload)
			continue
		}
		j.replay(rec)
	}
	return boot, nil
}

func (j *Journal) replay(rec record) {
	switch rec.kind {
	case kindAccepted:
		var a executorv1.RunningAction
		if proto.Unmarshal(rec.payload, &a) == nil && j.open[a.GetActionId()] == nil {
			j.put(a.GetActionId(), &entry{accepted: slices.Clone(rec.payload)})
		}
	case kindResult:
		var r executorv1.ActionResult
		if proto.Unmarshal(rec.payload, &r) != nil {
			return
		}
		if e := j.open[r.GetActionId()]; e != nil && e.result == nil {
			e.result = slices.Clone(rec.payload)
			j.live += frameLen(e.result)
		}
	case kindAcked:
		j.forget(string(rec.payload))
	}
}

// endOrphans gives actions of a dead process their result.
func (j *Journal) endOrphans(boot string) error {
	why := "the executor process ended while the action ran"
	if boot != "" && boot != j.cfg.BootID {
		why = "the executor's machine was restarted while the action ran"
	}
	for id, e := range j.open {
		if e.result != nil {
			continue
		}
		var a executorv1.RunningAction
		if err := proto.Unmarshal(e.accepted, &a); err != nil {
			return fmt.Errorf("read journal: action %s: %w", id, err)
		}
		res, err := proto.Marshal(&executorv1.ActionResult{
			ActionId: id, LeaseId: a.GetLeaseId(), Epoch: a.GetEpoch(),
			Outcome: &executorv1.ActionResult_Error{Error: &heddlev1.ActionError{Code: "outcome_unknown", Message: why}},
		})
		if err != nil {
			return fmt.Errorf("encode result of action %s: %w", id, err)
		}
		e.result = res
		j.live += frameLen(res)
	}
	return nil
}

func (j *Journal) put(id string, e *entry) {
	j.open[id] = e
	j.live += frameLen(e.accepted)
}

// forget moves an entry to the acknowledged ones.
func (j *Journal) forget(id string) {
	if e := j.open[id]; e != nil {
		j.live -= frameLen(e.accepted)
		if e.result != nil {
			j.live -= frameLen(e.result)
		}
		delete(j.open, id)
	}
	if j.done[id] {
		return
	}
	j.done[id] = true
	j.doneIn = append(j.doneIn, id)
	if len(j.doneIn) > keptIDs {
		delete(j.done, j.doneIn[0])
		j.doneIn = j.doneIn[1:]
	}
}

// Accept records that an action is about to start. An action that is already
// known is not recorded again: its state is returned instead of Unknown.
func (j *Journal) Accept(a *executorv1.Action) (State, error) {
	payload, err := proto.Marshal(&executorv1.RunningAction{ActionId: a.GetActionId(), LeaseId: a.GetLeaseId(), Epoch: a.GetEpoch()})
	if err != nil {
		return Unknown, fmt.Errorf("encode action %s: %w", a.GetActionId(), err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if st := j.state(a.GetActionId()); st != Unknown {
		return st, nil
	}
	if err := j.append(kindAccepted, payload); err != nil {
		return Unknown, err
	}
	j.put(a.GetActionId(), &entry{accepted: payload})
	return Unknown, nil
}

// Finish records the result of an accepted action. Only the first one counts.
func (j *Journal) Finish(r *executorv1.ActionResult) error {
	payload, err := proto.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode result of action %s: %w", r.GetActionId(), err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.open[r.GetActionId()]
	if e == nil || e.result != nil {
		return nil
	}
	e.result = payload // also when the write fails: this process still knows it
	j.live += frameLen(payload)
	return j.append(kindResult, payload)
}

// Ack records that the control plane has the result for good.
func (j *Journal) Ack(id string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e := j.open[id]; e == nil || e.result == nil {
		return nil
	}
	j.forget(id)
	if err := j.append(kindAcked, []byte(id)); err != nil {
		return err
	}
	if j.size > compactAt && j.live < j.size/2 {
		return j.compact()
	}
	return nil
}

func (j *Journal) state(id string) State {
	e := j.open[id]
	switch {
	case e != nil && e.result != nil:
		return Finished
	case e != nil:
		return Running
	case j.done[id]:
		return Acked
	}
	return Unknown
}

// Result returns the unacknowledged result of an action, nil when there is none.
func (j *Journal) Result(id string) *executorv1.ActionResult {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := j.open[id]
	if e == nil || e.result == nil {
		return nil
	}
	r := &executorv1.ActionResult{}
	if proto.Unmarshal(e.result, r) != nil {
		return nil
	}
	return r
}

// Unacked returns the ids of all unacknowledged results.
func (j *Journal) Unacked() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var ids []string
	for id, e := range j.open {
		if e.result != nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Size returns the bytes in the file and those of them that are still needed.
func (j *Journal) Size() (file, live int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.size, j.live
}

// Close closes the file.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil
	}
	j.closed = true
	return j.f.Close()
}
