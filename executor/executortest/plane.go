// Package executortest is a small control plane for tests of executors: it
// serves real gRPC sessions, keeps what executors send, and says what a test
// tells it to. It may be used from several goroutines.
package executortest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

// Plane accepts sessions.
type Plane struct {
	executorv1.UnimplementedExecutorServiceServer

	// Window is told to executors.
	Window int64
	// HoldAcks leaves output and results unacknowledged.
	HoldAcks atomic.Bool

	sessions chan *Session
}

// New returns a plane without sessions.
func New() *Plane { return &Plane{Window: 1 << 20, sessions: make(chan *Session, 16)} }

// Serve serves on l until stop is called.
func (p *Plane) Serve(l net.Listener) (stop func()) {
	s := grpc.NewServer(grpc.MaxRecvMsgSize(16<<20), grpc.MaxSendMsgSize(16<<20))
	executorv1.RegisterExecutorServiceServer(s, p)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	return func() { s.Stop(); <-done }
}

// Session waits for the next registered session.
func (p *Plane) Session(ctx context.Context) (*Session, error) {
	select {
	case s := <-p.sessions:
		return s, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("no session: %w", context.Cause(ctx))
	}
}

// Connect implements the service.
func (p *Plane) Connect(stream grpc.BidiStreamingServer[executorv1.ConnectRequest, executorv1.ConnectResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	reg := first.GetRegister()
	if reg == nil {
		return errors.New("first message is not register")
	}
	err = stream.Send(&executorv1.ConnectResponse{Message: &executorv1.ConnectResponse_Registered{Registered: &executorv1.Registered{
		SessionId: "test", Protocol: 1, OutputWindow: p.Window}}})
	if err != nil {
		return err
	}
	s := &Session{
		Register: reg, plane: p, stream: stream, kick: make(chan struct{}), change: make(chan struct{}),
		started: map[string]int64{}, output: map[string][]byte{}, dropped: map[string]int64{},
		results: map[string]*executorv1.ActionResult{}, released: map[string]uint64{}, input: map[string]uint64{},
	}
	p.sessions <- s
	failed := make(chan error, 1)
	go func() { failed <- s.receive() }()
	select {
	case err := <-failed:
		return err
	case <-s.kick:
		return errors.New("session was ended by the test")
	}
}

// Session is one registration.
type Session struct {
	Register *executorv1.Register

	plane  *Plane
	kick   chan struct{}
	once   sync.Once
	sendMu sync.Mutex
	stream grpc.BidiStreamingServer[executorv1.ConnectRequest, executorv1.ConnectResponse]

	mu       sync.Mutex
	change   chan struct{} // closed and replaced at each message
	started  map[string]int64
	output   map[string][]byte // by action/stream
	dropped  map[string]int64
	chunks   int
	results  map[string]*executorv1.ActionResult
	released map[string]uint64
	input    map[string]uint64
	round    uint64
	problem  error
	ended    bool
}

// Kick ends the session.
func (s *Session) Kick() { s.once.Do(func() { close(s.kick) }) }

// Send sends one message.
func (s *Session) Send(m *executorv1.ConnectResponse) error {
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	return s.stream.Send(m)
}

func (s *Session) receive() error {
	for {
		m, err := s.stream.Recv()
		ack := s.take(m, err)
		if err != nil {
			return err
		}
		if ack != nil && !s.plane.HoldAcks.Load() {
			if err := s.Send(ack); err != nil {
				return err
			}
		}
	}
}

// take records a message and returns its acknowledgement.
func (s *Session) take(m *executorv1.ConnectRequest, err error) (ack *executorv1.ConnectResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { close(s.change); s.change = make(chan struct{}) }()
	if err != nil {
		s.ended = true
		return nil
	}
	switch m := m.GetMessage().(type) {
	case *executorv1.ConnectRequest_ActionStarted:
		s.started[m.ActionStarted.GetActionId()] = m.ActionStarted.GetPid()
	case *executorv1.ConnectRequest_Output:
		return s.takeOutput(m.Output)
	case *executorv1.ConnectRequest_Result:
		s.results[m.Result.GetActionId()] = m.Result
		return ResultAck(m.Result.GetActionId())
	case *executorv1.ConnectRequest_LeaseReleased:
		s.released[m.LeaseReleased.GetLeaseId()] = m.LeaseReleased.GetEpoch()
	case *executorv1.ConnectRequest_InputTaken:
		s.input[m.InputTaken.GetActionId()] = m.InputTaken.GetWriteSeq()
	case *executorv1.ConnectRequest_RenewAck:
		s.round = m.RenewAck.GetRound()
	}
	return nil
}

func outputKey(action string, stream int32) string { return fmt.Sprintf("%s/%d", action, stream) }

func (s *Session) takeOutput(c *executorv1.OutputChunk) *executorv1.ConnectResponse {
	s.chunks++
	key := outputKey(c.GetActionId(), c.GetStream())
	have := int64(len(s.output[key]))
	switch {
	case s.results[c.GetActionId()] != nil:
		s.problem = errors.Join(s.problem, fmt.Errorf("output of %s after its result", key))
	case len(s.output[key]) == 0 && c.GetOffset() > 0:
		s.output[key] = make([]byte, c.GetOffset()) // acknowledged on an earlier session
	case c.GetOffset() != have:
		s.problem = errors.Join(s.problem, fmt.Errorf("output of %s at %d, expected %d", key, c.GetOffset(), have))
	}
	s.output[key] = append(s.output[key], c.GetData()...)
	s.dropped[key] += c.GetDropped()
	return OutputAck(c.GetActionId(), c.GetStream(), int64(len(s.output[key])))
}

// Problem returns what an executor did wrong, if anything.
func (s *Session) Problem() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem
}

