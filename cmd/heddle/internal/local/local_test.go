package local_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/heddle-dev/heddle/cmd/heddle/internal/local"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// TestMain lets the test binary play the processes that local starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "controlplane":
			os.Exit(playControlPlane(os.Args[1:]))
		case "executor":
			playExecutor()
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// playControlPlane serves a status with the version that the home's file names.
func playControlPlane(args []string) int {
	home := args[3]
	ready := local.NewReady(3)
	version, _ := os.ReadFile(filepath.Join(home, "version"))
	_, busyErr := os.Stat(filepath.Join(home, "busy"))
	if string(version) == "broken" {
		ready.Tell(errors.New("store is from the future"))
		return 1
	}
	starts, err := os.OpenFile(filepath.Join(home, "starts"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return 1
	}
	fmt.Fprintln(starts, os.Getpid())
	err = local.Serve(context.Background(), local.ServerConfig{
		Home:      home,
		Socket:    true,
		Open:      func(context.Context) (local.Backend, error) { return newFake(string(version), busyErr == nil), nil },
		Executor:  &local.ExecutorConfig{Args: func(string) []string { return []string{"executor"} }},
		IdleAfter: 200 * time.Millisecond,
		Ready:     ready.Tell,
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func playExecutor() {
	syscall.CloseOnExec(local.ExecutorLockFD)
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM)
	select {
	case <-c:
	case <-time.After(20 * time.Second):
	}
}

type fake struct {
	heddlev1.UnimplementedCatalogServiceServer
	version string
	busy    bool
	stop    chan struct{}
	once    sync.Once
}

func newFake(version string, busy bool) *fake {
	return &fake{version: version, busy: busy, stop: make(chan struct{})}
}

func (f *fake) Register(r grpc.ServiceRegistrar)   { heddlev1.RegisterCatalogServiceServer(r, f) }
func (f *fake) ServerOptions() []grpc.ServerOption { return nil }
func (f *fake) Run(ctx context.Context) error      { <-ctx.Done(); return nil }
func (f *fake) Drain()                             {}
func (f *fake) Busy() bool                         { return f.busy }
func (f *fake) Stop() <-chan struct{}              { return f.stop }
func (f *fake) ExecutorExited(int, error)          {}

func (f *fake) GetStatus(context.Context, *heddlev1.GetStatusRequest) (*heddlev1.GetStatusResponse, error) {
	return &heddlev1.GetStatusResponse{Version: f.version, Pid: int64(os.Getpid())}, nil
}

func (f *fake) Shutdown(context.Context, *heddlev1.ShutdownRequest) (*heddlev1.ShutdownResponse, error) {
	if f.busy {
		return &heddlev1.ShutdownResponse{Reason: "1 active turn"}, nil
	}
	f.once.Do(func() { close(f.stop) })
	return &heddlev1.ShutdownResponse{Accepted: true}, nil
}

func newHome(t *testing.T, version string) string {
	t.Helper()
	home := t.TempDir()
	setVersion(t, home, version)
	t.Cleanup(func() {
		for _, name := range []string{"run/lock", "run/executor.lock"} {
			if pid := readPid(filepath.Join(home, name)); pid > 0 && pid != os.Getpid() && alive(pid) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
				eventually(t, "process ends", func() bool { return !alive(pid) })
			}
		}
	})
	return home
}

func setVersion(t *testing.T, home, version string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(home, "version"), []byte(version), 0o600); err != nil {
		t.Fatal(err)
	}
}

func newClient(t *testing.T, home, version string) *local.Client {
	t.Helper()
	c, err := local.NewClient(local.Config{Home: home, Version: version, Exe: "/proc/self/exe"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func statusOf(t *testing.T, conn *grpc.ClientConn) *heddlev1.GetStatusResponse {
	t.Helper()
	st, err := heddlev1.NewCatalogServiceClient(conn).GetStatus(t.Context(), &heddlev1.GetStatusRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func readPid(path string) int {
	data, _ := os.ReadFile(path)
	var pid int
	_, _ = fmt.Sscan(string(data), &pid)
	return pid
}

// alive is false for a zombie too: nobody may be waiting for the process here.
func alive(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within 10 s: %s", what)
}

func TestConcurrentClientsStartOne(t *testing.T) {
	home := newHome(t, "v1")
	pids := make(chan int64, 8)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			conn, err := newClient(t, home, "v1").Dial(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			pids <- statusOf(t, conn).GetPid()
		})
	}
	wg.Wait()
	close(pids)
	first := <-pids
	for pid := range pids {
		if pid != first {
			t.Errorf("clients reached control planes %d and %d", first, pid)
		}
	}
	starts, _ := os.ReadFile(filepath.Join(home, "starts"))
	if n := strings.Count(string(starts), "\n"); n != 1 {
		t.Errorf("%d control planes were started, want 1", n)
	}
	info, err := os.Stat(filepath.Join(home, "run/control.sock"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket mode %v, %v; want 0600", info, err)
	}
}

func TestIdleControlPlaneEndsWithItsExecutor(t *testing.T) {
	home := newHome(t, "v1")
	conn, err := newClient(t, home, "v1").Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pid := int(statusOf(t, conn).GetPid())
	eventually(t, "executor starts", func() bool { return readPid(filepath.Join(home, "run/executor.lock")) > 0 })
	executor := readPid(filepath.Join(home, "run/executor.lock"))
	_ = conn.Close()
	eventually(t, "control plane ends", func() bool { return !alive(pid) })
	if alive(executor) {
		t.Errorf("executor %d outlived an orderly end", executor)
	}
	if _, err := os.Stat(filepath.Join(home, "run/control.sock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("socket is left behind: %v", err)
	}
}

func TestOtherVersion(t *testing.T) {
	t.Run("idle is replaced", func(t *testing.T) {
		home := newHome(t, "v1")
		old, err := newClient(t, home, "v1").Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer old.Close()
		oldPid := statusOf(t, old).GetPid()
		setVersion(t, home, "v2")
		conn, err := newClient(t, home, "v2").Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if st := statusOf(t, conn); st.GetVersion() != "v2" || st.GetPid() == oldPid {
			t.Errorf("got %v, want a new control plane of v2", st)
		}
	})
	t.Run("busy is refused", func(t *testing.T) {
		home := newHome(t, "v1")
		if err := os.WriteFile(filepath.Join(home, "busy"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		old, err := newClient(t, home, "v1").Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer old.Close()
		_, err = newClient(t, home, "v2").Dial(t.Context())
		if !errdefs.Is(err, errdefs.Busy) || !strings.Contains(err.Error(), "1 active turn") {
			t.Errorf("got %v, want a refusal that names what is open", err)
		}
	})
}

func TestConnectionSurvivesKillOfControlPlane(t *testing.T) {
	home := newHome(t, "v1")
	conn, err := newClient(t, home, "v1").Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	first := int(statusOf(t, conn).GetPid())
	eventually(t, "executor starts", func() bool { return readPid(filepath.Join(home, "run/executor.lock")) > 0 })
	executor := readPid(filepath.Join(home, "run/executor.lock"))
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "killed", func() bool { return !alive(first) })
	// A call that was sent before the loss was noticed may fail; the next one
	// starts the control plane again.
	var second int
	eventually(t, "an answer after the loss", func() bool {
		st, err := heddlev1.NewCatalogServiceClient(conn).GetStatus(t.Context(), &heddlev1.GetStatusRequest{}, grpc.WaitForReady(true))
		second = int(st.GetPid())
		return err == nil
	})
	if second == first {
		t.Fatalf("pid %d did not change", first)
	}
	if !alive(executor) {
		t.Error("the executor died with the control plane; its work cannot be taken back")
	}
	_ = conn.Close()
	eventually(t, "second control plane ends", func() bool { return !alive(second) })
	if alive(executor) {
		t.Error("the adopted executor outlived an orderly end")
	}
}

func TestStartErrorIsTold(t *testing.T) {
	home := newHome(t, "broken")
	_, err := newClient(t, home, "broken").Dial(t.Context())
	if err == nil || !strings.Contains(err.Error(), "store is from the future") {
		t.Errorf("got %v, want the cause of the failed start", err)
	}
}

func TestLongHome(t *testing.T) {
	home := filepath.Join(newHome(t, "v1"), strings.Repeat("long", 40))
	if err := os.MkdirAll(home, 0o700); err != nil {
		t.Fatal(err)
	}
	setVersion(t, home, "v1")
	client := newClient(t, home, "v1")
	conn, err := client.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pid := int(statusOf(t, conn).GetPid())
	recorded, err := os.ReadFile(filepath.Join(home, "run/control.path"))
	if err != nil || strings.TrimSpace(string(recorded)) != client.Socket() || len(client.Socket()) > 107 {
		t.Errorf("socket %q, recorded %q, %v", client.Socket(), recorded, err)
	}
	_ = conn.Close()
	eventually(t, "control plane ends", func() bool { return !alive(pid) })
}

func TestHomeHasOneControlPlane(t *testing.T) {
	home := newHome(t, "v1")
	cfg := local.ServerConfig{
		Home: home, Socket: true, LockWait: 50 * time.Millisecond,
		Open:   func(context.Context) (local.Backend, error) { return newFake("v1", false), nil },
		Logger: slog.New(slog.DiscardHandler),
	}
	_, stop, err := local.Embedded(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := local.Embedded(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "in use by a control plane (pid") {
		t.Errorf("second control plane: %v, want a refusal that names the holder", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	_, stop, err = local.Embedded(t.Context(), cfg)
	if err != nil {
		t.Fatalf("after the first ended: %v", err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
