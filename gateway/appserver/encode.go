package appserver

import (
	"strconv"
	"unicode/utf8"

	"github.com/heddle-dev/heddle/gateway/jsonrpc"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// note is one message to clients that an event causes.
type note struct {
	method string
	// all sends it to every initialized connection, not only to subscribers.
	all bool
	// experimental notes go to connections with that capability only.
	experimental bool
	// extended notes go to connections with capabilities.heddle only.
	extended bool
	// key lets a newer note replace one that still waits to be written.
	key    string
	params any
	// body is the encoded params, in place of params.
	body []byte
	// whole is set when the client asked for a message of any size.
	whole bool
	// seq is set on the one note that stands for an event.
	seq uint64
	// ask is a question to the client instead of a notification.
	ask *heddlev1.Approval
	// resolved is the request id of a question that is closed.
	resolved *int64
}

// encode makes the message. prev is the seq of the last note of the
// subscription and, with seq, only for connections that asked for it.
func (n *note) encode(now int64, extended bool, prev uint64) ([]byte, error) {
	body := n.body
	if body == nil {
		var err error
		if body, err = jsonrpc.Marshal(n.params); err != nil {
			return nil, err
		}
	}
	out := make([]byte, 0, len(body)+len(n.method)+64)
	out = append(out, `{"method":"`...)
	out = append(out, n.method...)
	out = append(out, `","params":`...)
	out = append(out, body...)
	out = append(out, `,"emittedAtMs":`...)
	out = strconv.AppendInt(out, now, 10)
	if extended && n.seq > 0 {
		out = append(out, `,"seq":`...)
		out = strconv.AppendUint(out, n.seq, 10)
		out = append(out, `,"prev":`...)
		out = strconv.AppendUint(out, prev, 10)
	}
	out = append(out, '}')
	if n.whole {
		return out, nil
	}
	return fit(out), nil
}

// deltaPrefix is what all deltas of an item begin with.
func deltaPrefix(thread, turn, item string) []byte {
	out := appendString([]byte(`{"threadId":`), thread)
	out = append(out, `,"turnId":`...)
	out = appendString(out, turn)
	out = append(out, `,"itemId":`...)
	return appendString(out, item)
}

// delta makes the params of a delta: the prefix, the text, and an index under
// the given name unless that is empty.
func delta[T string | []byte](prefix []byte, text T, indexName string, index int32) []byte {
	out := make([]byte, 0, len(prefix)+len(text)+48)
	out = append(out, prefix...)
	out = append(out, `,"delta":`...)
	out = appendString(out, text)
	if indexName != "" {
		out = append(out, `,"`...)
		out = append(out, indexName...)
		out = append(out, `":`...)
		out = strconv.AppendInt(out, int64(index), 10)
	}
	return append(out, '}')
}

const hexDigits = "0123456789abcdef"

// appendString appends a JSON string. Invalid UTF-8 becomes the replacement
// character. Line and paragraph separators are escaped: some readers of lines
// end a line there.
func appendString[T string | []byte](out []byte, s T) []byte {
	out = append(out, '"')
	start := 0
	for i := 0; i < len(s); {
		b := s[i]
		if b >= 0x20 && b != '"' && b != '\\' && b < utf8.RuneSelf {
			i++
			continue
		}
		if b >= utf8.RuneSelf {
			r, size := decodeRune(s[i:])
			switch {
			case r == utf8.RuneError && size == 1:
				out = append(out, s[start:i]...)
				out = append(out, "\uFFFD"...)
				start = i + size
			case r == '\u2028' || r == '\u2029':
				out = append(out, s[start:i]...)
				out = append(out, `\u202`...)
				out = append(out, hexDigits[r&15])
				start = i + size
			}
			i += size
			continue
		}
		out = append(out, s[start:i]...)
		switch b {
		case '"', '\\':
			out = append(out, '\\', b)
		case '\n':
			out = append(out, '\\', 'n')
		case '\r':
			out = append(out, '\\', 'r')
		case '\t':
			out = append(out, '\\', 't')
		default:
			out = append(out, '\\', 'u', '0', '0', hexDigits[b>>4], hexDigits[b&15])
		}
		i++
		start = i
	}
	out = append(out, s[start:]...)
	return append(out, '"')
}

func decodeRune[T string | []byte](s T) (rune, int) {
	return utf8.DecodeRuneInString(string(s[:min(len(s), utf8.UTFMax)]))
}
