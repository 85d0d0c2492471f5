//go:build robust

package robust

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// seat is one place of a client: it connects again whenever it lost its server,
// and makes random requests.
type seat struct {
	run  *run
	kind string // "stdio", "ws" or "unix"
	n    int
	rng  *rand.Rand
	// answers chooses what is answered to questions.
	answers *rand.Rand

	mu     sync.Mutex
	cmd    *exec.Cmd
	addr   string
	client *client
	tries  int
}

// callTime is how long a request may take. The machine may be busy and its
// server frozen for a while.
const callTime = 90 * time.Second

// connect starts a server where the seat has none, and a connection to it.
func (s *seat) connect(ctx context.Context) (*client, error) {
	if c := s.current(); c != nil && !c.closed() {
		return c, nil
	}
	var l link
	var err error
	if s.kind == "stdio" {
		l, err = s.spawnPipe()
	} else {
		l, err = s.dial(ctx)
	}
	if err != nil {
		return nil, err
	}
	s.tries++
	c := newClient(fmt.Sprintf("%s%d.%d", s.kind, s.n, s.tries), l, s.answer, s.run.note)
	if err := c.initialize(); err != nil {
		l.close()
		return nil, err
	}
	s.mu.Lock()
	s.client = c
	s.mu.Unlock()
	return c, nil
}

func (s *seat) current() *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client
}

func (s *seat) spawnPipe() (link, error) {
	s.end()
	cmd := s.run.home.command("app-server")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = s.run.stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.cmd = cmd
	s.mu.Unlock()
	return &pipeLink{in: in, out: bufio.NewReader(out)}, nil
}

