package runner

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/heddle-dev/heddle/executor/patch"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/proto/heddle/v1/actionhash"
	"github.com/heddle-dev/heddle/sandbox"
)

// Bounds of what a patch's result carries.
const (
	maxSnapshot  = 1 << 20 // one file's content
	maxSnapshots = 6 << 20 // all contents together
	maxDiff      = 1 << 20 // one file's diff
	maxDiffs     = 4 << 20 // all diffs together
)

func (r *Runner) planPatch(ctx context.Context, a *action, m *executorv1.Action, p *executorv1.PlanPatch, res *executorv1.ActionResult) *heddlev1.ActionError {
	pol := r.policy(m)
	b, err := r.box(ctx, a.lease, pol)
	if err != nil {
		return failure(ctx, err, codeIO)
	}
	plan, err := patch.Make(ctx, boxFiles{b.FS()}, p.GetPatch(), p.GetCwd())
	if rej, ok := errors.AsType[*patch.RejectedError](err); ok {
		res.Outcome = &executorv1.ActionResult_PatchPlan{PatchPlan: &executorv1.PatchPlan{Rejected: valid(rej.Reason)}}
		return nil
	}
	if err != nil {
		return failure(ctx, err, codeIO)
	}
	hashes := plan.Hashes()
	out := &executorv1.PatchPlan{
		Changes: updates(plan), BaseHashes: validKeys(hashes), Summary: valid(plan.Summary),
		PlanHash: actionhash.Patch(p.GetPatch(), p.GetCwd(), hashes, m.GetPolicy(), m.GetWorkspace()),
		Before:   snapshots(plan, false),
	}
	for _, path := range outside(plan, pol) {
		out.OutsideRoots = append(out.OutsideRoots, valid(path))
	}
	res.Outcome = &executorv1.ActionResult_PatchPlan{PatchPlan: out}
	return nil
}

