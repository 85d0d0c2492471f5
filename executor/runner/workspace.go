package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/heddle-dev/heddle/executor/inspect"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/sandbox"
)

const (
	defaultRead = 1 << 20
	maxRead     = 12 << 20
	// wholeRead is the largest file of which a part can be read.
	wholeRead = 64 << 20
	// maxResult is the size of a result message. A control plane takes messages
	// of 16 MiB at least.
	maxResult = 15 << 20
)

// prepare makes the scope's sandbox ready.
func (r *Runner) prepare(ctx context.Context, a *action, m *executorv1.Action, res *executorv1.ActionResult) *heddlev1.ActionError {
	policy := r.policy(m)
	b, err := r.box(ctx, a.lease, policy)
	if err != nil {
		return failure(ctx, err, codeIO)
	}
	if p := m.GetPrepare(); p.GetShell() != "" {
		r.logins.Warm(ctx, boxKey(a.lease, policy), p.GetShell(), m.GetWorkspace(), p.GetEnv(), runIn(b))
	}
	res.Outcome = &executorv1.ActionResult_Prepared{Prepared: &executorv1.Prepared{Report: reportFor(r.cfg.Report(), policy)}}
	return nil
}

func (r *Runner) inspect(ctx context.Context, q *executorv1.Inspect, res *executorv1.ActionResult) *heddlev1.ActionError {
	places := r.places(q.GetPlaces())
	if q.GetPlacesOnly() {
		res.Outcome = &executorv1.ActionResult_Inspection{Inspection: &executorv1.Inspection{Places: places}}
		return nil
	}
	found, err := inspect.Workspace(ctx, inspect.Query{Cwd: q.GetCwd(), Names: q.GetInstructionNames(), MaxBytes: q.GetMaxBytes(), RootMarkers: q.GetRootMarkers()})
	if err != nil {
		return failure(ctx, err, codeIO)
	}
	out := &executorv1.Inspection{
		CwdExists: found.CwdExists, RepoRoot: valid(found.RepoRoot),
		Shell: valid(found.Shell), Timezone: valid(found.Timezone), Os: valid(found.OS), Places: places,
	}
	if found.RepoRoot != "" {
		out.Git = &heddlev1.GitInfo{Sha: valid(found.Git.SHA), Branch: valid(found.Git.Branch), OriginUrl: valid(found.Git.OriginURL)}
	}
	for _, f := range found.Instructions {
		out.Instructions = append(out.Instructions, &executorv1.InstructionFile{Path: valid(f.Path), Content: valid(f.Content)})
	}
	for _, w := range found.Warnings {
		out.Warnings = append(out.Warnings, valid(w))
	}
	res.Outcome = &executorv1.ActionResult_Inspection{Inspection: out}
	return nil
}

// maxPlaces bounds the folders that are looked at in one action.
const maxPlaces = 256

// places says where paths lead. One that cannot be followed, or cannot be said in text, is left out.
func (r *Runner) places(paths []string) []*heddlev1.Place {
	var out []*heddlev1.Place
	for _, path := range paths[:min(len(paths), maxPlaces)] {
		at, err := sandbox.Locate(path)
		if err != nil || valid(at.Real) != at.Real {
			r.log.Warn("cannot tell where a folder leads", "path", path, "cause", err)
			continue
		}
		fi, err := os.Lstat(at.Real)
		out = append(out, &heddlev1.Place{Path: path, Real: at.Real, Device: at.Device, Inode: at.Inode, Host: r.host, Directory: err == nil && fi.IsDir()})
	}
	return out
}

// readFile reads the beginning of a file as the sandbox sees it.
func (r *Runner) readFile(ctx context.Context, a *action, m *executorv1.Action, f *executorv1.ReadFile, res *executorv1.ActionResult) *heddlev1.ActionError {
	if !filepath.IsAbs(f.GetPath()) {
		return failure(ctx, refusedf("path %q is not absolute", f.GetPath()), codeRefused)
	}
	limit := f.GetMaxBytes()
	if limit <= 0 {
		limit = defaultRead
	}
	limit = min(limit, maxRead)
	b, err := r.box(ctx, a.lease, r.policy(m))
	if err != nil {
		return failure(ctx, err, codeIO)
	}
	data, err := b.FS().ReadFile(ctx, f.GetPath(), limit)
	truncated := errors.Is(err, sandbox.ErrTooLarge)
	if truncated {
		data, err = b.FS().ReadFile(ctx, f.GetPath(), wholeRead)
		data = data[:min(int64(len(data)), limit)]
	}
	if err != nil {
		return failure(ctx, err, codeIO)
	}
	res.Outcome = &executorv1.ActionResult_FileContent{FileContent: &executorv1.FileContent{Data: data, Truncated: truncated}}
	return nil
}