// dial connects to the seat's listener, starting it when it is gone.
func (s *seat) dial(ctx context.Context) (link, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	s.mu.Lock()
	cmd, addr := s.cmd, s.addr
	s.mu.Unlock()
	if cmd == nil || !alive(cmd.Process.Pid) {
		s.end()
		if s.kind == "unix" {
			addr = filepath.Join(s.run.home.root, fmt.Sprintf("app%d.sock", s.n))
			cmd = s.run.home.command("app-server", "--listen", "unix://"+addr)
		} else {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return nil, err
			}
			addr = l.Addr().String()
			_ = l.Close()
			cmd = s.run.home.command("app-server", "--listen", "ws://"+addr)
		}
		cmd.Stderr = s.run.stderr
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		s.mu.Lock()
		s.cmd, s.addr = cmd, addr
		s.mu.Unlock()
	}
	for {
		path := ""
		if s.kind == "unix" {
			path = addr
		}
		l, err := dialWS(ctx, addr, path)
		if err == nil || ctx.Err() != nil || !alive(cmd.Process.Pid) {
			return l, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// end reaps a server that is dead or is to be replaced.
func (s *seat) end() {
	s.mu.Lock()
	cmd := s.cmd
	s.cmd = nil
	s.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// close ends the seat's server as a client does.
func (s *seat) close() {
	if c := s.current(); c != nil {
		c.link.close()
	}
	s.mu.Lock()
	cmd := s.cmd
	s.mu.Unlock()
	if cmd == nil {
		return
	}
	if s.kind != "stdio" {
		_ = cmd.Process.Signal(os.Interrupt)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		s.run.violate(Violation{What: fmt.Sprintf("app-server of %s did not end within 20 s of its last client", s.kind)})
		_ = cmd.Process.Kill()
		<-done
	}
}

// work makes requests until ctx ends.
func (s *seat) work(ctx context.Context) {
	for ctx.Err() == nil {
		c, err := s.connect(ctx)
		if err != nil {
			s.run.tally.add("~connect failed")
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if err := s.step(c); errors.Is(err, errSilent) {
			s.run.silent(s, err)
		}
		time.Sleep(time.Duration(s.rng.IntN(150)) * time.Millisecond)
	}
}

func (s *seat) step(c *client) error {
	threads := s.run.threadList()
	if len(threads) == 0 || len(threads) < 10 && s.rng.IntN(12) == 0 {
		return s.startThread(c)
	}
	th := threads[s.rng.IntN(len(threads))]
	switch n := s.rng.IntN(100); {
	case n < 45:
		return s.startTurn(c, th)
	case n < 60:
		return s.steer(c, th)
	case n < 66:
		return s.interrupt(c, th)
	case n < 80:
		return s.subscribe(c, "thread/resume", map[string]any{"threadId": th.id}, th.id)
	case n < 83 && len(threads) < 14:
		return s.subscribe(c, "thread/fork", map[string]any{"threadId": th.id}, "")
	case n < 86:
		_, err := c.call("thread/archive", map[string]any{"threadId": th.id}, callTime)
		c.breakChain(th.id)
		if err == nil {
			s.run.tally.add("~archived")
			_, err = c.call("thread/unarchive", map[string]any{"threadId": th.id}, callTime)
		}
		return err
	case n < 93:
		_, err := c.call("thread/list", map[string]any{"limit": 5}, callTime)
		return err
	default:
		_, err := c.call("thread/turns/list", map[string]any{"threadId": th.id, "limit": 3}, callTime)
		return err
	}
}

func (s *seat) startThread(c *client) error {
	level := []string{"workspace-write", "workspace-write", "danger-full-access"}[s.rng.IntN(3)]
	return s.subscribe(c, "thread/start", map[string]any{"cwd": s.run.home.workspace, "sandbox": level}, "")
}

// subscribe makes a request whose answer is a thread that is followed from then
// on.
func (s *seat) subscribe(c *client, method string, params map[string]any, thread string) error {
	if thread != "" {
		c.breakChain(thread)
	}
	result, err := c.call(method, params, callTime)
	if err != nil {
		return err
	}
	var r struct {
		Thread struct{ ID string } `json:"thread"`
	}
	if err := json.Unmarshal(result, &r); err != nil || r.Thread.ID == "" {
		return fmt.Errorf("%s: unusable answer %.200s", method, result)
	}
	if thread != "" {
		c.breakChain(thread)
	}
	s.run.addThread(r.Thread.ID)
	return nil
}

func input(text string) []any { return []any{map[string]any{"type": "text", "text": text}} }

func (s *seat) startTurn(c *client, th *threadState) error {
	text := s.run.prompt()
	result, err := c.call("turn/start", map[string]any{"threadId": th.id, "input": input(text)}, callTime)
	if err != nil {
		if e, ok := errors.AsType[*rpcError](err); ok && strings.Contains(e.Message, "thread not found") {
			// Not loaded in this server yet.
			return s.subscribe(c, "thread/resume", map[string]any{"threadId": th.id}, th.id)
		}
		return err
	}
	var r struct {
		Turn struct{ ID string } `json:"turn"`
	}
	if json.Unmarshal(result, &r) == nil {
		s.run.acked(th, r.Turn.ID, text)
	}
	return nil
}

func (s *seat) steer(c *client, th *threadState) error {
	text, turn := s.run.prompt(), th.lastTurn()
	if turn == "" {
		return nil
	}
	result, err := c.call("turn/steer", map[string]any{"threadId": th.id, "expectedTurnId": turn, "input": input(text)}, callTime)
	if err != nil {
		return err
	}
	var r struct {
		TurnID string `json:"turnId"`
	}
	if json.Unmarshal(result, &r) == nil {
		s.run.tally.add("~steers accepted")
		s.run.acked(th, r.TurnID, text)
	}
	return nil
}

func (s *seat) interrupt(c *client, th *threadState) error {
	turn := th.lastTurn()
	if turn == "" {
		return nil
	}
	_, err := c.call("turn/interrupt", map[string]any{"threadId": th.id, "turnId": turn}, callTime)
	return err
}

// answer answers a server request in one of the ways that clients do.
func (s *seat) answer(c *client, m message) {
	s.run.tally.add("~questions shown")
	s.mu.Lock()
	n, wait := s.answers.IntN(100), time.Duration(s.answers.IntN(800))*time.Millisecond
	s.mu.Unlock()
	time.Sleep(wait)
	switch {
	case n < 55:
		_ = c.send(map[string]any{"id": m.ID, "result": map[string]any{"decision": "accept"}})
	case n < 75:
		_ = c.send(map[string]any{"id": m.ID, "result": map[string]any{"decision": "decline"}})
	case n < 80:
		_ = c.send(map[string]any{"id": m.ID, "error": map[string]any{"code": -32601, "message": "not known"}})
	case n < 85:
		_ = c.send(map[string]any{"id": m.ID, "result": map[string]any{"decision": "cancel"}})
	}
}
