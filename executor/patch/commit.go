package patch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"github.com/heddle-dev/heddle/proto/failpoint"
)

// restoreTime bounds putting files back after a failure; it is independent of
// the caller's context, which may be what failed.
const restoreTime = 10 * time.Second

// Target is where a plan is written. Write replaces or creates a file with its
// missing folders; mode is used for a new one only. Rename keeps the file and
// fails with syscall.EXDEV where it cannot.
type Target interface {
	FS
	Exists(ctx context.Context, path string) (bool, error)
	Write(ctx context.Context, path string, f File) error
	MkdirAll(ctx context.Context, path string) error
	Rename(ctx context.Context, from, to string) error
	Remove(ctx context.Context, path string) error
}

// ChangedError says that a file is no longer what the plan was made against.
type ChangedError struct{ Path string }

func (e *ChangedError) Error() string {
	return fmt.Sprintf("%s has changed since the patch was planned", e.Path)
}

// Commit writes the plan: moved and written files first, deletions last. When a
// file fails, those already written are restored and the error says so.
func Commit(ctx context.Context, t Target, p *Plan) error {
	c := &committer{t: t, plan: p}
	err := c.all(ctx)
	if err == nil {
		return nil
	}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTime)
	defer cancel()
	if rerr := c.restore(back); rerr != nil {
		return fmt.Errorf("%w; restoring the files written before it failed too: %w", err, rerr)
	}
	return err
}

type committer struct {
	t    Target
	plan *Plan
	undo []func(context.Context) error
}

func (c *committer) all(ctx context.Context) error {
	for _, ch := range c.plan.Changes {
		var err error
		switch {
		case ch.Kind == "delete":
			continue
		case ch.MovePath != "":
			err = c.move(ctx, ch)
		default:
			err = c.write(ctx, ch.Path, *ch.After)
		}
		if err != nil {
			return err
		}
		failpoint.Hit("executor/patch-partly-written")
	}
	for _, ch := range c.plan.Changes {
		if ch.Kind != "delete" {
			continue
		}
		if err := c.remove(ctx, ch.Path); err != nil {
			return err
		}
	}
	return nil
}

// fresh checks a base right before it is replaced; the window that is left is
// one round trip to the guest.
func (c *committer) fresh(ctx context.Context, path string) error {
	base := c.plan.Base[path]
	f, err := c.t.Read(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		if base == nil {
			return nil
		}
		return &ChangedError{path}
	}
	if err != nil {
		return fmt.Errorf("read %s before writing it: %w", path, err)
	}
	if base == nil || !bytes.Equal(base.Data, f.Data) {
		return &ChangedError{path}
	}
	return nil
}

func (c *committer) write(ctx context.Context, path string, f File) error {
	if err := c.fresh(ctx, path); err != nil {
		return err
	}
	if err := c.parents(ctx, path); err != nil {
		return err
	}
	if err := c.t.Write(ctx, path, f); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	c.later(path)
	return nil
}

// later registers how a written path is put back.
func (c *committer) later(path string) {
	base := c.plan.Base[path]
	c.undo = append(c.undo, func(ctx context.Context) error {
		if base == nil {
			return c.t.Remove(ctx, path)
		}
		return c.t.Write(ctx, path, *base)
	})
}

// move renames first, so that owner and mode stay, and then writes the content.
func (c *committer) move(ctx context.Context, ch Change) error {
	if err := errors.Join(c.fresh(ctx, ch.Path), c.fresh(ctx, ch.MovePath)); err != nil {
		return err
	}
	if err := c.parents(ctx, ch.MovePath); err != nil {
		return err
	}
	err := c.t.Rename(ctx, ch.Path, ch.MovePath)
	if errors.Is(err, syscall.EXDEV) {
		if err := c.t.Write(ctx, ch.MovePath, *ch.After); err != nil {
			return fmt.Errorf("write %s: %w", ch.MovePath, err)
		}
		c.later(ch.MovePath)
		return c.remove(ctx, ch.Path)
	}
	if err != nil {
		return fmt.Errorf("move %s to %s: %w", ch.Path, ch.MovePath, err)
	}
	target := c.plan.Base[ch.MovePath]
	c.undo = append(c.undo, func(ctx context.Context) error {
		if err := c.t.Rename(ctx, ch.MovePath, ch.Path); err != nil {
			return err
		}
		if target == nil {
			return nil
		}
		return c.t.Write(ctx, ch.MovePath, *target)
	})
	if bytes.Equal(ch.Before.Data, ch.After.Data) {
		return nil
	}
	if err := c.t.Write(ctx, ch.MovePath, *ch.After); err != nil {
		return fmt.Errorf("write %s: %w", ch.MovePath, err)
	}
	c.undo = append(c.undo, func(ctx context.Context) error { return c.t.Write(ctx, ch.MovePath, *ch.Before) })
	return nil
}

func (c *committer) remove(ctx context.Context, path string) error {
	if err := c.fresh(ctx, path); err != nil {
		return err
	}
	if err := c.t.Remove(ctx, path); err != nil {
		return fmt.Errorf("delete %s: %w", path, err)
	}
	c.later(path)
	return nil
}

// parents makes the missing folders of a path, remembering them for undo.
func (c *committer) parents(ctx context.Context, path string) error {
	var missing []string
	dir := filepath.Dir(path)
	for d := dir; ; d = filepath.Dir(d) {
		ok, err := c.t.Exists(ctx, d)
		if err != nil {
			return fmt.Errorf("look at folder %s: %w", d, err)
		}
		if ok || d == filepath.Dir(d) {
			break
		}
		missing = append(missing, d)
	}
	if len(missing) == 0 {
		return nil
	}
	if err := c.t.MkdirAll(ctx, dir); err != nil {
		return fmt.Errorf("make folder %s: %w", dir, err)
	}
	c.undo = append(c.undo, func(ctx context.Context) error {
		for _, d := range missing {
			if err := c.t.Remove(ctx, d); err != nil {
				return err
			}
		}
		return nil
	})
	return nil
}

// restore runs the undo steps from the last to the first, all of them.
func (c *committer) restore(ctx context.Context) error {
	var errs []error
	for i := len(c.undo) - 1; i >= 0; i-- {
		errs = append(errs, c.undo[i](ctx))
	}
	return errors.Join(errs...)
}