// outside returns the resolved paths of a plan that its policy does not let it
// write, sorted.
func outside(plan *patch.Plan, p sandbox.Policy) []string {
	rs := rootsOf(p)
	found := map[string]bool{}
	for path := range plan.Base {
		if real := resolve(path); !rs.writable(real) {
			found[real] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func (r *Runner) commitPatch(ctx context.Context, a *action, m *executorv1.Action, c *executorv1.CommitPatch, res *executorv1.ActionResult) *heddlev1.ActionError {
	pol := r.policy(m)
	b, err := r.box(ctx, a.lease, pol)
	if err != nil {
		return failure(ctx, err, codeIO)
	}
	t := &target{boxFiles: boxFiles{b.FS()}}
	plan, err := replan(ctx, t, m, c)
	if err != nil {
		return failure(ctx, err, codeIO)
	}
	granted, err := grantedDirs(ctx, t, outside(plan, pol), c.GetGrantedPaths())
	if err != nil {
		return failure(ctx, err, codeIO)
	}
	if len(granted) > 0 {
		done, err := r.oneOff(ctx, a, pol, granted, c.GetGrantedPaths(), t)
		if err != nil {
			return failure(ctx, err, codeIO)
		}
		defer done()
	}
	if err := patch.Commit(ctx, t, plan); err != nil {
		code := codeIO
		if _, changed := errors.AsType[*patch.ChangedError](err); changed {
			code = codeRefused
		}
		return failure(ctx, err, code)
	}
	res.Outcome = &executorv1.ActionResult_PatchCommitted{PatchCommitted: &executorv1.PatchCommitted{
		Changes: updates(plan), Summary: valid(plan.Summary), After: snapshots(plan, true),
	}}
	return nil
}

// replan makes the plan again and refuses it when it is not the approved one.
func replan(ctx context.Context, files patch.FS, m *executorv1.Action, c *executorv1.CommitPatch) (*patch.Plan, error) {
	plan, err := patch.Make(ctx, files, c.GetPatch(), c.GetCwd())
	if rej, ok := errors.AsType[*patch.RejectedError](err); ok {
		return nil, refusedf("the patch does not apply any more: %s", rej.Reason)
	}
	if err != nil {
		return nil, err
	}
	hashes := plan.Hashes()
	for _, path := range slices.Sorted(maps.Keys(hashes)) {
		planned, ok := c.GetBaseHashes()[valid(path)]
		if len(c.GetBaseHashes()) > 0 && (!ok || !bytes.Equal(planned, hashes[path])) {
			return nil, refusedf("%s has changed since the patch was planned", path)
		}
	}
	sum := actionhash.Patch(c.GetPatch(), c.GetCwd(), hashes, m.GetPolicy(), m.GetWorkspace())
	if !bytes.Equal(c.GetPlanHash(), sum) {
		return nil, refusedf("the files have changed since the patch was planned: plan %s, now %s",
			hex.EncodeToString(c.GetPlanHash()), hex.EncodeToString(sum))
	}
	return plan, checkHash(m.GetActionHash(), sum)
}

// grantedDirs checks that every outside path was approved and returns the
// folders below which they are written.
func grantedDirs(ctx context.Context, t *target, paths, approved []string) ([]string, error) {
	var dirs []string
	for _, path := range paths {
		if !slices.Contains(approved, valid(path)) {
			return nil, refusedf("%s is outside of what this thread may write and was not approved", path)
		}
		dir := filepath.Dir(path)
		for {
			ok, err := t.Exists(ctx, dir)
			if err != nil {
				return nil, fmt.Errorf("look at folder %s: %w", dir, err)
			}
			if ok || dir == "/" {
				break
			}
			dir = filepath.Dir(dir)
		}
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs), nil
}

// oneOff makes a sandbox for the approved paths. No command ever runs in it;
// only the files of this plan are written through it.
func (r *Runner) oneOff(ctx context.Context, a *action, base sandbox.Policy, dirs, paths []string, t *target) (done func(), err error) {
	scope := a.lease.key + "/patch/" + a.id
	p := sandbox.Policy{
		Level: sandbox.WorkspaceWrite, Workspace: dirs[0], WritableRoots: dirs, // each named, so that it is writable whatever it is
		Protected: []string{}, Net: sandbox.NetOff, Tmp: base.Tmp,
	}
	done = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTime)
		defer cancel()
		if err := r.cfg.Boxes.Release(ctx, scope); err != nil {
			r.log.Error("ending a one-off sandbox failed", "action_id", a.id, "cause", err)
		}
	}
	b, err := r.cfg.Boxes.Acquire(ctx, scope, p)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	deadline := a.lease.deadline
	r.mu.Unlock()
	if err := b.SetDeadline(deadline); err != nil {
		done()
		return nil, fmt.Errorf("set the sandbox's deadline: %w", err)
	}
	t.wide = b.FS()
	t.granted = map[string]bool{}
	for _, path := range paths {
		t.granted[path] = true
	}
	t.dirs = dirs
	return done, nil
}

func updates(plan *patch.Plan) []*heddlev1.FileUpdate {
	left := maxDiffs
	out := make([]*heddlev1.FileUpdate, 0, len(plan.Changes))
	for _, c := range plan.Changes {
		diff := cut(valid(c.Diff()), min(left, maxDiff))
		left -= len(diff)
		out = append(out, &heddlev1.FileUpdate{Path: valid(c.Path), Kind: c.Kind, MovePath: valid(c.MovePath), Diff: diff})
	}
	return out
}

// cut shortens text to about n bytes and says so in it.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	n = max(n, 0)
	return fmt.Sprintf("%s\n[%d bytes left out]\n", strings.ToValidUTF8(s[:n], ""), len(s)-n)
}

