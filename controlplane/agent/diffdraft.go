package agent

import (
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

// pendingPatch is a patch that may or may not be written yet.
type pendingPatch struct {
	action string
	before []*executorv1.FileSnapshot
}

// diffDraft is the kept form of a turnDiff. Snapshots are encoded messages.
type diffDraft struct {
	Cwd     string      `json:"cwd"`
	Base    string      `json:"base,omitempty"`
	Looked  bool        `json:"looked,omitempty"`
	Applied string      `json:"applied,omitempty"`
	Pending string      `json:"pending,omitempty"`
	Before  [][]byte    `json:"before,omitempty"`
	Files   []draftFile `json:"files,omitempty"`
	// Uncertain is true when it is not known whether a patch was written.
	Uncertain bool `json:"uncertain,omitempty"`
}

type draftFile struct {
	Was    string `json:"was"`
	Is     string `json:"is"`
	Before []byte `json:"before"`
	After  []byte `json:"after"`
}

// encode makes the draft of the diff.
func (d *turnDiff) encode() ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := diffDraft{Cwd: d.cwd, Base: d.base, Looked: d.looked, Applied: d.applied, Uncertain: d.uncertain}
	var err error
	pack := func(s *executorv1.FileSnapshot) []byte {
		b, e := proto.Marshal(s)
		err = errors.Join(err, e)
		return b
	}
	if d.pending != nil {
		out.Pending = d.pending.action
		for _, s := range d.pending.before {
			out.Before = append(out.Before, pack(s))
		}
	}
	for _, f := range d.list {
		out.Files = append(out.Files, draftFile{Was: f.was, Is: f.is, Before: pack(f.before), After: pack(f.after)})
	}
	if err != nil {
		return nil, fmt.Errorf("encode the draft of a diff: %w", err)
	}
	return json.Marshal(out)
}

// decode puts a draft in place of an empty diff.
func (d *turnDiff) decode(data []byte) error {
	var in diffDraft
	if err := json.Unmarshal(data, &in); err != nil {
		return fmt.Errorf("read the draft of a diff: %w", err)
	}
	var err error
	unpack := func(b []byte) *executorv1.FileSnapshot {
		s := &executorv1.FileSnapshot{}
		err = errors.Join(err, proto.Unmarshal(b, s))
		return s
	}
	var list []*diffFile
	for _, f := range in.Files {
		list = append(list, &diffFile{was: f.Was, is: f.Is, before: unpack(f.Before), after: unpack(f.After)})
	}
	var pending *pendingPatch
	if in.Pending != "" {
		pending = &pendingPatch{action: in.Pending}
		for _, b := range in.Before {
			pending.before = append(pending.before, unpack(b))
		}
	}
	if err != nil {
		return fmt.Errorf("read the draft of a diff: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cwd, d.base, d.looked, d.applied, d.pending, d.list, d.uncertain = in.Cwd, in.Base, in.Looked, in.Applied, pending, list, in.Uncertain
	return nil
}

// doubt notes that a patch may have been written that the diff does not show.
func (d *turnDiff) doubt(action, code string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pending != nil && d.pending.action == action {
		d.pending = nil
	}
	d.uncertain = d.uncertain || code == "outcome_unknown"
}

// beginPatch notes what the files of a patch are before it may be written, so
// that the diff is whole also when this process does not see the end of it.
func (t *turn) beginPatch(action string, before []*executorv1.FileSnapshot) {
	t.diff.mu.Lock()
	if t.diff.cwd == "" {
		t.diff.cwd = t.settings().GetCwd()
	}
	t.diff.pending = &pendingPatch{action: action, before: before}
	t.diff.mu.Unlock()
	t.keepDraft()
}

// endPatch adds a written patch to the diff.
func (t *turn) endPatch(action string, done *executorv1.PatchCommitted) {
	t.diff.mu.Lock()
	pending, seen := t.diff.pending, t.diff.applied == action
	switch {
	case seen:
		// The draft was made after it.
	case pending == nil || pending.action != action:
		t.diff.uncertain = true
	default:
		t.diff.pending, t.diff.applied = nil, action
	}
	t.diff.mu.Unlock()
	if !seen && pending != nil && pending.action == action {
		t.diff.apply(t.settings().GetCwd(), pending.before, done.GetAfter(), done.GetChanges())
	}
	t.keepDraft()
}

// showDiff records the diff as it is now.
func (t *turn) showDiff() {
	if d := t.diff.text(); d != "" {
		t.record(diffUpdated(t.id(), d, t.diff.baseCommit()))
	}
}

// keepDraft keeps the diff for a control plane that goes on with the turn. If it
// cannot, that one has the recorded text.
func (t *turn) keepDraft() {
	if t.agent.cfg.Blobs == nil {
		return
	}
	data, err := t.diff.encode()
	if err == nil {
		err = t.agent.cfg.Blobs.KeepDraft(t.lt.id, t.id(), data)
	}
	if err != nil {
		t.agent.cfg.Logger.Warn("keep the draft of a turn's diff", "thread", t.lt.id, "turn", t.id(), "error", err)
		t.dropDraft()
	}
}

func (t *turn) dropDraft() {
	if t.agent.cfg.Blobs == nil || t.agent.ctx.Err() != nil {
		return
	}
	t.diff.mu.Lock()
	drafted := t.diff.looked
	t.diff.mu.Unlock()
	if !drafted {
		return
	}
	if err := t.agent.cfg.Blobs.KeepDraft(t.lt.id, t.id(), nil); err != nil {
		t.agent.cfg.Logger.Warn("drop the draft of a turn's diff", "thread", t.lt.id, "turn", t.id(), "error", err)
	}
}

// restoreDiff takes the diff of a turn over from the control plane before: from
// its draft, else from the text that it recorded last.
func (t *turn) restoreDiff(p *resumption) {
	t.diff.prior, t.diff.base, t.diff.looked = p.diff, p.base, p.diff != ""
	if t.agent.cfg.Blobs == nil {
		return
	}
	log := t.agent.cfg.Logger.With("thread", t.lt.id, "turn", t.id())
	data, err := t.agent.cfg.Blobs.Draft(t.lt.id, t.id())
	if err == nil && data != nil {
		if err = t.diff.decode(data); err == nil {
			t.diff.prior = ""
		}
	}
	if err != nil {
		log.Warn("the draft of the turn's diff is lost", "error", err)
	}
	// What a cut end left; the end is made anew.
	if err := t.agent.cfg.Blobs.DiscardBlobs(t.lt.id, t.id()); err != nil {
		log.Warn("discard what the turn left", "error", err)
	}
	if len(t.diff.list) > 0 || t.diff.pending != nil {
		t.keepDraft()
	}
}
