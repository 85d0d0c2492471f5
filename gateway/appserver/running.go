package appserver

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
)

const (
	// maxExecs bounds the processes of one connection that run at a time.
	maxExecs = 256
	// execChunk bounds the bytes of one delta.
	execChunk = 256 << 10
	// stdinQueue bounds the writes that wait for a process to read.
	stdinQueue = 64
	// terminateWait is when a process whose end was asked for is ended with its
	// stream.
	terminateWait  = 2 * time.Second
	exitTimeout    = 124
	exitTerminated = 137
)

// family is one of the two groups of methods that run processes for a
// connection. Each has its own names for processes and its own words.
type family int

const (
	commandFamily family = iota
	processFamily
)

// words are how a family's messages name things.
type words struct {
	delta, handle string // the notification of output and its member
	write, size   string // how errors name the method and the size

	duplicate, unknown, stdinOff string
}

func (f family) words() words {
	if f == processFamily {
		return words{
			delta: "process/outputDelta", handle: "processHandle", write: "process/writeStdin", size: "process size",
			duplicate: "duplicate active process handle: %q", unknown: "no active process for process handle %q",
			stdinOff: "stdin streaming is not enabled for this process",
		}
	}
	return words{
		delta: "command/exec/outputDelta", handle: "processId", write: "command/exec/write", size: "command/exec size",
		duplicate: "duplicate active command/exec process id: %q", unknown: "no active command/exec for process id %q",
		stdinOff: "stdin streaming is not enabled for this command/exec",
	}
}

// execKey names a process of a connection.
type execKey struct {
	family family
	id     string
}

// execution is one process of a connection under way.
type execution struct {
	key    execKey
	cancel context.CancelFunc
	// tty, stdin and stream say whether there is a terminal, whether it takes
	// input, and whether its output is sent as it comes.
	tty, stdin, stream bool
	// requests go to the process's stream in order.
	requests chan *heddlev1.ExecRequest
	done     chan struct{}

	mu         sync.Mutex
	terminated bool
}

func newExecution(f family, id string) *execution {
	return &execution{key: execKey{f, id}, requests: make(chan *heddlev1.ExecRequest, stdinQueue), done: make(chan struct{})}
}

// execOutcome is how a process ended. The output is empty when it was streamed.
type execOutcome struct {
	exited                     *heddlev1.ExecExited
	stdout, stderr             []byte
	stdoutCapped, stderrCapped bool
	// unstarted is set when there was no program to run; stderr says why.
	unstarted bool
	why       []byte
}

func (o *execOutcome) capped() bool { return o.stdoutCapped || o.stderrCapped }

// whyUnstarted is the reason in the words of the operating system where it is
// the commonest one.
func (o *execOutcome) whyUnstarted() string {
	why := strings.TrimSpace(strings.TrimPrefix(string(o.why), "heddle: "))
	return strings.Replace(why, "command not found", "no such file or directory", 1)
}

func (c *client) addExec(x *execution) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.execs[x.key]; taken {
		return invalid(fmt.Sprintf(x.key.family.words().duplicate, x.key.id))
	}
	if len(c.execs) >= maxExecs {
		return &jsonrpc.Error{Code: jsonrpc.CodeOverloaded, Message: "Server overloaded; retry later."}
	}
	c.execs[x.key] = x
	return nil
}

func (c *client) removeExec(x *execution) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.execs, x.key)
	close(x.done)
}

// endExecs ends the connection's processes.
func (c *client) endExecs() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.execs {
		x.cancel()
	}
}

func (c *client) exec(f family, id string) (*execution, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.execs[execKey{f, id}]; x != nil {
		return x, nil
	}
	return nil, invalid(fmt.Sprintf(f.words().unknown, id))
}

