package server_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/heddle-dev/heddle/controlplane/dispatch"
	"github.com/heddle-dev/heddle/controlplane/dispatch/dispatchtest"
	"github.com/heddle-dev/heddle/controlplane/server"
	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// sessions knows the session "s".
type sessions struct{}

func (sessions) Lookup(ctx context.Context) (server.SessionView, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if got := md.Get(server.SessionKey); len(got) != 1 || got[0] != "s" {
		return nil, errdefs.New(errdefs.SessionUnknown, "session %v is not attached", got)
	}
	return view{}, nil
}

type view struct{}

func (view) ID() string        { return "s" }
func (view) Env() []string     { return []string{"PATH=/bin", "HOME=/home/u", "DROP=1"} }
func (view) Cwd() string       { return "/work" }
func (view) Principal() string { return "local" }
func (view) DefaultPolicy() *heddlev1.SandboxPolicy {
	return &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY}
}

// workspace is the two services behind one gRPC server, with a fake executor.
type workspace struct {
	t      *testing.T
	d      *dispatch.Dispatcher
	svc    *server.WorkspaceService
	client heddlev1.WorkspaceServiceClient
	// kill ends the executor's connection.
	kill context.CancelFunc
}

func withWorkspace(t *testing.T, play func(*dispatchtest.Job), f func(w *workspace)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d, err := dispatch.New(t.Context(), dispatch.Config{})
		if err != nil {
			t.Fatal(err)
		}
		svc := server.NewWorkspaceService(d, sessions{})
		lis := bufconn.Listen(1 << 20)
		srv := grpc.NewServer(grpc.StreamInterceptor(errdefs.StreamServer))
		executorv1.RegisterExecutorServiceServer(srv, server.NewExecutorService(d))
		heddlev1.RegisterWorkspaceServiceServer(srv, svc)
		go func() { _ = srv.Serve(lis) }()
		ctx, cancel := context.WithCancel(context.Background())
		ran := make(chan struct{})
		go func() { defer close(ran); _ = d.Run(ctx) }()
		dial := func() *grpc.ClientConn {
			conn, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
			if err != nil {
				t.Fatal(err)
			}
			return conn
		}
		client, exec := dial(), dial()
		xctx, kill := context.WithCancel(ctx)
		served := make(chan struct{})
		if play != nil {
			x := &dispatchtest.Executor{Register: &executorv1.Register{ExecutorId: "x"}, Play: play}
			go func() { defer close(served); _ = x.Run(xctx, exec) }()
		} else {
			close(served)
		}
		synctest.Wait()
		f(&workspace{t: t, d: d, svc: svc, client: heddlev1.NewWorkspaceServiceClient(client), kill: kill})
		cancel()
		<-ran
		kill()
		<-served
		_ = client.Close()
		_ = exec.Close()
		srv.Stop()
	})
}

func (w *workspace) exec(ctx context.Context, start *heddlev1.ExecStart) heddlev1.WorkspaceService_ExecClient {
	w.t.Helper()
	if start.GetConnectionId() == "" {
		start.ConnectionId = "c"
	}
	stream, err := w.client.Exec(metadata.AppendToOutgoingContext(ctx, server.SessionKey, "s"))
	if err != nil {
		w.t.Fatal(err)
	}
	if err := stream.Send(&heddlev1.ExecRequest{Message: &heddlev1.ExecRequest_Start{Start: start}}); err != nil {
		w.t.Fatal(err)
	}
	return stream
}

// outcome is everything an Exec stream said.
type outcome struct {
	pid    int64
	out    map[int32]string
	capped map[int32]bool
	exited *heddlev1.ExecExited
}

