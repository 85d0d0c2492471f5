package peer

import (
	"log/slog"
	"net"
	"net/netip"
)

// Guard returns l with every connection checked before Accept returns it: unix
// peers by CheckUnix, TCP peers on this host by CheckTCP. Refused connections
// are closed and logged. TCP peers from other hosts pass: they are the concern
// of TLS.
func Guard(l net.Listener, log *slog.Logger) net.Listener {
	return &guarded{Listener: l, log: log}
}

type guarded struct {
	net.Listener
	log *slog.Logger
}

func (g *guarded) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if err := check(c); err != nil {
			g.log.Warn("connection refused", "listener", g.Addr().String(), "error", err)
			_ = c.Close()
			continue
		}
		return c, nil
	}
}

func check(c net.Conn) error {
	switch c := c.(type) {
	case *net.UnixConn:
		_, err := CheckUnix(c)
		return err
	case *net.TCPConn:
		local, err := netip.ParseAddrPort(c.LocalAddr().String())
		if err != nil {
			return err
		}
		remote, err := netip.ParseAddrPort(c.RemoteAddr().String())
		if err != nil {
			return err
		}
		return CheckTCP(local, remote)
	}
	return nil
}
