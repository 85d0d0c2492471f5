package netproxy

import (
	"bufio"
	"errors"
	"net/netip"
)

const (
	recordHandshake = 0x16
	recordHeader    = 5
	maxRecord       = 16 << 10
	helloMessage    = 1
	extServerName   = 0
)

var errHello = errors.New("it is not a well-formed ClientHello")

func isLiteral(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

// readServerName returns the server name of a ClientHello that is still in br afterwards; empty when it has none.
// The hello may be spread over several records.
func readServerName(br *bufio.Reader) (string, error) {
	var msg []byte
	for at, need := 0, 4; len(msg) < need; {
		head, err := br.Peek(at + recordHeader)
		if err != nil {
			return "", peekError(err)
		}
		head = head[at:]
		n := int(head[3])<<8 | int(head[4])
		if head[0] != recordHandshake || head[1] != 3 || n == 0 || n > maxRecord {
			return "", errHello
		}
		rec, err := br.Peek(at + recordHeader + n)
		if err != nil {
			return "", peekError(err)
		}
		msg = append(msg, rec[at+recordHeader:]...)
		at += recordHeader + n
		if len(msg) >= 4 {
			if msg[0] != helloMessage {
				return "", errHello
			}
			need = 4 + (int(msg[1])<<16 | int(msg[2])<<8 | int(msg[3]))
			if need > maxHeader {
				return "", errTooLong
			}
			if len(msg) >= need {
				msg = msg[:need]
			}
		}
	}
	return parseHello(msg[4:])
}

func peekError(err error) error {
	if errors.Is(err, bufio.ErrBufferFull) {
		return errTooLong
	}
	return err
}

// fields reads length-prefixed parts; after a failure it returns nothing.
type fields struct {
	b   []byte
	bad bool
}

func (f *fields) take(n int) []byte {
	if n > len(f.b) {
		f.bad, f.b = true, nil
		return nil
	}
	out := f.b[:n]
	f.b = f.b[n:]
	return out
}

// vector reads a part whose length stands before it in the given number of bytes.
func (f *fields) vector(size int) *fields {
	n := 0
	for _, c := range f.take(size) {
		n = n<<8 | int(c)
	}
	b := f.take(n)
	return &fields{b: b, bad: f.bad}
}

func parseHello(b []byte) (string, error) {
	f := &fields{b: b}
	f.take(2 + 32) // version, random
	f.vector(1)    // session
	f.vector(2)    // cipher suites
	f.vector(1)    // compression
	if f.bad {
		return "", errHello
	}
	if len(f.b) == 0 {
		return "", nil
	}
	exts := f.vector(2)
	if f.bad || exts.bad || len(f.b) != 0 {
		return "", errHello
	}
	name, seen := "", false
	for len(exts.b) > 0 {
		kind := exts.take(2)
		ext := exts.vector(2)
		if exts.bad || ext.bad {
			return "", errHello
		}
		if kind[0] != 0 || kind[1] != extServerName {
			continue
		}
		if seen {
			return "", errHello
		}
		seen = true
		var err error
		if name, err = serverName(ext); err != nil {
			return "", err
		}
	}
	return name, nil
}

// serverName reads the extension: one list with exactly one host name.
func serverName(ext *fields) (string, error) {
	list := ext.vector(2)
	kind := list.take(1)
	host := list.vector(2)
	if list.bad || ext.bad || len(ext.b) != 0 || len(list.b) != 0 || kind[0] != 0 || len(host.b) == 0 {
		return "", errHello
	}
	return string(host.b), nil
}
