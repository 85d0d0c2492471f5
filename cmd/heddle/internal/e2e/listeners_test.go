package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// knock tries each listener of heddle's own and prints how many of them said
// anything: it opens a WebSocket, and HTTP/2 as gRPC does.
const knock = `
import socket, sys
said = 0
for a in sys.argv[1:]:
    kind, _, at = a.partition('=')
    try:
        if kind == 'ws':
            host, _, port = at.rpartition(':')
            s = socket.create_connection((host, int(port)), 5)
        else:
            s = socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect(at)
        if kind == 'grpc':
            s.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0')
        else:
            s.sendall(b'GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n')
        if s.recv(1): said += 1
    except OSError as e:
        print(a, e, file=sys.stderr)
print(said)
`

// N15: a command with the host's network tries to drive heddle through the
// WebSocket listener, the unix listener and the control plane's own socket.
func TestN15CommandsCannotDriveHeddle(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("GAP: there is no python3")
	}
	address := freePort(t)
	scripts := map[string][]step{"HI": {{say: "hi"}}}
	w := newWorld(t, newModel(t, scripts))
	file := filepath.Join(w.workspace, "knock.py")
	sock := filepath.Join(filepath.Dir(w.home), "app.sock")
	w.write(file, knock)
	try := fmt.Sprintf("python3 %s ws=%s unix=%s grpc=%s", file, address, sock, filepath.Join(w.home, "run/control.sock"))
	scripts["KNOCK"] = []step{run(try), {say: "tried"}}
	w.role("controlplane", "--local", "--idle-exit", "30s")
	w.awaitSocket()
	ws, un := w.role("app-server", "--listen", "ws://"+address), w.role("app-server", "--listen", "unix://"+sock)
	w.awaitLog(ws, address)
	w.awaitLog(un, sock)

	outside, err := exec.CommandContext(t.Context(), "bash", "-c", try).Output()
	if got := strings.TrimSpace(string(outside)); err != nil || got != "3" {
		t.Fatalf("from outside %q of 3 listeners answer, %v", got, err)
	}
	got := w.exec("--json", "-c", "sandbox_workspace_write.network_access=true", "KNOCK")
	for _, ev := range events(t, got.stdout) {
		item, _ := ev["item"].(map[string]any)
		if ev["type"] == "item.completed" && item["type"] == "command_execution" {
			lines := strings.Split(strings.TrimSpace(fmt.Sprint(item["aggregated_output"])), "\n")
			if lines[len(lines)-1] != "0" {
				t.Errorf("from a sandbox with the host's network:\n%s", strings.Join(lines, "\n"))
			}
			return
		}
	}
	t.Errorf("the command did not run:\n%s\n%s", got.stdout, got.stderr)
}
