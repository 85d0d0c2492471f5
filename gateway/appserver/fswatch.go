package appserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
)

const (
	// maxWatches bounds the watches of one connection.
	maxWatches = 512
	// watchRetry is the longest wait before watching goes on after a loss.
	watchRetry = 2 * time.Second
)

// watches are the files that one connection watches. One stream serves them
// all; it is open while there are any. After its loss they are set up again, and
// each is told as changed, because something may have been missed.
type watches struct {
	client *client

	mu      sync.Mutex
	byID    map[string]*fileWatch
	running bool
	// todo are commands for the stream, in order.
	todo []*heddlev1.WatchCommand
	wake chan struct{}
}

type fileWatch struct {
	id, path string
	// answer finishes the request; nil once it is answered.
	answer func(result any, err error)
}

func newWatches(c *client) *watches {
	return &watches{client: c, byID: map[string]*fileWatch{}, wake: make(chan struct{}, 1)}
}

func (s *Server) fsWatch(_ context.Context, r *call, p *protocol.FsWatchParams) (any, error) {
	if err := r.client.watches.add(&fileWatch{id: p.WatchID, path: string(p.Path), answer: r.finish}); err != nil {
		return nil, err
	}
	r.later = true
	return nil, nil
}

func (s *Server) fsUnwatch(_ context.Context, r *call, p *protocol.FsUnwatchParams) (any, error) {
	r.client.watches.remove(p.WatchID)
	return list{}, nil
}

func (w *watches) add(f *fileWatch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byID[f.id] != nil {
		return invalid("watchId already exists: " + f.id)
	}
	if len(w.byID) >= maxWatches {
		return &jsonrpc.Error{Code: jsonrpc.CodeOverloaded, Message: fmt.Sprintf("Server overloaded; a connection has at most %d watches.", maxWatches)}
	}
	w.byID[f.id] = f
	w.push(addCommand(f))
	if !w.running {
		w.running = true
		go w.run()
	}
	return nil
}

func addCommand(f *fileWatch) *heddlev1.WatchCommand {
	return &heddlev1.WatchCommand{Command: &heddlev1.WatchCommand_Add{Add: &heddlev1.WatchAdd{WatchId: f.id, Path: f.path}}}
}

// remove ends a watch; one whose request is not answered yet ends when it is.
func (w *watches) remove(id string) {
	w.mu.Lock()
	f := w.byID[id]
	delete(w.byID, id)
	if f != nil {
		w.push(&heddlev1.WatchCommand{Command: &heddlev1.WatchCommand_Remove{Remove: &heddlev1.WatchRemove{WatchId: id}}})
	}
	w.mu.Unlock()
	if f != nil {
		w.settle(f, nil)
	}
}

// settle answers the request of a watch, once.
func (w *watches) settle(f *fileWatch, err error) {
	w.mu.Lock()
	answer := f.answer
	f.answer = nil
	w.mu.Unlock()
	if answer != nil {
		answer(list{"path": f.path}, err)
	}
}

// push queues a command; mu is held.
func (w *watches) push(c *heddlev1.WatchCommand) {
	w.todo = append(w.todo, c)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run keeps the stream until no watch is left or the connection ends.
func (w *watches) run() {
	ctx := w.client.ctx
	wait := 20 * time.Millisecond
	again := false
	for {
		w.restart()
		began := time.Now()
		err := w.serve(ctx, again)
		if w.idle() {
			return
		}
		if ctx.Err() != nil {
			w.fail(ctx.Err())
			return
		}
		if err != nil {
			w.fail(err)
			if w.idle() {
				return
			}
		}
		again = true
		if time.Since(began) > 5*time.Second {
			wait = 20 * time.Millisecond
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		wait = min(2*wait, watchRetry)
	}
}

// idle reports, and notes, that there is nothing to watch any more.
func (w *watches) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.byID) == 0 {
		w.running = false
	}
	return !w.running
}

// restart makes the commands of a new stream.
func (w *watches) restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.todo = nil
	for _, f := range w.byID {
		w.push(addCommand(f))
	}
}

// fail answers the requests that wait. Watches that are in force stay.
func (w *watches) fail(err error) {
	w.mu.Lock()
	var waiting []*fileWatch
	for id, f := range w.byID {
		if f.answer != nil {
			waiting = append(waiting, f)
			delete(w.byID, id)
		}
	}
	w.mu.Unlock()
	for _, f := range waiting {
		w.settle(f, err)
	}
}

// serve runs one stream.
func (w *watches) serve(ctx context.Context, again bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stream grpc.BidiStreamingClient[heddlev1.WatchFilesRequest, heddlev1.WatchFilesResponse]
	err := w.client.srv.session.Stream(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		stream, err = heddlev1.NewWorkspaceServiceClient(cc).WatchFiles(ctx)
		return err
	})
	if err != nil {
		return err
	}
	go w.commands(ctx, stream)
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch e := m.GetEvent().GetEvent().(type) {
		case *heddlev1.WatchEvent_Added:
			w.added(e.Added, again)
		case *heddlev1.WatchEvent_Changed:
			w.changed(e.Changed.GetWatchId(), e.Changed.GetPaths())
		}
	}
}

// commands sends what is queued, and the end when no watch is left.
func (w *watches) commands(ctx context.Context, stream grpc.BidiStreamingClient[heddlev1.WatchFilesRequest, heddlev1.WatchFilesResponse]) {
	err := stream.Send(&heddlev1.WatchFilesRequest{Message: &heddlev1.WatchFilesRequest_Start{Start: &heddlev1.WatchStart{ConnectionId: w.client.id}}})
	for err == nil {
		w.mu.Lock()
		todo, over := w.todo, len(w.byID) == 0
		w.todo = nil
		w.mu.Unlock()
		if over {
			_ = stream.CloseSend()
			return
		}
		for _, c := range todo {
			if err = stream.Send(&heddlev1.WatchFilesRequest{Message: &heddlev1.WatchFilesRequest_Command{Command: c}}); err != nil {
				return // Recv tells why
			}
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		}
	}
}

func (w *watches) added(a *heddlev1.WatchAdded, again bool) {
	w.mu.Lock()
	f := w.byID[a.GetWatchId()]
	fresh := f != nil && f.answer != nil
	if f != nil && a.GetFault() != nil && fresh {
		delete(w.byID, f.id)
	}
	w.mu.Unlock()
	if f == nil {
		return
	}
	var err error
	if a.GetFault() != nil {
		err = faultError(a.GetFault())
	}
	w.settle(f, err)
	if again && !fresh {
		w.changed(f.id, []string{f.path})
	}
}

// changed tells the connection, which may take its time.
func (w *watches) changed(id string, paths []string) {
	w.mu.Lock()
	known := w.byID[id] != nil
	w.mu.Unlock()
	if known {
		w.client.tell("fs/changed", list{"watchId": id, "changedPaths": paths})
	}
}
