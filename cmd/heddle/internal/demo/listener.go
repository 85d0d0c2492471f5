package demo

import (
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// listener counts the connections that reach this host's loopback.
type listener struct {
	net.Listener
	arrived atomic.Int64
}

// listen opens a port and proves that it can be reached from here.
func listen() (*listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("open a port for the demo: %w", err)
	}
	lis := &listener{Listener: l}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			lis.arrived.Add(1)
			_ = c.Close()
		}
	}()
	c, err := net.DialTimeout("tcp", l.Addr().String(), 5*time.Second)
	if err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("reach the demo's own port: %w", err)
	}
	_ = c.Close()
	for range 500 {
		if lis.arrived.Load() == 1 {
			return lis, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	_ = l.Close()
	return nil, fmt.Errorf("the demo's own port does not accept connections")
}

// others is the number of connections besides the demo's own.
func (l *listener) others() int64 { return l.arrived.Load() - 1 }

func (l *listener) port() int { return l.Addr().(*net.TCPAddr).Port }

func (l *listener) close() { _ = l.Close() }
