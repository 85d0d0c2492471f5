package server

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// Whatever is moved where, the order is the one that was asked for.
func TestPositions(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var order [][]byte
		for range 400 {
			at := rng.IntN(len(order) + 1)
			if rng.IntN(3) == 0 {
				at = min(at, 1) // many at one place
			}
			var lo, p []byte
			if at > 0 {
				lo = order[at-1]
			}
			if at == len(order) {
				p = after(lo)
			} else {
				var err error
				if p, err = between(lo, order[at]); err != nil {
					t.Fatal(err)
				}
			}
			if bytes.ContainsRune(p, 0) || p[len(p)-1] == 1 {
				t.Fatalf("position %v", p)
			}
			order = slices.Insert(order, at, p)
			if !slices.IsSortedFunc(order, bytes.Compare) || at > 0 && bytes.Equal(order[at-1], p) || at+1 < len(order) && bytes.Equal(order[at+1], p) {
				t.Fatalf("%v between %v", p, order)
			}
		}
	}
}

func TestPositionsRunOut(t *testing.T) {
	hi := after(nil)
	for range 8 * maxPosition {
		p, err := between(nil, hi)
		if err != nil {
			return
		}
		if bytes.Compare(p, hi) >= 0 || len(p) > maxPosition {
			t.Fatalf("%v is not before %v", p, hi)
		}
		hi = p
	}
	t.Error("positions grow without bound")
}
