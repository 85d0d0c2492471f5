package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/dispatch"
	"github.com/heddle-dev/heddle/controlplane/session"
	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// maxContent bounds what a client writes to one file.
	maxContent = 64 << 20
	// maxFrame bounds one message that an executor sends as output.
	maxFrame = 8 << 20
	// entriesPerMessage is how many names of a folder go in one message.
	entriesPerMessage = 1000
	maxSearchRoots    = 64
	// maxProjectFile bounds the config file of a project.
	maxProjectFile = 1 << 20
)

// clientAuthority is the policy of what a client does by itself: it may do what
// the executor may. No command runs under it.
func clientAuthority() *heddlev1.SandboxPolicy {
	return &heddlev1.SandboxPolicy{
		Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS, Network: heddlev1.NetworkMode_NETWORK_MODE_FULL, HostTmp: true,
	}
}

// work is one action of a connection that is not a process.
type work struct {
	ctx    context.Context
	handle *dispatch.Handle
	leave  func()
}

// begin starts an action of a connection.
func (s *WorkspaceService) begin(ctx context.Context, connectionID string, action *executorv1.Action, out func([]byte) error) (*work, error) {
	view, err := s.sessions.Lookup(ctx)
	if err != nil {
		return nil, err
	}
	if connectionID == "" {
		return nil, errdefs.New(errdefs.InvalidArgument, "the first message needs a connection id")
	}
	return s.beginFor(ctx, view.ID(), connectionID, view.Principal(), action, out)
}

func (s *WorkspaceService) beginFor(ctx context.Context, sessionID, connectionID, principal string, action *executorv1.Action, out func([]byte) error) (*work, error) {
	scope, err := s.enter(sessionID, connectionID)
	if err != nil {
		return nil, err
	}
	action.ActionId, action.Attempt = uuid.Must(uuid.NewV7()).String(), 1
	action.Policy, action.Workspace = clientAuthority(), "/"
	h, err := s.dispatcher.Start(ctx, dispatch.Spec{
		Scope: scope, Principal: principal, Action: action,
		Output: func(c *executorv1.OutputChunk) error { return out(c.GetData()) },
	})
	if err != nil {
		s.leave(scope)
		return nil, err
	}
	return &work{ctx: ctx, handle: h, leave: func() { s.leave(scope) }}, nil
}

// end waits for the result. What kept the executor from doing the action is an
// error.
func (w *work) end() (*executorv1.ActionResult, error) {
	defer w.leave()
	res, err := w.handle.Result(w.ctx)
	if err != nil {
		return nil, err
	}
	w.handle.Ack()
	if e := res.GetError(); e != nil {
		reason := errdefs.Internal
		switch e.GetCode() {
		case "not_enforceable":
			reason = errdefs.NotEnforceable
		case "executor_lost", "sandbox_lost":
			reason = errdefs.ExecutorLost
		}
		return nil, errdefs.New(reason, "%s", e.GetMessage()).With("code", e.GetCode())
	}
	return res, nil
}

// File does one operation on files; see the proto.
func (s *WorkspaceService) File(stream grpc.BidiStreamingServer[heddlev1.FileRequest, heddlev1.FileResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("receive file start: %w", err)
	}
	op := first.GetStart().GetOperation()
	if err := checkOperation(op); err != nil {
		return err
	}
	send := func(data []byte) error {
		return stream.Send(&heddlev1.FileResponse{Message: &heddlev1.FileResponse_Content{Content: data}})
	}
	var list entries
	if op.GetListDirectory() != nil {
		list.send = stream.Send
		send = list.take
	}
	w, err := s.begin(stream.Context(), first.GetStart().GetConnectionId(),
		&executorv1.Action{Kind: &executorv1.Action_FileOperation{FileOperation: op}}, send)
	if err != nil {
		return err
	}
	if op.GetWrite() != nil {
		go w.content(stream)
	}
	res, err := w.end()
	if err != nil {
		return err
	}
	if res.GetFileOutcome() == nil {
		return errdefs.New(errdefs.Internal, "the executor answered a file operation with %T", res.GetOutcome())
	}
	if err := list.flush(); err != nil {
		return err
	}
	return stream.Send(&heddlev1.FileResponse{Message: &heddlev1.FileResponse_Outcome{Outcome: res.GetFileOutcome()}})
}

