package approval

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
)

// maxRemembered bounds what one thread remembers; past it, things are asked
// again.
const maxRemembered = 4096

// Memory holds what was accepted for the session in one thread: exactly the
// commands and files that were shown. The zero value is ready; methods are safe
// for concurrent use.
type Memory struct {
	mu   sync.Mutex
	keys map[[sha256.Size]byte]struct{}
}

// AllowCommand remembers one command as it was shown.
func (m *Memory) AllowCommand(argv []string, cwd string, escalated bool) {
	m.add(commandKey(argv, cwd, escalated))
}

// CommandAllowed reports whether exactly this command was accepted.
func (m *Memory) CommandAllowed(argv []string, cwd string, escalated bool) bool {
	return m.has(commandKey(argv, cwd, escalated))
}

// AllowFiles remembers absolute paths that patches may write.
func (m *Memory) AllowFiles(paths []string) {
	for _, p := range paths {
		m.add(key("file", p))
	}
}

// FilesAllowed reports whether every path was accepted; false for no paths.
func (m *Memory) FilesAllowed(paths []string) bool {
	for _, p := range paths {
		if !m.has(key("file", p)) {
			return false
		}
	}
	return len(paths) > 0
}

// AllowAction remembers one action by its hash.
func (m *Memory) AllowAction(hash []byte) { m.add(key("action", string(hash))) }

// ActionAllowed reports whether the action of exactly this hash was accepted;
// false for no hash.
func (m *Memory) ActionAllowed(hash []byte) bool {
	return len(hash) > 0 && m.has(key("action", string(hash)))
}

// Load adds what Bytes returned before.
func (m *Memory) Load(b []byte) {
	for len(b) >= sha256.Size {
		m.add([sha256.Size]byte(b[:sha256.Size]))
		b = b[sha256.Size:]
	}
}

// Bytes is everything that is remembered, in a form that Load takes.
func (m *Memory) Bytes() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := make([]byte, 0, len(m.keys)*sha256.Size)
	for k := range m.keys {
		b = append(b, k[:]...)
	}
	return b
}

func (m *Memory) add(k [sha256.Size]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.keys == nil {
		m.keys = map[[sha256.Size]byte]struct{}{}
	}
	if len(m.keys) < maxRemembered {
		m.keys[k] = struct{}{}
	}
}

func (m *Memory) has(k [sha256.Size]byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.keys[k]
	return ok
}

func commandKey(argv []string, cwd string, escalated bool) [sha256.Size]byte {
	fields := []string{"sandboxed", cwd}
	if escalated {
		fields[0] = "escalated"
	}
	return key("command", append(fields, argv...)...)
}

// key hashes length-prefixed fields, so that no two field lists collide.
func key(kind string, fields ...string) [sha256.Size]byte {
	b := []byte(kind)
	for _, f := range fields {
		b = binary.BigEndian.AppendUint64(b, uint64(len(f)))
		b = append(b, f...)
	}
	return sha256.Sum256(b)
}
