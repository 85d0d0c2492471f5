package session_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/heddle-dev/heddle/executor/session"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

type stream = grpc.BidiStreamingServer[executorv1.ConnectRequest, executorv1.ConnectResponse]

// plane is a control plane that plays one script per session.
type plane struct {
	executorv1.UnimplementedExecutorServiceServer
	script func(stream) error
}

func (p plane) Connect(s stream) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	return p.script(s)
}

// taker keeps what it gets; its error ends the session.
type taker struct {
	s    *session.Session
	got  []*executorv1.ConnectResponse
	fail error
}

func (k *taker) Connected(s *session.Session) { k.s = s }

func (k *taker) Handle(_ *session.Session, m *executorv1.ConnectResponse) error {
	k.got = append(k.got, m)
	return k.fail
}

// run plays a script against one session and returns how it ended.
func run(t *testing.T, h *taker, silence time.Duration, script func(stream) error) (err error) {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	srv := grpc.NewServer()
	executorv1.RegisterExecutorServiceServer(srv, plane{script: script})
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(l) }()
	defer func() { srv.Stop(); <-served }()
	conn, err := grpc.NewClient("passthrough:///plane", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return session.Run(t.Context(), session.Config{
		Conn: conn, Handler: h, Register: &executorv1.Register{MinProtocol: 1, MaxProtocol: 2},
		Silence: func() time.Duration { return silence },
	})
}

func registered(protocol int32) *executorv1.ConnectResponse {
	return &executorv1.ConnectResponse{Message: &executorv1.ConnectResponse_Registered{
		Registered: &executorv1.Registered{SessionId: "s1", Protocol: protocol}}}
}

func draining() *executorv1.ConnectResponse {
	return &executorv1.ConnectResponse{Message: &executorv1.ConnectResponse_Draining{Draining: &executorv1.Draining{}}}
}

func send(s stream, list ...*executorv1.ConnectResponse) error {
	for _, m := range list {
		if err := s.Send(m); err != nil {
			return err
		}
	}
	return nil
}

func wait(s stream) error {
	<-s.Context().Done()
	return s.Context().Err()
}

func TestHowSessionsEnd(t *testing.T) {
	stop := errors.New("no more")
	for name, c := range map[string]struct {
		script  func(stream) error
		fail    error
		silence time.Duration
		is      error
		text    string
		after   time.Duration
		took    int // messages handled
	}{
		"no answer to register":    {script: wait, is: session.ErrSilent, after: session.DefaultHandshake},
		"refused":                  {script: func(stream) error { return errors.New("bad token") }, text: "bad token"},
		"something else first":     {script: func(s stream) error { return errors.Join(send(s, draining()), wait(s)) }, is: session.ErrProtocol},
		"protocol too new":         {script: func(s stream) error { return errors.Join(send(s, registered(3)), wait(s)) }, is: session.ErrProtocol},
		"registered twice":         {script: func(s stream) error { return errors.Join(send(s, registered(1), registered(1)), wait(s)) }, is: session.ErrProtocol},
		"closed by the other side": {script: func(s stream) error { return send(s, registered(1), draining()) }, text: "EOF", took: 1},
		"the handler fails":        {script: func(s stream) error { return errors.Join(send(s, registered(1), draining(), draining()), wait(s)) }, fail: stop, is: stop, took: 1},
		"silence": {
			script:  func(s stream) error { return errors.Join(send(s, registered(2), draining()), wait(s)) },
			silence: 5 * time.Second, is: session.ErrSilent, after: 5 * time.Second, took: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &taker{fail: c.fail}
				began := time.Now()
				err := run(t, h, c.silence, c.script)
				if err == nil || (c.is != nil && !errors.Is(err, c.is)) || !strings.Contains(err.Error(), c.text) {
					t.Errorf("ended with %v", err)
				}
				if d := time.Since(began); d < c.after || d > c.after+2*time.Second {
					t.Errorf("ended after %v, want %v", d, c.after)
				}
				if len(h.got) != c.took {
					t.Errorf("%d messages were handled, want %d", len(h.got), c.took)
				}
				if h.s != nil {
					if h.s.Send(&executorv1.ConnectRequest{}) == nil {
						t.Error("a message can be sent after the end")
					}
					select {
					case <-h.s.Done():
					default:
						t.Error("the session does not say that it has ended")
					}
				}
			})
		})
	}
}

func TestWindowHasADefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &taker{}
		_ = run(t, h, 0, func(s stream) error { return send(s, registered(1)) }) // the end is tested above
		if h.s.Window() != session.DefaultWindow || h.s.ID() != "s1" {
			t.Errorf("window %d, id %q", h.s.Window(), h.s.ID())
		}
	})
}
