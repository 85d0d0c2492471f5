package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// client drives one `heddle app-server` over its standard streams.
type client struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan message
	next  int
}

type message struct {
	ID     *int            `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

func startAppServer(heddle, home, dir string) (*client, error) {
	cmd := exec.Command(heddle, "app-server")
	cmd.Dir = dir
	cmd.Env = append(cleanEnv(dir), "HEDDLE_HOME="+home)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", heddle, err)
	}
	c := &client{cmd: cmd, in: in, lines: make(chan message, 256)}
	go c.read(out)
	if _, err := c.call("initialize", map[string]any{"clientInfo": map[string]any{"name": "turnbench", "version": "1"}}); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *client) read(out io.Reader) {
	defer close(c.lines)
	scanner := bufio.NewScanner(out)
	scanner.Buffer(make([]byte, 64<<10), 4<<20)
	for scanner.Scan() {
		var m message
		if json.Unmarshal(scanner.Bytes(), &m) == nil {
			c.lines <- m
		}
	}
}

func (c *client) close() {
	c.in.Close()
	_ = c.cmd.Wait()
}

// wait returns the first message that fits, or an error when the server ends or
// stays silent for a minute.
func (c *client) wait(fits func(message) bool) (message, error) {
	timeout := time.After(time.Minute)
	for {
		select {
		case m, ok := <-c.lines:
			if !ok {
				return message{}, errors.New("the app-server ended")
			}
			if fits(m) {
				return m, nil
			}
		case <-timeout:
			return message{}, errors.New("the app-server was silent for a minute")
		}
	}
}

func (c *client) call(method string, params map[string]any) (json.RawMessage, error) {
	c.next++
	id := c.next
	line := append(mustJSON(map[string]any{"id": id, "method": method, "params": params}), '\n')
	if _, err := c.in.Write(line); err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	m, err := c.wait(func(m message) bool { return m.Method == "" && m.ID != nil && *m.ID == id })
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	if m.Error != nil {
		return nil, fmt.Errorf("%s: %s", method, m.Error.Message)
	}
	return m.Result, nil
}

func (c *client) startThread(dir, level string) (string, error) {
	result, err := c.call("thread/start", map[string]any{"cwd": dir, "sandbox": level, "approvalPolicy": "never"})
	if err != nil {
		return "", err
	}
	var r struct {
		Thread struct {
			ID string `json:"id"`
		} `json:"thread"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		return "", fmt.Errorf("thread/start: %w", err)
	}
	return r.Thread.ID, nil
}

// runTurn runs one turn to its end and checks that every command ran and ended
// well, so that a fast failure cannot pass for speed.
func (c *client) runTurn(thread string, commands int) (time.Duration, error) {
	start := time.Now()
	if _, err := c.call("turn/start", map[string]any{"threadId": thread, "input": []any{map[string]any{"type": "text", "text": "go"}}}); err != nil {
		return 0, err
	}
	ok := 0
	end, err := c.wait(func(m message) bool {
		if m.Method == "item/completed" && succeeded(m.Params) {
			ok++
		}
		return m.Method == "turn/completed"
	})
	took := time.Since(start)
	if err != nil {
		return 0, err
	}
	if ok != commands {
		return 0, fmt.Errorf("%d of %d commands succeeded; the turn ended with %s", ok, commands, end.Params)
	}
	return took, nil
}

func succeeded(params json.RawMessage) bool {
	var p struct {
		Item struct {
			Type     string `json:"type"`
			Status   string `json:"status"`
			ExitCode *int   `json:"exitCode"`
		} `json:"item"`
	}
	return json.Unmarshal(params, &p) == nil && p.Item.Type == "commandExecution" && p.Item.Status == "completed" && p.Item.ExitCode != nil && *p.Item.ExitCode == 0
}
