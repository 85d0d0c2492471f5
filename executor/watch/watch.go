// Package watch tells a client of changes of files.
//
// Serve watches files and folders, not what is below the names in a folder. A
// path need not exist: the nearest folder above it is watched until it does, and
// again after it has gone. Changes are gathered for a moment and then told once
// each. A change is never missed silently: where the kernel lost some, the
// watched path itself is named. The number of watches is bounded; everything
// ends with Serve.
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
	"time"

	"github.com/fsnotify/fsnotify"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	defaultMax   = 1024
	defaultDelay = 200 * time.Millisecond
	// maxPaths is how many changed paths of one watch are named; with more only
	// the watched path is.
	maxPaths = 1000
	// armTries bounds how often a path that changes while it is being watched is
	// looked at again.
	armTries = 5
)

// Config of Serve; the zero value has defaults.
type Config struct {
	// Max is the number of watches; 0 means 1024.
	Max int
	// Delay is how long changes are gathered; 0 means 200 ms.
	Delay time.Duration
}

// Serve takes commands from next until it returns an error, io.EOF for the
// orderly end, and gives what happens to emit. emit is called by one goroutine
// at a time and may block.
func Serve(ctx context.Context, cfg Config, next func() (*heddlev1.WatchCommand, error), emit func(*heddlev1.WatchEvent) error) error {
	if cfg.Max <= 0 {
		cfg.Max = defaultMax
	}
	if cfg.Delay <= 0 {
		cfg.Delay = defaultDelay
	}
	kernel, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch files: %w", err)
	}
	defer kernel.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	commands := make(chan *heddlev1.WatchCommand)
	go func() {
		for {
			c, err := next()
			if err != nil {
				cancel(err)
				return
			}
			select {
			case commands <- c:
			case <-ctx.Done():
				return
			}
		}
	}()
	w := &watcher{cfg: cfg, kernel: kernel, emit: emit, entries: map[string]*entry{}, armed: map[string]bool{}}
	err = w.run(ctx, commands)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

type watcher struct {
	cfg     Config
	kernel  *fsnotify.Watcher
	emit    func(*heddlev1.WatchEvent) error
	entries map[string]*entry
	order   []*entry
	// armed are the folders that the kernel watches.
	armed map[string]bool
}

// entry is one watch.
type entry struct {
	id string
	// path is as asked for, real without links as far as it exists, link the
	// name itself without links in the folders above it.
	path, real, link string
	exists           bool
	// wants are the folders whose changes matter to it.
	wants   []string
	changed map[string]bool
}

func (w *watcher) run(ctx context.Context, commands <-chan *heddlev1.WatchCommand) error {
	var flush <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case c := <-commands:
			if err := w.command(c); err != nil {
				return err
			}
		case e, ok := <-w.kernel.Events:
			if !ok {
				return errors.New("watch files: the kernel's queue was closed")
			}
			w.event(e)
		case err := <-w.kernel.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch files: %w", err)
			}
			for _, e := range w.order {
				e.mark(e.real)
			}
		case <-flush:
			flush = nil
			if err := w.flush(); err != nil {
				return err
			}
		}
		if flush == nil && w.pending() {
			flush = time.After(w.cfg.Delay)
		}
	}
}

func (w *watcher) command(c *heddlev1.WatchCommand) error {
	switch c := c.GetCommand().(type) {
	case *heddlev1.WatchCommand_Add:
		id, path := c.Add.GetWatchId(), c.Add.GetPath()
		added := &heddlev1.WatchAdded{WatchId: id, Path: path, Fault: w.add(id, path)}
		return w.emit(&heddlev1.WatchEvent{Event: &heddlev1.WatchEvent_Added{Added: added}})
	case *heddlev1.WatchCommand_Remove:
		w.remove(c.Remove.GetWatchId())
	}
	return nil
}

func (w *watcher) add(id, path string) *heddlev1.FileFault {
	switch {
	case !filepath.IsAbs(path):
		return fault(syscall.EINVAL)
	case w.entries[id] != nil:
		return &heddlev1.FileFault{Message: "watchId already exists: " + id}
	case len(w.order) >= w.cfg.Max:
		return &heddlev1.FileFault{Message: fmt.Sprintf("too many watches: limit is %d", w.cfg.Max)}
	}
	e := &entry{id: id, path: filepath.Clean(path), changed: map[string]bool{}}
	w.entries[id] = e
	w.order = append(w.order, e)
	if err := w.arm(e); err != nil {
		w.remove(id)
		return fault(err)
	}
	clear(e.changed)
	return nil
}

func fault(err error) *heddlev1.FileFault {
	f := &heddlev1.FileFault{Kind: heddlev1.FileFault_KIND_SYSTEM, Errno: int32(syscall.EIO), Message: err.Error()}
	var no syscall.Errno
	if errors.As(err, &no) {
		text := no.Error()
		f.Errno, f.Message = int32(no), strings.ToUpper(text[:1])+text[1:]
	}
	return f
}