// runExec runs a process to its end. started, when it is not nil, is called when
// the program runs, before any of its output is passed on.
func (s *Server) runExec(ctx context.Context, c *client, x *execution, start *heddlev1.ExecStart, started func()) (*execOutcome, error) {
	var stream grpc.BidiStreamingClient[heddlev1.ExecRequest, heddlev1.ExecResponse]
	err := s.session.Stream(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		stream, err = heddlev1.NewWorkspaceServiceClient(cc).Exec(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&heddlev1.ExecRequest{Message: &heddlev1.ExecRequest_Start{Start: start}}); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	go func() {
		for {
			select {
			case m := <-x.requests:
				if stream.Send(m) != nil {
					return
				}
			case <-x.done:
				return
			}
		}
	}()
	return x.receive(ctx, c, stream, started)
}

// receive collects the output until the process has ended.
func (x *execution) receive(ctx context.Context, c *client, stream grpc.BidiStreamingClient[heddlev1.ExecRequest, heddlev1.ExecResponse], started func()) (*execOutcome, error) {
	out := &execOutcome{}
	for {
		m, err := stream.Recv()
		if err != nil && x.wasTerminated() && c.ctx.Err() == nil {
			out.exited = &heddlev1.ExecExited{}
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		switch m := m.GetMessage().(type) {
		case *heddlev1.ExecResponse_Started:
			out.unstarted = m.Started.GetPid() == 0
			if started != nil && !out.unstarted {
				started()
			}
		case *heddlev1.ExecResponse_Output:
			if err := x.take(ctx, c, out, m.Output); err != nil {
				return nil, err
			}
		case *heddlev1.ExecResponse_Exited:
			out.exited = m.Exited
			return out, nil
		}
	}
}

func (x *execution) take(ctx context.Context, c *client, out *execOutcome, o *heddlev1.ExecOutput) error {
	kept, capped := &out.stdout, &out.stdoutCapped
	if o.GetStream() == 2 {
		kept, capped = &out.stderr, &out.stderrCapped
	}
	*capped = *capped || o.GetCapReached()
	if out.unstarted {
		out.why = append(out.why, o.GetData()...)
	}
	if x.stream {
		return x.tell(ctx, c, o)
	}
	*kept = append(*kept, o.GetData()...)
	return nil
}

// tell sends output as it comes. A client that does not read holds the process up.
func (x *execution) tell(ctx context.Context, c *client, o *heddlev1.ExecOutput) error {
	name := "stdout"
	if o.GetStream() == 2 {
		name = "stderr"
	}
	data := o.GetData()
	for {
		part := data[:min(len(data), execChunk)]
		data = data[len(part):]
		n := note{method: x.key.family.words().delta, params: list{
			x.key.family.words().handle: x.key.id, "stream": name, "deltaBase64": base64.StdEncoding.EncodeToString(part), "capReached": o.GetCapReached() && len(data) == 0,
		}}
		if c.wants(n) {
			msg, err := n.encode(time.Now().UnixMilli(), false, 0)
			if err != nil {
				return err
			}
			if err := c.conn.Notify(ctx, msg); err != nil {
				return err
			}
		}
		if len(data) == 0 {
			return nil
		}
	}
}

// exitCode is the status that the client is told.
func (x *execution) exitCode(e *heddlev1.ExecExited) int32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case e.GetVerdict().GetTimedOut():
		return exitTimeout
	case x.terminated && x.tty:
		return 1
	case x.terminated:
		return exitTerminated
	}
	return e.GetExitCode()
}

// push queues a request to the process. A process that does not read its input
// lets only so much wait.
func (x *execution) push(m *heddlev1.ExecRequest) error {
	select {
	case x.requests <- m:
		return nil
	default:
		return &jsonrpc.Error{Code: jsonrpc.CodeOverloaded, Message: "Server overloaded; retry later."}
	}
}

// write passes input on to a process.
func (c *client) write(f family, id string, encoded *string, closing bool) error {
	if encoded == nil && !closing {
		return params(f.words().write + " requires deltaBase64 or closeStdin")
	}
	data, err := base64.StdEncoding.DecodeString(text(encoded))
	if err != nil {
		return params("invalid deltaBase64: " + err.Error())
	}
	x, err := c.exec(f, id)
	if err != nil {
		return err
	}
	if !x.stdin {
		return invalid(f.words().stdinOff)
	}
	return x.push(&heddlev1.ExecRequest{Message: &heddlev1.ExecRequest_Stdin{Stdin: &heddlev1.ExecStdin{Data: data, Close: closing}}})
}

// resize changes the size of a process's terminal.
func (c *client) resize(f family, id string, size protocol.TerminalSize) error {
	if size.Rows == 0 || size.Cols == 0 {
		return params(f.words().size + " rows and cols must be greater than 0")
	}
	x, err := c.exec(f, id)
	if err != nil {
		return err
	}
	if !x.tty {
		return invalid("failed to resize PTY: process is not attached to a PTY")
	}
	return x.push(&heddlev1.ExecRequest{Message: &heddlev1.ExecRequest_Resize{Resize: &heddlev1.ExecResize{Rows: int32(size.Rows), Cols: int32(size.Cols)}}})
}

// terminate kills a process.
func (c *client) terminate(f family, id string) error {
	x, err := c.exec(f, id)
	if err != nil {
		return err
	}
	x.mu.Lock()
	x.terminated = true
	x.mu.Unlock()
	// Behind input that nobody reads it would wait for ever: the end of the stream
	// kills too.
	if x.push(&heddlev1.ExecRequest{Message: &heddlev1.ExecRequest_Terminate{Terminate: &heddlev1.ExecTerminate{}}}) != nil {
		x.cancel()
	} else {
		time.AfterFunc(terminateWait, x.cancel)
	}
	return nil
}

// wasTerminated tells whether the client asked for the end.
func (x *execution) wasTerminated() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.terminated
}
