package server

import "github.com/heddle-dev/heddle/proto/errdefs"

// Positions order things that people move: byte strings without zero bytes that
// compare byte by byte, so that there is always one between two others.

const (
	// counterDigits are the digits of a position at the end of an order.
	counterDigits = 4
	// maxPosition bounds the length that many moves to one place lead to.
	maxPosition = 512
)

// after is a position behind the last one; nil stands for none.
func after(last []byte) []byte {
	out := make([]byte, counterDigits)
	for i := range out {
		out[i] = 1
		if i < len(last) {
			out[i] = last[i]
		}
	}
	for i := counterDigits - 1; i >= 0; i-- {
		if out[i] < 255 {
			out[i]++
			break
		}
		out[i] = 1
	}
	// Nothing ends with a one: no other position fits below it.
	out[counterDigits-1] = max(out[counterDigits-1], 2)
	return out
}

// between is a position between two; a nil lo is before all.
func between(lo, hi []byte) ([]byte, error) {
	var out []byte
	for i := 0; i < maxPosition; i++ {
		l, h := 0, 256
		if i < len(lo) {
			l = int(lo[i])
		}
		if i < len(hi) {
			h = int(hi[i])
		}
		switch mid := (l + h) / 2; {
		case l == h:
			out = append(out, byte(l))
		case h-l > 1 && mid > 1:
			return append(out, byte(mid)), nil
		case h-l > 1:
			// Below two: anything behind this digit fits.
			out, lo, hi = append(out, 1), nil, nil
		case l == 0:
			out = append(out, 1)
		default:
			out, hi = append(out, byte(l)), nil
		}
	}
	return nil, errdefs.New(errdefs.InvalidArgument, "too much was moved to one place of the order; move something to its end first")
}
