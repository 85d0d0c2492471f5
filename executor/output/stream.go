// Package output holds the bytes of a running process between its pipe and the
// control plane's acknowledgement.
//
// A Stream keeps what is not acknowledged yet: first in a small memory window,
// past it in a spool file, up to a cap beyond which bytes are counted and
// dropped. A direct stream has no spool: its writer waits instead, and so does
// the process. Offsets count the bytes that were kept; none is ever given to
// two different bytes. One goroutine writes, one reads, any may acknowledge.
package output

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

const (
	// DefaultCap is the number of bytes kept of one stream.
	DefaultCap = 256 << 20
	// DefaultWindow is the memory one stream uses.
	DefaultWindow = 128 << 10
)

// ErrClosed is returned by Write after Discard.
var ErrClosed = errors.New("stream is discarded")

// Config of a Stream.
type Config struct {
	// Spool is the path of the file that overflow goes to. It is made at the
	// first overflow and has no name afterwards, so that it cannot be left over.
	Spool string
	// Window is the memory in bytes; 0 means DefaultWindow.
	Window int
	// Cap is the number of bytes kept; 0 means DefaultCap, for a direct stream
	// no cap.
	Cap int64
	// Direct makes Write wait when the window is full.
	Direct bool
	// Notify is called, without locks held, when there is something to read or
	// the stream was closed. It must not block.
	Notify func()
}

// Stream is one output stream of an action.
type Stream struct {
	cfg Config

	mu      sync.Mutex
	room    sync.Cond // direct streams: acknowledged or discarded
	mem     []byte    // bytes from acked on, as far as they are in memory
	acked   int64
	size    int64 // bytes kept so far
	dropped int64
	file    *os.File
	fileAt  int64 // offset of the file's first byte
	closed  bool
	gone    bool
}

// New returns an empty stream.
func New(cfg Config) *Stream {
	if cfg.Window <= 0 {
		cfg.Window = DefaultWindow
	}
	if cfg.Cap <= 0 && !cfg.Direct {
		cfg.Cap = DefaultCap
	}
	s := &Stream{cfg: cfg}
	s.room.L = &s.mu
	return s
}

// Write keeps p or counts it as dropped. It fails only when the spool cannot be
// written or the stream was discarded.
func (s *Stream) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		took, err := s.put(p)
		if err != nil {
			return n - len(p), err
		}
		p = p[took:]
		s.cfg.Notify()
	}
	return n, nil
}

// put takes as much of p as fits at once.
func (s *Stream) put(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.cfg.Direct && !s.gone && len(s.mem) >= s.cfg.Window {
		s.room.Wait()
	}
	if s.gone {
		return 0, ErrClosed
	}
	keep := p
	if s.cfg.Cap > 0 {
		left := s.cfg.Cap - s.size
		if left <= 0 {
			s.dropped += int64(len(p))
			return len(p), nil
		}
		keep = keep[:min(int64(len(keep)), left)]
	}
	if s.file == nil {
		space := s.cfg.Window - len(s.mem)
		if space > 0 || s.cfg.Direct {
			keep = keep[:min(len(keep), space)]
			s.mem = append(s.mem, keep...)
			s.size += int64(len(keep))
			return len(keep), nil
		}
	}
	if err := s.spill(keep); err != nil {
		return 0, err
	}
	s.size += int64(len(keep))
	return len(keep), nil
}

// spill appends to the spool file, making it first when there is none.
func (s *Stream) spill(p []byte) error {
	if s.file == nil {
		f, err := os.OpenFile(s.cfg.Spool, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("make output spool: %w", err)
		}
		if err := os.Remove(s.cfg.Spool); err != nil {
			f.Close()
			return fmt.Errorf("unlink output spool: %w", err)
		}
		s.file, s.fileAt = f, s.size
	}
	if _, err := s.file.WriteAt(p, s.size-s.fileAt); err != nil {
		return fmt.Errorf("write output spool: %w", err)
	}
	return nil
}

// Close says that no byte follows.
func (s *Stream) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cfg.Notify()
}

// Discard frees what the stream holds and fails later writes.
func (s *Stream) Discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone, s.closed = true, true
	s.mem = nil
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
	s.room.Broadcast()
}

// ReadAt copies bytes from off on into p. It returns 0 when there are none yet.
func (s *Stream) ReadAt(p []byte, off int64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if off < s.acked || off >= s.size || s.gone {
		return 0, nil
	}
	if at := off - s.acked; at < int64(len(s.mem)) {
		return copy(p, s.mem[at:]), nil
	}
	p = p[:min(int64(len(p)), s.size-off)]
	n, err := s.file.ReadAt(p, off-s.fileAt)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, fmt.Errorf("read output spool: %w", err)
	}
	return n, nil
}

// Ack frees the bytes before off. Lower offsets than before change nothing.
func (s *Stream) Ack(off int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	off = min(off, s.size)
	if off <= s.acked || s.gone {
		return
	}
	n := min(off-s.acked, int64(len(s.mem)))
	rest := copy(s.mem, s.mem[n:])
	s.mem = s.mem[:rest]
	s.acked = off
	if rest == 0 && off == s.size {
		s.drained()
	}
	s.room.Broadcast()
}

// drained gives memory and disk back once everything was acknowledged.
func (s *Stream) drained() {
	if s.closed {
		s.mem = nil
	}
	if s.file != nil {
		s.file.Close()
		s.file = nil
	}
}

// State is a snapshot of a stream.
type State struct {
	// Acked and Size are offsets; Dropped counts bytes after Size.
	Acked, Size, Dropped int64
	Closed               bool
}

// State returns a snapshot.
func (s *Stream) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return State{Acked: s.acked, Size: s.size, Dropped: s.dropped, Closed: s.closed}
}
