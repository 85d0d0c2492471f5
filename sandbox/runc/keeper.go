//go:build cgo

// Package runc makes sandboxes with libcontainer. It runs in the helper process only.
//
// The keeper is one process per owner. It makes sandboxes on request, is the parent of each PID 1, and removes
// what a sandbox leaves in the system (cgroups, state files) when it ends. When its owner goes away, by any
// cause, it ends and removes all of them and the owner's directories, and exits.
package runc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	_ "github.com/opencontainers/cgroups/devices" // device rules need it
	"github.com/opencontainers/runc/libcontainer"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // enters namespaces before the runtime starts
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guest/early"
	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

const (
	controlFD = 3
	binaryFD  = 4 // this program, sealed
)

type keeper struct {
	conn   *guestproto.Conn
	binary *os.File
	setup  guestproto.KeeperSetup

	mu    sync.Mutex
	boxes map[string]*libcontainer.Container
	wg    sync.WaitGroup // one per box that is being made or lives
}

// Init is the second stage of making a sandbox. It must be called before main.
func Init() { libcontainer.Init() }

// Keeper serves the owner on descriptor 3 and never returns.
func Keeper() {
	logrus.SetOutput(io.Discard)
	unix.CloseOnExec(controlFD)
	unix.CloseOnExec(binaryFD)
	conn, err := guestproto.NewConn(controlFD)
	if err != nil {
		fmt.Fprintln(os.Stderr, "heddle-guest:", err)
		os.Exit(1)
	}
	k := &keeper{conn: conn, binary: os.NewFile(binaryFD, "heddle-guest"), boxes: map[string]*libcontainer.Container{}}
	for {
		m, err := conn.Recv()
		if err != nil {
			k.leave()
			os.Exit(0)
		}
		k.handle(m)
	}
}

func (k *keeper) handle(m guestproto.Msg) {
	switch m.Kind {
	case guestproto.KSetup:
		r := guestproto.Reply{}
		if err := json.Unmarshal(m.Body, &k.setup); err != nil {
			r = guestproto.Reply{Errno: int(unix.EINVAL), Text: err.Error()}
		}
		_ = k.conn.Send(guestproto.KReply, m.ID, r.Encode())
	case guestproto.KCreate:
		k.wg.Add(1)
		go func() {
			defer k.wg.Done()
			k.create(m)
		}()
	case guestproto.KEnd:
		k.mu.Lock()
		c := k.boxes[string(m.Body)]
		k.mu.Unlock()
		if c != nil {
			_ = c.Signal(unix.SIGKILL)
		}
	default:
		m.CloseFiles()
	}
}

// create makes one sandbox, answers, and stays with it until its end.
func (k *keeper) create(m guestproto.Msg) {
	defer m.CloseFiles()
	var b guestproto.Box
	err := json.Unmarshal(m.Body, &b)
	if err == nil && len(m.Files) != 1 {
		err = errors.New("no control socket for the guest")
	}
	var proc *libcontainer.Process
	var c *libcontainer.Container
	if err == nil {
		c, proc, err = k.start(b, m.TakeFile(0))
	}
	if err != nil {
		_ = k.conn.Send(guestproto.KReply, m.ID, guestproto.Reply{Errno: int(unix.EIO), Text: err.Error()}.Encode())
		return
	}
	pid, _ := proc.Pid()
	var e guestproto.Enc
	e.Uint(uint64(pid))
	paths := map[string]string{}
	if st, err := c.State(); err == nil {
		paths = st.CgroupPaths
	}
	e.Str(paths["memory"])
	e.Str(paths["pids"])
	_ = k.conn.Send(guestproto.KReply, m.ID, guestproto.Reply{Body: e.B}.Encode())
	_, _ = proc.Wait()
	k.mu.Lock()
	delete(k.boxes, b.ID)
	k.mu.Unlock()
	err = c.Destroy()
	r := guestproto.Reply{}
	if err != nil {
		r = guestproto.Reply{Errno: int(unix.EIO), Text: err.Error()}
	}
	r.Body = []byte(b.ID)
	_ = k.conn.Send(guestproto.KEnded, 0, r.Encode())
}

func (k *keeper) start(b guestproto.Box, control int) (*libcontainer.Container, *libcontainer.Process, error) {
	sock := os.NewFile(uintptr(control), "guest-control")
	defer sock.Close()
	c, err := libcontainer.Create(b.StateRoot, b.ID, config(b))
	if err != nil {
		return nil, nil, fmt.Errorf("create sandbox: %w", err)
	}
	p := &libcontainer.Process{
		Args:       []string{"/proc/self/fd/" + strconv.Itoa(binaryFD), "guest"},
		Env:        []string{"PATH=/usr/bin:/bin", "GOMAXPROCS=2", "GOTRACEBACK=none"},
		Cwd:        "/",
		ExtraFiles: []*os.File{sock, k.binary}, // descriptors 3 and 4
		Stderr:     os.Stderr,
		Init:       true,
	}
	if b.Rootless {
		p.Env = append(p.Env, fmt.Sprintf("%s=%d:%d", early.NestEnv, b.UID, b.GID))
	}
	run := c.Run
	if len(b.Covers) > 0 {
		run = func(p *libcontainer.Process) error { return k.runCovered(c, p, b) }
	}
	if err := run(p); err != nil {
		_ = c.Destroy()
		return nil, nil, fmt.Errorf("start sandbox: %w", err)
	}
	k.mu.Lock()
	k.boxes[b.ID] = c
	k.mu.Unlock()
	return c, p, nil
}

// leave ends everything of the owner and removes its traces. Each guest ends by itself when the owner dies; this
// also covers one that is stopped or stuck.
func (k *keeper) leave() {
	done := make(chan struct{})
	go func() { k.wg.Wait(); close(done) }()
	for range 100 {
		k.mu.Lock()
		for _, c := range k.boxes {
			_ = c.Signal(unix.SIGKILL)
		}
		k.mu.Unlock()
		select {
		case <-done:
			k.removeTraces()
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (k *keeper) removeTraces() {
	if d := k.setup.CgroupDir; d != "" {
		guestproto.RemoveCgroup(d)
	}
	if d := k.setup.OwnerDir; filepath.IsAbs(d) && strings.Contains(d, "/owners/") {
		guestproto.SweepBoxes(d) // of a keeper before this one
		_ = os.RemoveAll(d)
	}
}
