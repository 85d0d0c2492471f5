package session

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Peer names a process of this machine so that its number cannot be mistaken
// for a later process with the same one.
type Peer struct {
	PID int64
	// Start is the start time in clock ticks since boot; 0 when unknown.
	Start uint64
}

// PeerOf looks a process up; the zero Peer for pid 0.
func PeerOf(pid int64) Peer {
	if pid <= 0 {
		return Peer{}
	}
	start, _, _ := stat(pid)
	return Peer{PID: pid, Start: start}
}

// Dead reports whether the process is known to be gone. An unknown peer is
// never dead.
func (p Peer) Dead() bool {
	if p.PID <= 0 || p.Start == 0 {
		return false
	}
	start, state, ok := stat(p.PID)
	return !ok || start != p.Start || state == 'Z' || state == 'X'
}

// String is the form kept in the store; ParsePeer reads it back.
func (p Peer) String() string { return fmt.Sprintf("%d:%d", p.PID, p.Start) }

// ParsePeer reads String's form; anything else is the zero Peer.
func ParsePeer(s string) Peer {
	pid, start, ok := strings.Cut(s, ":")
	if !ok {
		return Peer{}
	}
	var p Peer
	var err error
	if p.PID, err = strconv.ParseInt(pid, 10, 64); err != nil {
		return Peer{}
	}
	if p.Start, err = strconv.ParseUint(start, 10, 64); err != nil {
		return Peer{}
	}
	return p
}

// stat reads start time and state from /proc. ok is false when there is no such
// process.
func stat(pid int64) (start uint64, state byte, ok bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, false
	}
	// The command name is in parentheses and may hold anything.
	i := bytes.LastIndexByte(data, ')')
	if i < 0 {
		return 0, 0, false
	}
	fields := strings.Fields(string(data[i+1:]))
	if len(fields) < 20 || fields[0] == "" {
		return 0, 0, false
	}
	start, err = strconv.ParseUint(fields[19], 10, 64)
	return start, fields[0][0], err == nil
}
