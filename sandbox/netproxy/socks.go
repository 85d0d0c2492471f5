package netproxy

import (
	"encoding/binary"
	"io"
	"net/netip"
	"time"
)

// SOCKS 5, RFC 1928; names are resolved here ("socks5h").
const (
	socksVersion = 5
	socksConnect = 1
	socksIPv4    = 1
	socksName    = 3
	socksIPv6    = 4

	socksOK            = 0
	socksFailure       = 1
	socksNotAllowed    = 2
	socksUnreachable   = 4
	socksNoCommand     = 7
	socksNoAddressType = 8
	socksNoMethod      = 0xff
	socksAuthNone      = 0
)

// socks serves one SOCKS connection.
func (c *client) socks() {
	_ = c.conn.SetDeadline(time.Now().Add(c.p.cfg.HeaderTimeout))
	if !c.socksGreet() {
		return
	}
	var head [4]byte
	if _, err := io.ReadFull(c.br, head[:]); err != nil || head[0] != socksVersion {
		return
	}
	host, port, code := c.socksTarget(head[3])
	switch {
	case code != socksOK:
	case head[1] != socksConnect:
		code = socksNoCommand // neither BIND nor UDP
	}
	if code != socksOK {
		c.socksReply(code)
		return
	}
	name, err := Normalize(host)
	if err != nil || port == 0 {
		c.socksReply(socksNotAllowed)
		return
	}
	_ = c.conn.SetDeadline(time.Time{})
	fail := func(r *refusal) { c.socksReply(r.socks) }
	c.tunnel(Request{Host: name, Port: port, Protocol: ProtocolSOCKS5}, fail, func() error { return c.socksReply(socksOK) })
}

// socksGreet agrees on no authentication, the only method.
func (c *client) socksGreet() bool {
	var head [2]byte
	if _, err := io.ReadFull(c.br, head[:]); err != nil {
		return false
	}
	methods := make([]byte, head[1])
	if _, err := io.ReadFull(c.br, methods); err != nil {
		return false
	}
	for _, m := range methods {
		if m == socksAuthNone {
			_, err := c.conn.Write([]byte{socksVersion, socksAuthNone})
			return err == nil
		}
	}
	_, _ = c.conn.Write([]byte{socksVersion, socksNoMethod})
	return false
}

func (c *client) socksTarget(kind byte) (host string, port uint16, code byte) {
	size := 0
	switch kind {
	case socksIPv4:
		size = 4
	case socksIPv6:
		size = 16
	case socksName:
		n, err := c.br.ReadByte()
		if err != nil {
			return "", 0, socksFailure
		}
		size = int(n)
	default:
		return "", 0, socksNoAddressType
	}
	b := make([]byte, size+2)
	if _, err := io.ReadFull(c.br, b); err != nil {
		return "", 0, socksFailure
	}
	host, port = string(b[:size]), binary.BigEndian.Uint16(b[size:])
	if kind != socksName {
		a, _ := netip.AddrFromSlice(b[:size])
		host = a.String()
	}
	return host, port, socksOK
}

func (c *client) socksReply(code byte) error {
	_ = c.conn.SetWriteDeadline(time.Now().Add(c.p.cfg.HeaderTimeout))
	defer func() { _ = c.conn.SetWriteDeadline(time.Time{}) }()
	_, err := c.conn.Write([]byte{socksVersion, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	return err
}