func (w *watcher) remove(id string) {
	e := w.entries[id]
	if e == nil {
		return
	}
	delete(w.entries, id)
	w.order = slices.DeleteFunc(w.order, func(o *entry) bool { return o == e })
	w.disarm(e.wants)
}

// disarm ends the kernel's watch of folders that no entry wants.
func (w *watcher) disarm(dirs []string) {
	for _, d := range dirs {
		wanted := slices.ContainsFunc(w.order, func(e *entry) bool { return slices.Contains(e.wants, d) })
		if !wanted && w.armed[d] {
			delete(w.armed, d)
			_ = w.kernel.Remove(d) // gone by itself when the folder is
		}
	}
}

// arm makes the kernel watch what an entry needs. What changes meanwhile is
// looked at again; an entry that came into being meanwhile has changed.
func (w *watcher) arm(e *entry) error {
	old := e.wants
	var err error
	for range armTries {
		at := place(e.path)
		if at.exists != e.exists || at.real != e.real {
			e.mark(at.real)
		}
		e.real, e.link, e.exists, e.wants = at.real, at.link, at.exists, at.wants
		if err = w.watchAll(e.wants); err == nil && place(e.path).same(at) {
			break
		}
		if err != nil && !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ENOTDIR) {
			break
		}
	}
	w.disarm(old)
	return err
}

func (w *watcher) watchAll(dirs []string) error {
	for _, d := range dirs {
		if w.armed[d] {
			continue
		}
		if err := w.kernel.Add(d); err != nil {
			return err
		}
		w.armed[d] = true
	}
	return nil
}

// spot is what a path leads to at one moment.
type spot struct {
	real, link string
	exists     bool
	wants      []string
}

func (s spot) same(o spot) bool {
	return s.real == o.real && s.link == o.link && s.exists == o.exists && slices.Equal(s.wants, o.wants)
}

func place(path string) spot {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		s := spot{real: real, exists: true, wants: []string{filepath.Dir(real)}}
		if isDir(real) {
			s.wants = []string{real}
			if up := filepath.Dir(real); up != real {
				s.wants = append(s.wants, up)
			}
		}
		s.link = real
		if up, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
			s.link = filepath.Join(up, filepath.Base(path))
			if s.link != real && !slices.Contains(s.wants, up) {
				s.wants = append(s.wants, up)
			}
		}
		return s
	}
	rest := filepath.Base(path)
	for up := filepath.Dir(path); ; up = filepath.Dir(up) {
		if real, err := filepath.EvalSymlinks(up); err == nil && isDir(real) {
			name := filepath.Join(real, rest)
			return spot{real: name, link: name, wants: []string{real}}
		}
		if up == filepath.Dir(up) {
			return spot{real: path, link: path, wants: []string{"/"}}
		}
		rest = filepath.Join(filepath.Base(up), rest)
	}
}

// event takes one change from the kernel.
func (w *watcher) event(ev fsnotify.Event) {
	name := filepath.Clean(ev.Name)
	if ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename) {
		for d := range w.armed {
			if d == name || strings.HasPrefix(d, name+"/") {
				delete(w.armed, d)
				_ = w.kernel.Remove(d)
			}
		}
	}
	moved := ev.Has(fsnotify.Create) || ev.Has(fsnotify.Remove) || ev.Has(fsnotify.Rename)
	for _, e := range w.order {
		switch {
		case name == e.real, name == e.link:
			e.mark(e.real)
		case e.exists && filepath.Dir(name) == e.real:
			e.mark(name)
			continue
		case !strings.HasPrefix(e.real, strings.TrimSuffix(name, "/")+"/"):
			continue
		}
		if moved {
			if err := w.arm(e); err != nil {
				e.mark(e.real) // it cannot be watched any more, which is a change
			}
		}
	}
}

func (e *entry) mark(name string) {
	e.changed[name] = true
	if len(e.changed) > maxPaths {
		clear(e.changed)
		e.changed[e.real] = true
	}
}

func (w *watcher) pending() bool {
	return slices.ContainsFunc(w.order, func(e *entry) bool { return len(e.changed) > 0 })
}

// flush tells what was gathered, under the paths that were asked for.
func (w *watcher) flush() error {
	for _, e := range w.order {
		if len(e.changed) == 0 {
			continue
		}
		c := &heddlev1.FilesChanged{WatchId: e.id}
		for name := range e.changed {
			c.Paths = append(c.Paths, strings.ToValidUTF8(e.asked(name), "\uFFFD"))
		}
		clear(e.changed)
		slices.Sort(c.Paths)
		c.Paths = slices.Compact(c.Paths)
		if err := w.emit(&heddlev1.WatchEvent{Event: &heddlev1.WatchEvent_Changed{Changed: c}}); err != nil {
			return err
		}
	}
	return nil
}

// asked translates a path of the kernel into the terms of the watch.
func (e *entry) asked(name string) string {
	if rest, below := strings.CutPrefix(name, e.real+"/"); below {
		return filepath.Join(e.path, rest)
	}
	return e.path
}
func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