// projectConnection names the scope under which projects' config is read.
const projectConnection = "project"

// ReadFirst reads the first of some files that exists, on an executor, for a
// session of this machine's user. path is empty when there is none.
func (s *WorkspaceService) ReadFirst(ctx context.Context, sessionID string, paths []string) (path string, data []byte, err error) {
	for _, p := range paths {
		var got []byte
		op := &heddlev1.FileOperation{Operation: &heddlev1.FileOperation_Read{Read: &heddlev1.FileRead{Path: p, MaxBytes: maxProjectFile}}}
		w, err := s.beginFor(ctx, cmp.Or(sessionID, "none"), projectConnection, session.Local,
			&executorv1.Action{Kind: &executorv1.Action_FileOperation{FileOperation: op}},
			func(b []byte) error {
				got = append(got, b...)
				return nil
			})
		if err != nil {
			return "", nil, err
		}
		res, err := w.end()
		if err != nil {
			return "", nil, err
		}
		switch f := res.GetFileOutcome().GetFault(); {
		case f == nil:
			return p, got, nil
		case f.GetErrno() != int32(syscall.ENOENT) && f.GetErrno() != int32(syscall.ENOTDIR):
			return "", nil, fmt.Errorf("read %s: %s", p, f.GetMessage())
		}
	}
	return "", nil, nil
}

// content passes on what a client writes. An end before the announced size ends
// the operation, so that nothing cut off is written.
func (w *work) content(stream grpc.BidiStreamingServer[heddlev1.FileRequest, heddlev1.FileResponse]) {
	for {
		m, err := stream.Recv()
		if err == nil {
			err = w.handle.Stdin(w.ctx, m.GetContent(), false)
		} else if errors.Is(err, io.EOF) {
			_ = w.handle.Stdin(w.ctx, nil, true)
			return
		}
		if err != nil {
			_ = w.handle.Terminate(w.ctx)
			return
		}
	}
}

func checkOperation(op *heddlev1.FileOperation) error {
	var paths []string
	switch o := op.GetOperation().(type) {
	case *heddlev1.FileOperation_Read:
		paths = []string{o.Read.GetPath()}
	case *heddlev1.FileOperation_Write:
		if n := o.Write.GetSize(); n < 0 || n > maxContent {
			return errdefs.New(errdefs.InvalidArgument, "a file of %d bytes is not written: the limit is %d", n, maxContent)
		}
		paths = []string{o.Write.GetPath()}
	case *heddlev1.FileOperation_CreateDirectory:
		paths = []string{o.CreateDirectory.GetPath()}
	case *heddlev1.FileOperation_ListDirectory:
		paths = []string{o.ListDirectory.GetPath()}
	case *heddlev1.FileOperation_Stat:
		paths = []string{o.Stat.GetPath()}
	case *heddlev1.FileOperation_Remove:
		paths = []string{o.Remove.GetPath()}
	case *heddlev1.FileOperation_Copy:
		paths = []string{o.Copy.GetSource(), o.Copy.GetDestination()}
	default:
		return errdefs.New(errdefs.InvalidArgument, "the first message of a file operation is start, with an operation")
	}
	for _, p := range paths {
		if !strings.HasPrefix(p, "/") || strings.ContainsRune(p, 0) {
			return errdefs.New(errdefs.InvalidArgument, "path %q is not absolute", p)
		}
	}
	return nil
}

// entries gathers the names of a folder into messages.
type entries struct {
	send   func(*heddlev1.FileResponse) error
	frames frames
	list   []*heddlev1.DirectoryEntry
}

func (e *entries) take(data []byte) error {
	return e.frames.take(data, func(b []byte) error {
		m := &heddlev1.DirectoryEntry{}
		if err := proto.Unmarshal(b, m); err != nil {
			return fmt.Errorf("entry of a directory: %w", err)
		}
		if e.list = append(e.list, m); len(e.list) >= entriesPerMessage {
			return e.flush()
		}
		return nil
	})
}

