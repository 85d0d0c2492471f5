package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const delay = 20 * time.Millisecond

// rig is one Serve.
type rig struct {
	t        *testing.T
	commands chan *heddlev1.WatchCommand
	events   chan *heddlev1.WatchEvent
	done     chan error
}

func serve(t *testing.T, cfg Config) *rig {
	t.Helper()
	r := &rig{t: t, commands: make(chan *heddlev1.WatchCommand), events: make(chan *heddlev1.WatchEvent, 10_000), done: make(chan error, 1)}
	if cfg.Delay == 0 {
		cfg.Delay = delay
	}
	go func() {
		r.done <- Serve(context.Background(), cfg, func() (*heddlev1.WatchCommand, error) {
			c, ok := <-r.commands
			if !ok {
				return nil, io.EOF
			}
			return c, nil
		}, func(e *heddlev1.WatchEvent) error { r.events <- e; return nil })
	}()
	t.Cleanup(func() {
		close(r.commands)
		if err := <-r.done; err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) event() *heddlev1.WatchEvent {
	r.t.Helper()
	select {
	case e := <-r.events:
		return e
	case <-time.After(10 * time.Second):
		r.t.Fatal("no event came")
		return nil
	}
}

func (r *rig) add(id, path string) *heddlev1.WatchAdded {
	r.t.Helper()
	r.commands <- &heddlev1.WatchCommand{Command: &heddlev1.WatchCommand_Add{Add: &heddlev1.WatchAdd{WatchId: id, Path: path}}}
	for {
		if a := r.event().GetAdded(); a != nil {
			return a
		}
	}
}

func (r *rig) mustAdd(id, path string) {
	r.t.Helper()
	if a := r.add(id, path); a.GetFault() != nil || a.GetPath() != path || a.GetWatchId() != id {
		r.t.Fatalf("add %s: %v", path, a)
	}
}

// changed waits until a watch has told of a path.
func (r *rig) changed(id, path string) {
	r.t.Helper()
	for {
		if c := r.event().GetChanged(); c.GetWatchId() == id && slices.Contains(c.GetPaths(), path) {
			return
		}
	}
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestFile(t *testing.T) {
	t.Parallel()
	r, dir := serve(t, Config{}), t.TempDir()
	f := filepath.Join(dir, "f")
	put(t, f, "1")
	r.mustAdd("w", f)
	put(t, filepath.Join(dir, "other"), "x")
	put(t, f, "2")
	if c := r.event().GetChanged(); !slices.Equal(c.GetPaths(), []string{f}) {
		t.Errorf("changed %v", c)
	}
	// A replacement by rename, a removal, and a file that is there again.
	put(t, f+".new", "3")
	ok(t, os.Rename(f+".new", f))
	r.changed("w", f)
	ok(t, os.Remove(f))
	r.changed("w", f)
	put(t, f, "4")
	r.changed("w", f)
}

func TestFolder(t *testing.T) {
	t.Parallel()
	r, dir := serve(t, Config{}), t.TempDir()
	ok(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	r.mustAdd("w", dir)
	put(t, filepath.Join(dir, "sub", "deep"), "x") // not watched
	for i := range 20 {
		put(t, filepath.Join(dir, "a"), fmt.Sprint(i))
	}
	put(t, filepath.Join(dir, "b"), "x")
	r.changed("w", filepath.Join(dir, "b"))
	ok(t, os.RemoveAll(dir))
	r.changed("w", dir)
	ok(t, os.Mkdir(dir, 0o755))
	r.changed("w", dir)
	put(t, filepath.Join(dir, "c"), "x")
	r.changed("w", filepath.Join(dir, "c"))
}

func TestPathThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	r, dir := serve(t, Config{}), t.TempDir()
	f := filepath.Join(dir, "one", "two", "f")
	r.mustAdd("w", f)
	put(t, filepath.Join(dir, "unrelated"), "x")
	ok(t, os.MkdirAll(filepath.Dir(f), 0o755))
	put(t, f, "x")
	r.changed("w", f)
	ok(t, os.RemoveAll(filepath.Join(dir, "one")))
	r.changed("w", f)
	ok(t, os.MkdirAll(filepath.Dir(f), 0o755))
	put(t, f, "x")
	r.changed("w", f)
}

func TestLinks(t *testing.T) {
	t.Parallel()
	r, dir := serve(t, Config{}), t.TempDir()
	for _, d := range []string{"real", "other", "names"} {
		ok(t, os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	put(t, filepath.Join(dir, "real/f"), "x")
	put(t, filepath.Join(dir, "other/f"), "y")
	link := filepath.Join(dir, "names/link")
	ok(t, os.Symlink("../real", link))
	r.mustAdd("dir", link)
	r.mustAdd("file", filepath.Join(link, "f"))
	put(t, filepath.Join(dir, "real/f"), "z")
	// Told in the terms of the watch, whatever the links lead to.
	r.changed("file", filepath.Join(link, "f"))
	put(t, filepath.Join(dir, "real/new"), "z")
	r.changed("dir", filepath.Join(link, "new"))
	ok(t, os.Symlink("../other", link+".tmp"))
	ok(t, os.Rename(link+".tmp", link))
	r.changed("dir", link)
	put(t, filepath.Join(dir, "other/g"), "y")
	r.changed("dir", filepath.Join(link, "g"))
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	r, dir := serve(t, Config{Max: 1}), t.TempDir()
	if f := r.add("rel", "x/y").GetFault(); f.GetErrno() != int32(syscall.EINVAL) {
		t.Errorf("relative path: %v", f)
	}
	r.mustAdd("w", dir)
	if f := r.add("w", dir).GetFault(); !strings.Contains(f.GetMessage(), "already exists: w") {
		t.Errorf("id in use: %v", f)
	}
	if f := r.add("v", dir).GetFault(); !strings.Contains(f.GetMessage(), "limit is 1") {
		t.Errorf("too many: %v", f)
	}
	r.commands <- &heddlev1.WatchCommand{Command: &heddlev1.WatchCommand_Remove{Remove: &heddlev1.WatchRemove{WatchId: "w"}}}
	r.commands <- &heddlev1.WatchCommand{Command: &heddlev1.WatchCommand_Remove{Remove: &heddlev1.WatchRemove{WatchId: "unknown"}}}
	r.mustAdd("v", dir)
	put(t, filepath.Join(dir, "f"), "x")
	if c := r.event().GetChanged(); c.GetWatchId() != "v" {
		t.Errorf("event of a watch that was removed: %v", c)
	}
}

// A flood of changes is told with the watched path alone.
func TestFlood(t *testing.T) {
	t.Parallel()
	e := &entry{id: "w", path: "/asked", real: "/real", changed: map[string]bool{}}
	for i := range 3 * maxPaths {
		e.mark(fmt.Sprint("/real/f", i))
		if len(e.changed) > maxPaths {
			t.Fatalf("%d paths are kept", len(e.changed))
		}
	}
	if !e.changed["/real"] || e.asked("/real") != "/asked" || e.asked("/real/x") != "/asked/x" {
		t.Errorf("the watched path is not named: %d paths", len(e.changed))
	}
}

func TestErrorsEndServe(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	dir := t.TempDir()
	sent := false
	err := Serve(context.Background(), Config{}, func() (*heddlev1.WatchCommand, error) {
		if sent {
			select {}
		}
		sent = true
		return &heddlev1.WatchCommand{Command: &heddlev1.WatchCommand_Add{Add: &heddlev1.WatchAdd{WatchId: "w", Path: dir}}}, nil
	}, func(*heddlev1.WatchEvent) error { return broken })
	if !errors.Is(err, broken) {
		t.Errorf("emit: %v", err)
	}
	err = Serve(context.Background(), Config{}, func() (*heddlev1.WatchCommand, error) { return nil, broken }, nil)
	if !errors.Is(err, broken) {
		t.Errorf("next: %v", err)
	}
}
