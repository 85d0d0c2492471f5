package protocol

import (
	"fmt"
	"unicode/utf8"
)

// MaxText is the encoded size to which the longest texts of a message are cut,
// so that no line is longer than 1 MiB.
const MaxText = 640 << 10

// Clip cuts a text to MaxText.
func Clip(s string) string { return ClipTo(s, MaxText) }

// ClipTo keeps head and tail of a text whose JSON form is longer than limit
// bytes, with a mark that names the range that was left out.
func ClipTo(s string, limit int) string {
	if len(s)*6 <= limit || encodedLen(s) <= limit {
		return s
	}
	room := limit - 128
	head := cut(s, room/2, false)
	tail := cut(s, room/2, true)
	return s[:head] + fmt.Sprintf("\n[... bytes %d to %d of %d omitted ...]\n", head, len(s)-tail, len(s)) + s[len(s)-tail:]
}

func encodedLen(s string) int {
	n := 0
	for i := range len(s) {
		n += byteCost(s[i])
	}
	return n
}

func byteCost(b byte) int {
	switch {
	case b == '"' || b == '\\' || b == '\n' || b == '\r' || b == '\t':
		return 2
	case b < 0x20:
		return 6
	case b >= utf8.RuneSelf:
		// An invalid byte becomes a three-byte replacement character.
		return 3
	}
	return 1
}

// cut returns how many bytes at the head or tail fit into room when encoded,
// without splitting a character.
func cut(s string, room int, tail bool) int {
	n := 0
	for n < len(s) {
		b := s[n]
		if tail {
			b = s[len(s)-1-n]
		}
		if room -= byteCost(b); room < 0 {
			break
		}
		n++
	}
	for n > 0 && n < len(s) {
		edge := n
		if tail {
			edge = len(s) - n
		}
		if utf8.RuneStart(s[edge]) {
			break
		}
		n--
	}
	return n
}
