package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

const (
	// maxStderr bounds what is kept of a server's last words.
	maxStderr = 2 << 10
	// exitWait is how long the end of a closed program is waited for.
	exitWait = 5 * time.Second
)

// link carries the messages of a program: its standard streams, with an
// executor in between.
type link struct {
	// ctx ends when the link is closed.
	ctx   context.Context
	close context.CancelFunc
	in    *io.PipeReader
	out   *io.PipeWriter
	// ended is closed after the program's end, of which exit tells.
	ended chan struct{}

	// line is touched by output only.
	line []byte

	mu     sync.Mutex
	proc   Process
	stderr []byte
	exit   string
}

// dial starts a server's program.
func dial(ctx context.Context, host *Host, s *Server) (*link, error) {
	l := &link{ended: make(chan struct{})}
	l.ctx, l.close = context.WithCancel(context.Background())
	l.in, l.out = io.Pipe()
	proc, err := host.Launch(ctx, s, l.output)
	if err != nil {
		l.close()
		return nil, err
	}
	l.proc = proc
	context.AfterFunc(l.ctx, func() {
		_ = l.out.CloseWithError(io.EOF)
		_ = proc.Terminate(context.Background())
	})
	go l.watch()
	return l, nil
}

// watch waits for the program's end.
func (l *link) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer context.AfterFunc(l.ctx, func() { time.AfterFunc(exitWait, cancel) })()
	res, err := l.proc.Result(ctx)
	exit := ""
	switch {
	case err != nil:
		exit = err.Error()
	case res.GetError() != nil:
		exit = res.GetError().GetMessage()
	default:
		exit = fmt.Sprintf("it ended with exit code %d", res.GetProcess().GetExitCode())
	}
	if err == nil {
		l.proc.Settle()
	}
	l.mu.Lock()
	if words := strings.TrimSpace(string(l.stderr)); words != "" {
		exit += ": " + strings.ToValidUTF8(words, "\uFFFD")
	}
	l.exit = exit
	l.mu.Unlock()
	close(l.ended)
	_ = l.out.CloseWithError(io.EOF)
}

// output takes what the program writes. Lines that are no JSON are dropped: many
// programs print notices where only messages belong.
func (l *link) output(c *executorv1.OutputChunk) error {
	data := c.GetData()
	if c.GetStream() == 2 {
		l.mu.Lock()
		l.stderr = append(l.stderr, data...)
		if over := len(l.stderr) - maxStderr; over > 0 {
			l.stderr = append(l.stderr[:0], l.stderr[over:]...)
		}
		l.mu.Unlock()
		return nil
	}
	for len(data) > 0 {
		i := bytes.IndexByte(data, '\n')
		piece := data
		if i >= 0 {
			piece = data[:i+1]
		}
		data = data[len(piece):]
		if len(l.line)+len(piece) > maxMessage {
			_ = l.out.CloseWithError(fmt.Errorf("a message is longer than %d bytes", maxMessage))
			return fmt.Errorf("a message is longer than %d bytes", maxMessage)
		}
		l.line = append(l.line, piece...)
		if i < 0 {
			continue
		}
		if whole := bytes.TrimSpace(l.line); len(whole) > 0 && (whole[0] == '{' || whole[0] == '[') && json.Valid(whole) {
			if _, err := l.out.Write(append(whole, '\n')); err != nil {
				return nil // nobody reads any more
			}
		}
		l.line = l.line[:0]
	}
	return nil
}

// Write implements io.Writer: it reaches the program's standard input.
func (l *link) Write(p []byte) (int, error) {
	if err := l.proc.Stdin(l.ctx, p, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close ends the program.
func (l *link) Close() error {
	l.close()
	return nil
}

// gone reports whether the program has ended.
func (l *link) gone() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// why tells of the program's end, empty while it runs. It waits a moment for an
// end that is on its way.
func (l *link) why(wait time.Duration) string {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-l.ended:
	case <-timer.C:
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.exit
}

func (l *link) transport() sdk.Transport {
	return &sdk.IOTransport{Reader: l.in, Writer: l, MaxLineLength: 2 * maxMessage}
}