// Output returns the bytes of a stream so far and how many were dropped.
func (s *Session) Output(action string, stream int32) (data []byte, dropped int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := outputKey(action, stream)
	return append([]byte(nil), s.output[key]...), s.dropped[key]
}

// Chunks returns how many output messages came.
func (s *Session) Chunks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.chunks
}

// wait returns when ok is true under the lock.
func (s *Session) wait(ctx context.Context, what string, ok func() bool) error {
	for {
		s.mu.Lock()
		if ok() {
			s.mu.Unlock()
			return nil
		}
		change, ended := s.change, s.ended
		s.mu.Unlock()
		if ended {
			return fmt.Errorf("%s: the session has ended", what)
		}
		select {
		case <-change:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		}
	}
}

// Result waits for an action's result.
func (s *Session) Result(ctx context.Context, action string) (res *executorv1.ActionResult, err error) {
	err = s.wait(ctx, "result of "+action, func() bool { res = s.results[action]; return res != nil })
	return res, err
}

// InputTaken returns up to which write an action's input was said to be read.
func (s *Session) InputTaken(action string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.input[action]
}

// HasResult tells whether a result of an action came.
func (s *Session) HasResult(action string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.results[action] != nil
}

// Forget drops what is known of an action's result, so that Result waits for it
// to come again.
func (s *Session) Forget(action string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.results, action)
}

// ForgetOutput drops the kept output of an action.
func (s *Session) ForgetOutput(action string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stream := range []int32{1, 2} {
		delete(s.output, outputKey(action, stream))
	}
}

// Started waits for an action's start.
func (s *Session) Started(ctx context.Context, action string) (pid int64, err error) {
	err = s.wait(ctx, "start of "+action, func() bool { p, ok := s.started[action]; pid = p; return ok })
	return pid, err
}

// OutputBytes waits until a stream has at least n bytes.
func (s *Session) OutputBytes(ctx context.Context, action string, stream int32, n int) error {
	return s.wait(ctx, "output of "+action, func() bool { return len(s.output[outputKey(action, stream)]) >= n })
}

// Released waits for the confirmation of a lease's end.
func (s *Session) Released(ctx context.Context, lease string) (epoch uint64, err error) {
	err = s.wait(ctx, "release of "+lease, func() bool { e, ok := s.released[lease]; epoch = e; return ok })
	return epoch, err
}

// IsReleased tells whether a lease's end was confirmed.
func (s *Session) IsReleased(lease string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.released[lease]
	return ok
}

// Round waits for the acknowledgement of a round or a later one.
func (s *Session) Round(ctx context.Context, round uint64) error {
	return s.wait(ctx, "acknowledgement of a renewal", func() bool { return s.round >= round })
}

// Ended waits for the end of the session.
func (s *Session) Ended(ctx context.Context) error {
	return s.wait(ctx, "end of session", func() bool { return s.ended })
}
