package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Address is a parsed listen address.
type Address struct {
	// Network is "stdio", "unix", "tcp" or "off".
	Network string
	// Target is a path or host:port.
	Target string
}

// ParseAddress reads stdio://, ws://IP:PORT, unix://PATH or off. An empty PATH
// takes defaultSocket.
func ParseAddress(s, defaultSocket string) (Address, error) {
	scheme, rest, ok := strings.Cut(s, "://")
	switch {
	case s == "stdio" || ok && scheme == "stdio" && rest == "":
		return Address{Network: "stdio"}, nil
	case s == "off":
		return Address{Network: "off"}, nil
	case ok && scheme == "unix":
		if rest == "" {
			rest = defaultSocket
		}
		path, err := filepath.Abs(rest)
		if err != nil {
			return Address{}, fmt.Errorf("listen address %q: %w", s, err)
		}
		return Address{Network: "unix", Target: path}, nil
	case ok && scheme == "ws":
		if _, err := netip.ParseAddrPort(rest); err != nil {
			return Address{}, fmt.Errorf("listen address %q: want ws://IP:PORT", s)
		}
		return Address{Network: "tcp", Target: rest}, nil
	}
	return Address{}, fmt.Errorf("unsupported listen address %q: want stdio://, ws://IP:PORT, unix://, unix://PATH or off", s)
}

// Loopback reports whether only this machine can reach the address.
func (a Address) Loopback() bool {
	ap, err := netip.ParseAddrPort(a.Target)
	return a.Network != "tcp" || err == nil && ap.Addr().IsLoopback()
}

// Listen opens the address. A socket file is made for its owner alone; one that
// nobody answers on is replaced.
func (a Address) Listen(ctx context.Context) (net.Listener, error) {
	if a.Network == "tcp" {
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp", a.Target)
		if err != nil {
			return nil, fmt.Errorf("listen on ws://%s: %w", a.Target, err)
		}
		return l, nil
	}
	if err := os.MkdirAll(filepath.Dir(a.Target), 0o700); err != nil {
		return nil, fmt.Errorf("make the socket's folder: %w", err)
	}
	if err := removeStale(ctx, a.Target); err != nil {
		return nil, err
	}
	l, err := listenPrivate(ctx, a.Target)
	if err != nil {
		return nil, fmt.Errorf("listen on unix://%s: %w", a.Target, err)
	}
	return l, nil
}

// listenPrivate binds under another name, in a folder of its own that only the
// owner can enter, and moves the socket into place: it is never reachable with
// wider permissions.
func listenPrivate(ctx context.Context, path string) (net.Listener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	tmp := filepath.Join(dir, "s")
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", tmp)
	if err != nil {
		return nil, err
	}
	u := l.(*net.UnixListener)
	u.SetUnlinkOnClose(false)
	if err := errors.Join(os.Chmod(tmp, 0o600), os.Rename(tmp, path)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &socket{UnixListener: u, path: path}, nil
}

// socket removes its file when it is closed.
type socket struct {
	*net.UnixListener
	path string
}

func (s *socket) Close() error {
	err := s.UnixListener.Close()
	if rm := os.Remove(s.path); err == nil && rm != nil && !errors.Is(rm, os.ErrNotExist) {
		err = rm
	}
	return err
}

func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	if info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("%s exists and is not a socket", path)
	}
	d := net.Dialer{Timeout: time.Second}
	c, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		_ = c.Close()
		return fmt.Errorf("another server listens on %s", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("probe the socket %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the stale socket: %w", err)
	}
	return nil
}