// follow reads to the end and checks the order: started, output, exited.
func follow(t *testing.T, stream heddlev1.WorkspaceService_ExecClient) (outcome, error) {
	t.Helper()
	o := outcome{out: map[int32]string{}, capped: map[int32]bool{}}
	startedSeen := false
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return o, nil
		}
		if err != nil {
			return o, err
		}
		switch k := m.GetMessage().(type) {
		case *heddlev1.ExecResponse_Started:
			if startedSeen {
				t.Error("started twice")
			}
			startedSeen, o.pid = true, k.Started.GetPid()
		case *heddlev1.ExecResponse_Output:
			if !startedSeen || o.exited != nil || o.capped[k.Output.GetStream()] {
				t.Errorf("output %v out of order", k.Output)
			}
			o.out[k.Output.GetStream()] += string(k.Output.GetData())
			o.capped[k.Output.GetStream()] = k.Output.GetCapReached()
		case *heddlev1.ExecResponse_Exited:
			o.exited = k.Exited
		}
	}
}

func TestExecRunsOneProcess(t *testing.T) {
	var got *executorv1.Action
	play := func(j *dispatchtest.Job) {
		got = j.Action
		j.Start(42)
		j.Output(1, []byte("out\n"))
		j.Output(2, []byte("err\n"))
		j.Exit(3)
	}
	withWorkspace(t, play, func(w *workspace) {
		t := w.t
		o, err := follow(t, w.exec(t.Context(), &heddlev1.ExecStart{
			Argv: []string{"sh", "-c", "x"}, Env: map[string]string{"HOME": "/other", "NEW": "1"}, UnsetEnv: []string{"DROP"}, TimeoutMs: 500,
		}))
		if err != nil {
			t.Fatal(err)
		}
		if o.pid != 42 || o.out[1] != "out\n" || o.out[2] != "err\n" || o.exited.GetExitCode() != 3 {
			t.Errorf("got %+v", o)
		}
		p := got.GetStartProcess()
		if want := []string{"HOME=/other", "NEW=1", "PATH=/bin"}; !slices.Equal(p.GetEnv(), want) {
			t.Errorf("env %q, want %q", p.GetEnv(), want)
		}
		if p.GetCwd() != "/work" || got.GetWorkspace() != "/work" || got.GetPolicy().GetLevel() != heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY {
			t.Errorf("cwd %q, workspace %q, policy %v: want the session's", p.GetCwd(), got.GetWorkspace(), got.GetPolicy())
		}
		if !p.GetDirect() || p.GetMergeOutput() || p.GetStdin() != executorv1.StdinMode_STDIN_MODE_NONE || p.GetTimeoutMs() != 500 {
			t.Errorf("process %v: want direct output of two streams, no input, the timeout", p)
		}
	})
}

func TestExecOutputCap(t *testing.T) {
	play := func(j *dispatchtest.Job) {
		j.Start(1)
		for range 10 {
			j.Output(1, []byte("12345678"))
		}
		j.Output(2, []byte("short"))
		j.Exit(0)
	}
	for name, c := range map[string]struct {
		limit  int64
		want   int
		capped bool
	}{
		"no cap": {0, 80, false}, "inside a chunk": {20, 20, true}, "at the border": {16, 16, true}, "exactly all": {80, 80, true}, "above": {81, 80, false},
	} {
		t.Run(name, func(t *testing.T) {
			withWorkspace(t, play, func(w *workspace) {
				t := w.t
				o, err := follow(t, w.exec(t.Context(), &heddlev1.ExecStart{Argv: []string{"x"}, OutputCap: c.limit}))
				if err != nil {
					t.Fatal(err)
				}
				if len(o.out[1]) != c.want || o.capped[1] != c.capped || o.out[2] != "short" || o.capped[2] || o.exited == nil {
					t.Errorf("got %d bytes, capped %v, stderr %q, want %d, %v, all", len(o.out[1]), o.capped[1], o.out[2], c.want, c.capped)
				}
			})
		})
	}
}

// echo plays cat: input comes back, the end of input ends it, terminate kills it.
func echo(j *dispatchtest.Job) {
	j.Start(1)
	for c := range j.Controls {
		switch k := c.GetControl().(type) {
		case *executorv1.ActionControl_Stdin:
			if len(k.Stdin.GetData()) > 0 {
				j.Output(1, k.Stdin.GetData())
			}
			if k.Stdin.GetClose() {
				j.Exit(0)
				return
			}
		case *executorv1.ActionControl_Resize:
			j.Output(1, []byte("resized "))
		case *executorv1.ActionControl_Terminate:
			j.Exit(137)
			return
		}
	}
}

