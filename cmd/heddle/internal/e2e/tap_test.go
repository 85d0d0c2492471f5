//go:build clients

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/coder/websocket"
)

// tapEnv names the folder into which the test program, started in the place of
// heddle, copies what a client and heddle say to each other.
const tapEnv = "HEDDLE_E2E_TAP"

// tapped returns a program to give to a client instead of heddle. It is heddle
// with a copy taken of what its app-server reads and writes; when the test
// ends, every message that it wrote is validated.
func (w *world) tapped() string {
	t := w.t
	t.Helper()
	schemas, err := readWireSchemas(referenceSchema(t))
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := w.beside("tap")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	program := w.beside("heddle-tap")
	script := fmt.Sprintf("#!/bin/sh\n%s='%s' HEDDLE_BIN='%s' exec '%s' \"$@\"\n", tapEnv, dir, heddleBin, self)
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	t.Cleanup(func() {
		logs, _ := filepath.Glob(filepath.Join(dir, "*"))
		if len(logs) == 0 {
			t.Error("the client started no app-server")
		}
		seen := 0
		for _, name := range logs {
			if t.Failed() {
				t.Logf("connection %s:\n%s", filepath.Base(name), outline(readFile(t, name)))
			}
			c := wireCheckWith(t, schemas)
			for line := range bytes.Lines(readFile(t, name)) {
				if sent, ok := bytes.CutPrefix(line, []byte("> ")); ok {
					c.sent(sent)
				} else {
					c.received(bytes.TrimPrefix(line, []byte("< ")))
				}
			}
			c.finish()
			seen += c.seen
		}
		t.Logf("%d messages of %d connections were validated", seen, len(logs))
	})
	return program
}

// outline is the last of what a connection said, each message cut short.
func outline(log []byte) string {
	lines := strings.Split(strings.TrimSpace(string(log)), "\n")
	lines = lines[max(0, len(lines)-40):]
	for i, line := range lines {
		lines[i] = line[:min(len(line), 200)]
	}
	return strings.Join(lines, "\n")
}

// runTap is the test program in the place of heddle.
func runTap(dir string, args []string) int {
	cmd := exec.Command(heddleBin, args...)
	cmd.Stderr = os.Stderr
	var wg sync.WaitGroup
	if err := copyStreams(cmd, dir, &wg); err != nil {
		fmt.Fprintln(os.Stderr, "tap:", err)
		return 1
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	wg.Wait()
	err := cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return max(exit.ExitCode(), 1)
	} else if err != nil {
		return 1
	}
	return 0
}

// copyStreams starts cmd on our standard streams; those of an app-server are
// copied into a file of dir. wg is done when all that it writes is passed on.
func copyStreams(cmd *exec.Cmd, dir string, wg *sync.WaitGroup) error {
	if !slices.Contains(cmd.Args, "app-server") {
		cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
		return cmd.Start()
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(dir, strconv.Itoa(os.Getpid())))
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	log := &tapLog{file: file}
	go func() { log.copy(in, os.Stdin, "> "); _ = in.Close() }()
	wg.Go(func() { log.copy(os.Stdout, out, "< ") })
	return nil
}

// tapLog keeps lines in an order in which each request is before its answer.
type tapLog struct {
	mu   sync.Mutex
	file *os.File
}

func (l *tapLog) copy(to io.Writer, from io.Reader, mark string) {
	r := bufio.NewReader(from)
	for {
		line, err := r.ReadBytes('\n')
		if len(line) > 0 {
			l.mu.Lock()
			_, _ = l.file.WriteString(mark + strings.TrimSuffix(string(line), "\n") + "\n")
			l.mu.Unlock()
			if _, err := to.Write(line); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// wireProxy passes WebSocket messages on to a server and validates those that
// come back. It returns its own address.
func (w *world) wireProxy(addr string) string {
	w.t.Helper()
	schemas, err := readWireSchemas(referenceSchema(w.t))
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	var open sync.WaitGroup
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		open.Add(1)
		defer open.Done()
		client, err := websocket.Accept(rw, r, nil)
		if err != nil {
			return
		}
		upstream, _, err := websocket.Dial(ctx, addr, nil)
		if err != nil {
			w.t.Errorf("dial %s: %v", addr, err)
			_ = client.Close(websocket.StatusInternalError, "no server")
			return
		}
		c := wireCheckWith(w.t, schemas)
		var both sync.WaitGroup
		both.Go(func() { relay(ctx, upstream, client, c.sent) })
		both.Go(func() { relay(ctx, client, upstream, c.received) })
		both.Wait()
		w.t.Logf("%d messages were validated", c.seen)
		c.finish()
	}))
	w.t.Cleanup(func() {
		cancel()
		open.Wait()
		server.Close()
	})
	return "ws://" + server.Listener.Addr().(*net.TCPAddr).String()
}

// relay passes messages on until one side is gone, then closes the other.
func relay(ctx context.Context, to, from *websocket.Conn, look func([]byte)) {
	from.SetReadLimit(-1)
	for {
		kind, data, err := from.Read(ctx)
		if err == nil {
			look(data)
			err = to.Write(ctx, kind, data)
		}
		if err != nil {
			_ = to.Close(websocket.StatusNormalClosure, "")
			return
		}
	}
}

// tap runs the program as heddle when it was started in heddle's place.
func tap() (code int, done bool) {
	dir := os.Getenv(tapEnv)
	if dir == "" {
		return 0, false
	}
	heddleBin = os.Getenv("HEDDLE_BIN")
	return runTap(dir, os.Args[1:]), true
}
