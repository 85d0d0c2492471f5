package agent

import (
	"context"
	"errors"
	"time"

	"github.com/heddle-dev/heddle/controlplane/artifact"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/protobuf/proto"
)

// baseWait bounds the look for the commit that a turn starts from.
const baseWait = 5 * time.Second

// diffID is the id of the artifact that holds a turn's patch.
func diffID(turnID string) string { return "diff-" + turnID }

func (d *turnDiff) baseCommit() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.base
}

// noteBase looks once, before the first change, at which commit the repository
// is. Without an answer the base stays empty: a change does not wait for it.
func (t *turn) noteBase(ctx context.Context) {
	t.diff.mu.Lock()
	looked := t.diff.looked
	t.diff.looked = true
	t.diff.mu.Unlock()
	if looked {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, baseWait)
	defer cancel()
	s := t.settings()
	res, err := t.lt.act(ctx, &executorv1.Action{
		Policy: proto.CloneOf(s.GetSandbox()), Workspace: s.GetCwd(),
		Kind: &executorv1.Action_Inspect{Inspect: &executorv1.Inspect{Cwd: s.GetCwd()}},
	})
	if err != nil || res.GetError() != nil {
		t.agent.cfg.Logger.Info("the commit of the workspace is not known", "thread", t.lt.id, "turn", t.id(), "error", err, "cause", res.GetError().GetMessage())
		return
	}
	t.diff.mu.Lock()
	t.diff.base = res.GetInspection().GetGit().GetSha()
	t.diff.mu.Unlock()
}

// keepDiff puts the turn's patch where artifacts are and its description into
// the event that ends the turn. With again set a patch that cannot be written is
// an error; else the description says why there is none.
func (t *turn) keepDiff(events []*heddlev1.Event, again bool) error {
	var end *heddlev1.Turn
	for _, ev := range events {
		if done := ev.GetTurnCompleted(); done != nil {
			end = done.GetTurn()
		}
	}
	if end == nil || end.GetDiff().GetSha256() != "" {
		return nil
	}
	p := t.diff.patch()
	if len(p.files) == 0 && !p.truncated {
		return nil
	}
	d := p.artifact(t.id(), t.diff.baseCommit())
	d.ThreadId = t.lt.id
	sum, err := t.putPatch(p.data)
	switch {
	case err == nil:
		d.Patch, d.Sha256, d.Bytes = diffID(t.id()), sum, int64(len(p.data))
	case again && !errors.Is(err, errNoBlobs) && !errors.Is(err, artifact.ErrQuota):
		return err
	default:
		t.agent.cfg.Logger.Error("keep the patch of a turn", "thread", t.lt.id, "turn", t.id(), "error", err)
		d.Missing = err.Error()
	}
	row := t.change(func(r *heddlev1.Turn) { r.Diff = d })
	for _, ev := range events {
		if done := ev.GetTurnCompleted(); done != nil {
			done.Turn = row
		}
	}
	return nil
}

var errNoBlobs = errors.New("this control plane keeps no artifacts")

func (t *turn) putPatch(data []byte) (string, error) {
	if t.agent.cfg.Blobs == nil {
		return "", errNoBlobs
	}
	return t.agent.cfg.Blobs.PutBlob(t.lt.id, t.id(), data)
}