func (e *entries) flush() error {
	if len(e.list) == 0 {
		return nil
	}
	m := &heddlev1.FileResponse{Message: &heddlev1.FileResponse_Entries{Entries: &heddlev1.DirectoryEntries{Entries: e.list}}}
	e.list = nil
	return e.send(m)
}

// WatchFiles tells of changes of files; see the proto.
func (s *WorkspaceService) WatchFiles(stream grpc.BidiStreamingServer[heddlev1.WatchFilesRequest, heddlev1.WatchFilesResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("receive watch start: %w", err)
	}
	if first.GetStart() == nil {
		return errdefs.New(errdefs.InvalidArgument, "the first message of a watch is start")
	}
	out := func(b []byte) error {
		m := &heddlev1.WatchEvent{}
		if err := proto.Unmarshal(b, m); err != nil {
			return fmt.Errorf("event of a watch: %w", err)
		}
		return stream.Send(&heddlev1.WatchFilesResponse{Event: m})
	}
	w, err := s.converse(stream.Context(), first.GetStart().GetConnectionId(),
		&executorv1.Action{Kind: &executorv1.Action_WatchFiles{WatchFiles: &executorv1.WatchFiles{}}}, out)
	if err != nil {
		return err
	}
	go w.messages(func() (proto.Message, error) {
		m, err := stream.Recv()
		return m.GetCommand(), err
	})
	_, err = w.end()
	return err
}

// SearchFiles finds files by name; see the proto.
func (s *WorkspaceService) SearchFiles(stream grpc.BidiStreamingServer[heddlev1.SearchFilesRequest, heddlev1.SearchFilesResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return fmt.Errorf("receive search start: %w", err)
	}
	start := first.GetStart().GetSearch()
	if start == nil || len(start.GetRoots()) > maxSearchRoots {
		return errdefs.New(errdefs.InvalidArgument, "the first message of a search is start, with at most %d roots", maxSearchRoots)
	}
	out := func(b []byte) error {
		m := &heddlev1.SearchResults{}
		if err := proto.Unmarshal(b, m); err != nil {
			return fmt.Errorf("results of a search: %w", err)
		}
		return stream.Send(&heddlev1.SearchFilesResponse{Results: m})
	}
	w, err := s.converse(stream.Context(), first.GetStart().GetConnectionId(),
		&executorv1.Action{Kind: &executorv1.Action_SearchFiles{SearchFiles: &executorv1.SearchFiles{Search: start}}}, out)
	if err != nil {
		return err
	}
	go w.messages(func() (proto.Message, error) {
		m, err := stream.Recv()
		return m.GetQuery(), err
	})
	_, err = w.end()
	return err
}

// converse starts an action whose output are messages.
func (s *WorkspaceService) converse(ctx context.Context, connectionID string, action *executorv1.Action, each func([]byte) error) (*work, error) {
	var f frames
	return s.begin(ctx, connectionID, action, func(data []byte) error { return f.take(data, each) })
}

// messages passes on what a client sends until its end.
func (w *work) messages(next func() (proto.Message, error)) {
	for {
		m, err := next()
		if errors.Is(err, io.EOF) {
			_ = w.handle.Stdin(w.ctx, nil, true)
			return
		}
		var body []byte
		if err == nil {
			body, err = proto.Marshal(m)
		}
		if err == nil {
			err = w.handle.Stdin(w.ctx, append(protowire.AppendVarint(nil, uint64(len(body))), body...), false)
		}
		if err != nil {
			_ = w.handle.Terminate(w.ctx)
			return
		}
	}
}

// frames cuts a stream of bytes into length-delimited messages.
type frames struct{ rest []byte }

func (f *frames) take(data []byte, each func([]byte) error) error {
	f.rest = append(f.rest, data...)
	for {
		size, n := protowire.ConsumeVarint(f.rest)
		if n < 0 && len(f.rest) < 10 {
			return nil
		}
		if n < 0 || size > maxFrame {
			return errdefs.New(errdefs.Internal, "the executor sent a message of no possible size")
		}
		if uint64(len(f.rest)-n) < size {
			return nil
		}
		if err := each(f.rest[n : n+int(size)]); err != nil {
			return err
		}
		f.rest = append(f.rest[:0], f.rest[n+int(size):]...)
	}
}
