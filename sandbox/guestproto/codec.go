package guestproto

import (
	"encoding/binary"
	"errors"
)

// Enc appends fields to a body. Strings are byte strings: nothing is re-coded.
type Enc struct{ B []byte }

func (e *Enc) Uint(v uint64)   { e.B = binary.AppendUvarint(e.B, v) }
func (e *Enc) Int(v int64)     { e.B = binary.AppendVarint(e.B, v) }
func (e *Enc) Str(s string)    { e.Uint(uint64(len(s))); e.B = append(e.B, s...) }
func (e *Enc) Bytes(b []byte)  { e.Uint(uint64(len(b))); e.B = append(e.B, b...) }
func (e *Enc) Strs(l []string) { e.Uint(uint64(len(l))); each(l, e.Str) }
func (e *Enc) Bool(v bool) {
	if v {
		e.B = append(e.B, 1)
	} else {
		e.B = append(e.B, 0)
	}
}

func each[T any](l []T, f func(T)) {
	for _, v := range l {
		f(v)
	}
}

var errShort = errors.New("truncated message")

// Dec reads fields in the order they were written. After the first failure every read returns zero values;
// check Err at the end.
type Dec struct {
	B   []byte
	Err error
}

func (d *Dec) fail() {
	d.Err, d.B = errShort, nil
}

func (d *Dec) Uint() uint64 {
	v, n := binary.Uvarint(d.B)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.B = d.B[n:]
	return v
}

func (d *Dec) Int() int64 {
	v, n := binary.Varint(d.B)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.B = d.B[n:]
	return v
}

func (d *Dec) Bytes() []byte {
	n := d.Uint()
	if d.Err != nil || n > uint64(len(d.B)) {
		d.fail()
		return nil
	}
	b := d.B[:n]
	d.B = d.B[n:]
	return b
}

func (d *Dec) Str() string { return string(d.Bytes()) }

func (d *Dec) Strs() []string {
	n := d.Uint()
	if d.Err != nil || n > uint64(len(d.B)) { // each string takes at least one byte
		d.fail()
		return nil
	}
	l := make([]string, 0, n)
	for range n {
		l = append(l, d.Str())
	}
	return l
}

func (d *Dec) Bool() bool {
	if len(d.B) == 0 {
		d.fail()
		return false
	}
	v := d.B[0] != 0
	d.B = d.B[1:]
	return v
}
