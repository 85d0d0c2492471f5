package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// client drives one `heddle app-server` over its standard streams.
type client struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	home string
	next int
}

func startAppServer(heddle, home string) (*client, error) {
	cmd := exec.Command(heddle, "app-server")
	cmd.Dir = home
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LANG=C.UTF-8", "HEDDLE_HOME=" + home, "HEDDLE_IDLE_EXIT=50ms"}
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
	c := &client{cmd: cmd, in: in, out: bufio.NewReaderSize(out, 1<<20), home: home}
	_, err = c.call("initialize", map[string]any{"clientInfo": map[string]any{"name": "historybench", "version": "1"}})
	return c, err
}

// call makes a request and returns its answer; what comes in between is dropped.
func (c *client) call(method string, params map[string]any) (json.RawMessage, error) {
	c.next++
	line, err := json.Marshal(map[string]any{"id": c.next, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	if _, err := c.in.Write(append(line, '\n')); err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	for {
		line, err := c.out.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("%s: %w", method, err)
		}
		var m struct {
			ID     int             `json:"id"`
			Method string          `json:"method"`
			Result json.RawMessage `json:"result"`
			Error  *struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, fmt.Errorf("%s: %w", method, err)
		}
		if m.Method != "" || m.ID != c.next {
			continue
		}
		if m.Error != nil {
			return nil, fmt.Errorf("%s: %s", method, m.Error.Message)
		}
		return m.Result, nil
	}
}

func (c *client) timed(method string, params map[string]any) (time.Duration, error) {
	began := time.Now()
	result, err := c.call(method, params)
	took := time.Since(began)
	if err == nil && len(result) < 200 {
		err = fmt.Errorf("%s: the answer is empty: %s", method, result)
	}
	return took, err
}

// planeKB is the memory of the home's control plane, in KiB.
func (c *client) planeKB(home string) (int, error) {
	conn, err := grpc.NewClient("unix:"+filepath.Join(home, "run", "control.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	status, err := heddlev1.NewCatalogServiceClient(conn).GetStatus(context.Background(), &heddlev1.GetStatusRequest{})
	if err != nil {
		return 0, err
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", status.GetPid()))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(data), "VmRSS:")
	kb := 0
	_, err = fmt.Sscan(rest, &kb)
	return kb, err
}

// stop ends the client and waits until the control plane has ended, too, so that
// the next start is a new one.
func (c *client) stop() error {
	if err := errors.Join(c.in.Close(), c.cmd.Wait()); err != nil {
		return err
	}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(c.home, "run", "control.sock")); errors.Is(err, os.ErrNotExist) {
			return nil
		}
	}
	return errors.New("the control plane did not end")
}