func TestExecInputResizeTerminate(t *testing.T) {
	withWorkspace(t, echo, func(w *workspace) {
		t := w.t
		stream := w.exec(t.Context(), &heddlev1.ExecStart{Argv: []string{"cat"}, Tty: true, Rows: 24, Cols: 80})
		for _, m := range []*heddlev1.ExecRequest{
			{Message: &heddlev1.ExecRequest_Stdin{Stdin: &heddlev1.ExecStdin{Data: []byte("hello ")}}},
			{Message: &heddlev1.ExecRequest_Resize{Resize: &heddlev1.ExecResize{Rows: 30, Cols: 90}}},
			{Message: &heddlev1.ExecRequest_Stdin{Stdin: &heddlev1.ExecStdin{Data: []byte("bye"), Close: true}}},
		} {
			if err := stream.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		if o, err := follow(t, stream); err != nil || o.out[1] != "hello resized bye" || o.exited.GetExitCode() != 0 {
			t.Errorf("got %+v, %v", o, err)
		}
		stream = w.exec(t.Context(), &heddlev1.ExecStart{Argv: []string{"cat"}, Stdin: true})
		if err := stream.Send(&heddlev1.ExecRequest{Message: &heddlev1.ExecRequest_Terminate{Terminate: &heddlev1.ExecTerminate{}}}); err != nil {
			t.Fatal(err)
		}
		if o, err := follow(t, stream); err != nil || o.exited.GetExitCode() != 137 {
			t.Errorf("terminate: got %+v, %v", o, err)
		}
	})
}

// The end of the request stream, however it comes, ends the process.
func TestExecEndsWithItsStream(t *testing.T) {
	ends := map[string]func(context.CancelFunc, heddlev1.WorkspaceService_ExecClient){
		"half closed": func(_ context.CancelFunc, s heddlev1.WorkspaceService_ExecClient) { _ = s.CloseSend() },
		"cancelled":   func(cancel context.CancelFunc, _ heddlev1.WorkspaceService_ExecClient) { cancel() },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			killed := make(chan struct{})
			play := func(j *dispatchtest.Job) {
				j.Start(1)
				if c := <-j.Controls; c.GetTerminate() != nil {
					close(killed)
				}
				j.Exit(137)
			}
			withWorkspace(t, play, func(w *workspace) {
				t := w.t
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stream := w.exec(ctx, &heddlev1.ExecStart{Argv: []string{"sleep"}})
				if _, err := stream.Recv(); err != nil {
					t.Fatal(err)
				}
				end(cancel, stream)
				<-killed
				synctest.Wait()
				if n := w.d.Active(); n != 0 {
					t.Errorf("%d actions left", n)
				}
			})
		})
	}
}

func TestExecErrors(t *testing.T) {
	play := func(j *dispatchtest.Job) {
		switch j.Action.GetStartProcess().GetArgv()[0] {
		case "missing":
			j.Exit(127)
		default:
			j.Fail("bad_cwd", "/nowhere: no such file or directory")
		}
	}
	withWorkspace(t, play, func(w *workspace) {
		t := w.t
		o, err := follow(t, w.exec(t.Context(), &heddlev1.ExecStart{Argv: []string{"pwd"}, Cwd: "/nowhere"}))
		if err != nil || o.exited.GetError().GetCode() != "bad_cwd" {
			t.Errorf("bad cwd: %+v, %v, want it in exited", o, err)
		}
		o, err = follow(t, w.exec(t.Context(), &heddlev1.ExecStart{Argv: []string{"missing"}}))
		if err != nil || o.exited.GetExitCode() != 127 || o.exited.GetError() != nil {
			t.Errorf("missing program: %+v, %v, want 127", o, err)
		}
		for name, start := range map[string]*heddlev1.ExecStart{
			"no command": {}, "relative": {Argv: []string{"x"}, Cwd: "a/b"}, "negative": {Argv: []string{"x"}, OutputCap: -1},
		} {
			if _, err := follow(t, w.exec(t.Context(), start)); !errdefs.Is(err, errdefs.InvalidArgument) {
				t.Errorf("%s: %v, want InvalidArgument", name, err)
			}
		}
		stream, err := w.client.Exec(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); !errdefs.Is(err, errdefs.SessionUnknown) {
			t.Errorf("no session: %v, want SessionUnknown", err)
		}
	})
}

