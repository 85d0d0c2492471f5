package peer_test

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/heddle-dev/heddle/cmd/heddle/internal/peer"
)

// TestMain doubles as the client program that a test puts into a namespace.
func TestMain(m *testing.M) {
	if addr := os.Getenv("PEER_TEST_DIAL"); addr != "" {
		network, address, _ := strings.Cut(addr, "|")
		os.Exit(dialOnce(network, address))
	}
	os.Exit(m.Run())
}

// dialOnce exits 0 when the server greets it and 3 when it closes at once.
func dialOnce(network, address string) int {
	c, err := net.Dial(network, address)
	if err != nil {
		return 4
	}
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "hello\n" {
		return 3
	}
	return 0
}

func greet(t *testing.T, l net.Listener) {
	t.Helper()
	guarded := peer.Guard(l, slog.New(slog.NewTextHandler(io.Discard, nil)))
	go func() {
		for {
			c, err := guarded.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "hello\n")
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close() })
}

// runClient runs the test binary as a client, inside a user and pid namespace
// of its own when contained is set, and returns its exit code.
func runClient(t *testing.T, l net.Listener, contained bool) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), "PEER_TEST_DIAL="+l.Addr().Network()+"|"+l.Addr().String())
	if contained {
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
	}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		if contained && (errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC)) {
			t.Skipf("this host does not let tests make a user namespace: %v", err)
		}
		t.Fatal(err)
	}
	return 0
}

func TestSandboxedPeerIsRefused(t *testing.T) {
	listen := map[string]func(t *testing.T) net.Listener{
		"unix": func(t *testing.T) net.Listener {
			t.Helper()
			l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
			if err != nil {
				t.Fatal(err)
			}
			return l
		},
		"tcp4": func(t *testing.T) net.Listener { t.Helper(); return listenTCP(t, "127.0.0.1:0") },
		"tcp6": func(t *testing.T) net.Listener { t.Helper(); return listenTCP(t, "[::1]:0") },
	}
	for name, open := range listen {
		t.Run(name, func(t *testing.T) {
			l := open(t)
			greet(t, l)
			if code := runClient(t, l, false); code != 0 {
				t.Errorf("client of the same user outside a sandbox: exit %d, want a greeting", code)
			}
			if code := runClient(t, l, true); code != 3 {
				t.Errorf("client inside a namespace: exit %d, want a closed connection", code)
			}
		})
	}
}

func listenTCP(t *testing.T, addr string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skipf("no %s on this host: %v", addr, err)
	}
	return l
}

func TestIdentityOfUnixPeer(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	id, err := peer.SameUser(c.(*net.UnixConn))
	if err != nil || id.PID != os.Getpid() || id.UID != os.Geteuid() {
		t.Fatalf("identity %+v, %v; want this process", id, err)
	}
}
