package protocol

import (
	"reflect"
	"strconv"
)

// OptionalInt is a whole number that may be absent or null, which are not the
// same.
type OptionalInt struct {
	Set, Null bool
	Value     int64
}

// String is the number in decimal.
func (o OptionalInt) String() string { return strconv.FormatInt(o.Value, 10) }

func (o *OptionalInt) decodeWire(raw []byte) error {
	if kindOf(raw) == 'n' {
		o.Null = true
		return nil
	}
	o.Set = true
	return decodeInt(raw, reflect.ValueOf(&o.Value).Elem())
}

// OptionalSize is an OptionalInt that is not negative.
type OptionalSize struct{ OptionalInt }

func (o *OptionalSize) decodeWire(raw []byte) error {
	if kindOf(raw) == 'n' {
		o.Null = true
		return nil
	}
	var n uint64
	if err := decodeInt(raw, reflect.ValueOf(&n).Elem()); err != nil {
		return err
	}
	o.Set, o.Value = true, int64(min(n, 1<<62)) //nolint:gosec // it is bounded
	return nil
}

// SpawnParams start a process.
type SpawnParams struct {
	Command        []string           `wire:"command"`
	Handle         string             `wire:"processHandle"`
	Cwd            AbsPath            `wire:"cwd"`
	TTY            bool               `wire:"tty,default"`
	StreamStdin    bool               `wire:"streamStdin,default"`
	StreamOutput   bool               `wire:"streamStdoutStderr,default"`
	OutputBytesCap OptionalSize       `wire:"outputBytesCap,default"`
	TimeoutMs      OptionalInt        `wire:"timeoutMs,default"`
	Env            map[string]*string `wire:"env,opt"`
	Size           *TerminalSize      `wire:"size,opt"`
}

// ProcessWriteParams write to a process's stdin.
type ProcessWriteParams struct {
	Handle      string  `wire:"processHandle"`
	DeltaBase64 *string `wire:"deltaBase64,opt"`
	CloseStdin  bool    `wire:"closeStdin,default"`
}

// ProcessResizeParams resize a process's terminal.
type ProcessResizeParams struct {
	Handle string       `wire:"processHandle"`
	Size   TerminalSize `wire:"size"`
}

// ProcessKillParams end a process.
type ProcessKillParams struct {
	Handle string `wire:"processHandle"`
}