// snapshots returns the touched files before or after the plan, sorted by path.
func snapshots(plan *patch.Plan, after bool) []*executorv1.FileSnapshot {
	files := maps.Clone(plan.Base)
	if after {
		for _, c := range plan.Changes {
			files[c.Path] = c.After
			if c.MovePath != "" {
				files[c.Path], files[c.MovePath] = nil, c.After
			}
		}
	}
	left := maxSnapshots
	var out []*executorv1.FileSnapshot
	for _, path := range slices.Sorted(maps.Keys(files)) {
		s := &executorv1.FileSnapshot{Path: valid(path)}
		if f := files[path]; f != nil {
			s.Exists, s.Mode = true, uint32(f.Mode.Perm())
			if plan.Base[path] == nil && f.Mode == patch.NewMode {
				s.Mode &^= 0o022 // what the usual umask leaves
			}
			if len(f.Data) > min(maxSnapshot, left) {
				s.Omitted = true
			} else {
				s.Content = f.Data
				left -= len(f.Data)
			}
		}
		out = append(out, s)
	}
	return out
}

func validKeys(m map[string][]byte) map[string][]byte {
	out := make(map[string][]byte, len(m))
	for k, v := range m {
		out[valid(k)] = v
	}
	return out
}

// boxFiles reads files for a plan as the sandbox sees them.
type boxFiles struct{ fs Files }

// Read implements patch.FS.
func (b boxFiles) Read(ctx context.Context, path string) (patch.File, error) {
	name, err := b.fs.Lstat(ctx, path)
	if err != nil {
		return patch.File{}, err
	}
	info, link := name, name.Mode&fs.ModeSymlink != 0
	if link {
		if info, err = b.fs.Stat(ctx, path); err != nil {
			return patch.File{}, err
		}
	}
	if !info.Mode.IsRegular() {
		return patch.File{}, &patch.RejectedError{Reason: "it is not a regular file"}
	}
	data, err := b.fs.ReadFile(ctx, path, patch.MaxFile)
	if errors.Is(err, sandbox.ErrTooLarge) {
		return patch.File{}, &patch.RejectedError{Reason: fmt.Sprintf("it is larger than %d bytes", patch.MaxFile)}
	}
	return patch.File{Data: data, Mode: info.Mode.Perm(), Link: link || info.Nlink > 1}, err
}

// target writes a plan: approved outside paths through the one-off sandbox, all
// others through the thread's own.
type target struct {
	boxFiles
	wide    Files
	granted map[string]bool
	dirs    []string
}

// through returns the access for a path, and the path to use with it.
func (t *target) through(path string) (files Files, at string, wide bool) {
	if t.wide != nil {
		if real := resolve(path); t.granted[valid(real)] {
			return t.wide, real, true
		}
	}
	return t.fs, path, false
}

func (t *target) Exists(ctx context.Context, path string) (bool, error) {
	_, err := t.fs.Stat(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (t *target) Write(ctx context.Context, path string, f patch.File) error {
	files, at, wide := t.through(path)
	// A link stays one, and other names of a file stay names of it: it is written in place.
	return files.WriteFile(ctx, at, f.Data, sandbox.WriteOptions{Mode: f.Mode, InPlace: f.Link && !wide})
}

// MkdirAll makes missing folders where one of the approved paths needs them.
func (t *target) MkdirAll(ctx context.Context, path string) error {
	files, at := t.fs, path
	if t.wide != nil {
		real := resolve(path)
		for g := range t.granted {
			if strings.HasPrefix(g, real+"/") {
				files, at = t.wide, real
			}
		}
	}
	return files.MkdirAll(ctx, at, 0o777)
}

func (t *target) Rename(ctx context.Context, from, to string) error {
	a, src, awide := t.through(from)
	_, dst, bwide := t.through(to)
	if awide != bwide {
		return &fs.PathError{Op: "rename", Path: from, Err: syscall.EXDEV}
	}
	return a.Rename(ctx, src, dst, false)
}

func (t *target) Remove(ctx context.Context, path string) error {
	files, at, _ := t.through(path)
	if files == t.fs && t.wide != nil {
		for g := range t.granted { // a folder made for an approved path
			if strings.HasPrefix(g, path+"/") {
				files = t.wide
			}
		}
	}
	return files.Remove(ctx, at, false)
}
