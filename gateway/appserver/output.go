package appserver

import (
	"context"
	"fmt"
	"unicode/utf8"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	outputMethod = "item/commandExecution/outputDelta"
	// outputChunk bounds the bytes of one delta; each may need six when encoded.
	outputChunk = 128 << 10
	// outputLimit bounds the bytes of one item that are shown as deltas. The
	// rest is in the item's stream file.
	outputLimit = 32 << 20
)

// outputView cuts a command's output into texts that do not split a character.
type outputView struct {
	// next is the offset of the first byte that was not taken yet.
	next   int64
	tail   []byte
	capped bool
}

// take returns the text that data completes.
func (v *outputView) take(data []byte) []byte {
	v.next += int64(len(data))
	if len(v.tail) > 0 {
		data = append(v.tail, data...)
		v.tail = nil
	}
	n := len(data) - incompleteTail(data)
	if n < len(data) {
		v.tail = append([]byte(nil), data[n:]...)
	}
	return data[:n]
}

// flush returns the bytes of a character that was never completed.
func (v *outputView) flush() []byte {
	rest := v.tail
	v.tail = nil
	return rest
}

// incompleteTail is the length of a character at the end of b that more bytes
// may complete.
func incompleteTail(b []byte) int {
	for i := 1; i <= min(utf8.UTFMax-1, len(b)); i++ {
		c := b[len(b)-i]
		if utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-i:]) {
				return i
			}
			return 0
		}
	}
	return 0
}

func (tr *translator) outputAdvanced(ctx context.Context, e *heddlev1.Event, a *heddlev1.OutputAdvanced, emit func(note) error) error {
	if tr.global {
		return nil
	}
	o := tr.open(e, a.GetItemId())
	v := &o.output
	end := a.GetOffset() + a.GetLength()
	v.next = max(v.next, a.GetOffset())
	var last []byte
	push := func(text []byte) error {
		// The last piece carries the event's seq, so it is held back by one.
		if last != nil {
			if err := emit(note{method: outputMethod, body: delta(o.prefix, last, "", 0)}); err != nil {
				return err
			}
		}
		last = text
		return nil
	}
	for v.next < end && !v.capped {
		if v.next >= outputLimit {
			v.capped = true
			mark := fmt.Sprintf("\n[... output beyond byte %d is not shown here ...]\n", v.next)
			if err := push([]byte(mark)); err != nil {
				return err
			}
			break
		}
		data, err := tr.read(ctx, a.GetItemId(), v.next, min(end-v.next, outputChunk))
		if err != nil {
			return err
		}
		if len(data) == 0 {
			// The bytes are gone, with their item.
			v.next = end
			break
		}
		if text := v.take(data); len(text) > 0 {
			if err := push(text); err != nil {
				return err
			}
		}
	}
	if a.GetDropped() > 0 && !v.capped {
		mark := fmt.Sprintf("\n[... %d bytes after byte %d were dropped ...]\n", a.GetDropped(), end)
		if err := push([]byte(mark)); err != nil {
			return err
		}
	}
	if last == nil {
		return nil
	}
	return emit(note{method: outputMethod, seq: e.GetSeq(), body: delta(o.prefix, last, "", 0)})
}