func TestExecWithoutExecutor(t *testing.T) {
	withWorkspace(t, nil, func(w *workspace) {
		t := w.t
		_, err := follow(t, w.exec(t.Context(), &heddlev1.ExecStart{Argv: []string{"x"}}))
		if !errdefs.Is(err, errdefs.NoExecutor) || !strings.Contains(err.Error(), "no executor is connected") {
			t.Errorf("got %v, want NoExecutor with the reason", err)
		}
	})
}

func TestExecLosesItsExecutor(t *testing.T) {
	withWorkspace(t, func(j *dispatchtest.Job) { j.Start(1) }, func(w *workspace) {
		t := w.t
		stream := w.exec(t.Context(), &heddlev1.ExecStart{Argv: []string{"sleep"}})
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		w.kill()
		from := time.Now()
		if _, err := stream.Recv(); !errdefs.Is(err, errdefs.ExecutorLost) {
			t.Errorf("got %v, want ExecutorLost", err)
		}
		if d := time.Since(from); d > 30*time.Second {
			t.Errorf("told after %v, want within the fence", d)
		}
	})
}

// A client that does not read slows the process down instead of filling memory.
func TestExecSlowClient(t *testing.T) {
	const total = 24 << 20
	sent := 0
	play := func(j *dispatchtest.Job) {
		j.Start(1)
		chunk := make([]byte, 64<<10)
		for sent < total && j.Output(1, chunk) {
			sent += len(chunk)
		}
		j.Exit(0)
	}
	withWorkspace(t, play, func(w *workspace) {
		t := w.t
		stream := w.exec(t.Context(), &heddlev1.ExecStart{Argv: []string{"yes"}})
		synctest.Wait()
		if sent > 4<<20 {
			t.Errorf("%d bytes sent to a client that reads nothing", sent)
		}
		o, err := follow(t, stream)
		if err != nil || len(o.out[1]) != total {
			t.Errorf("got %d bytes, %v, want all %d", len(o.out[1]), err, total)
		}
	})
}

func TestConnectionScopes(t *testing.T) {
	withWorkspace(t, echo, func(w *workspace) {
		t := w.t
		leases := func() int32 { synctest.Wait(); return w.d.Status()[0].GetLeases() }
		a := w.exec(t.Context(), &heddlev1.ExecStart{Argv: []string{"cat"}, Stdin: true, ConnectionId: "a"})
		b := w.exec(t.Context(), &heddlev1.ExecStart{Argv: []string{"cat"}, Stdin: true, ConnectionId: "b"})
		for _, s := range []heddlev1.WorkspaceService_ExecClient{a, b} {
			if _, err := s.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		if n := leases(); n != 2 {
			t.Errorf("%d leases of two connections", n)
		}
		if err := w.svc.ReleaseConnection(t.Context(), "s", "a"); err != nil {
			t.Fatal(err)
		}
		if m, err := a.Recv(); err != nil || m.GetExited().GetError().GetCode() != "cancelled" {
			t.Errorf("released connection: %v, %v, want its process ended", m, err)
		}
		if n := leases(); n != 1 {
			t.Errorf("%d leases after one release", n)
		}
		if err := b.Send(&heddlev1.ExecRequest{Message: &heddlev1.ExecRequest_Stdin{Stdin: &heddlev1.ExecStdin{Close: true}}}); err != nil {
			t.Fatal(err)
		}
		if o, err := follow(t, b); err != nil || o.exited.GetExitCode() != 0 {
			t.Errorf("other connection: %+v, %v", o, err)
		}
		// An idle connection's sandbox is given back.
		time.Sleep(2 * time.Minute)
		if n := leases(); n != 0 {
			t.Errorf("%d leases of an idle connection", n)
		}
		if err := w.svc.ReleaseConnection(t.Context(), "s", ""); err != nil {
			t.Errorf("end of an idle session: %v", err)
		}
	})
}
