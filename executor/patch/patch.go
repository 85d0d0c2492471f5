// Package patch is the only parser of the apply_patch format. It turns a patch
// into a Plan against the present content of files (Make) and writes a plan
// (Commit).
//
// Guarantees: Make reads and never writes, and fails as a whole when one hunk
// does not fit; Commit restores what it already wrote when a later file fails.
// Context and removed lines must be in the file. Line ends, bytes in other
// encodings, a missing final newline and permission bits of files stay as they
// are. The functions keep no state and may be called concurrently.
package patch

import "fmt"

// Bounds of one patch.
const (
	// MaxText is the length of a patch in bytes.
	MaxText = 4 << 20
	// MaxOps is the number of file sections.
	MaxOps = 1000
	// MaxFile is the size of a file that can be patched.
	MaxFile = 16 << 20
)

// Kind is what a section of a patch does to its file.
type Kind uint8

const (
	Add Kind = iota + 1
	Delete
	Update
)

// Op is one file section of a patch.
type Op struct {
	Kind Kind
	// Path and MoveTo as they are spelled in the patch; MoveTo may be empty.
	Path, MoveTo string
	// Content of an added file.
	Content string
	// Hunks of an update, in order.
	Hunks []Hunk
	// Line of the section's header in the patch, from 1.
	Line int
}

// Hunk is one group of changes in an update.
type Hunk struct {
	// Headers are the texts after "@@"; each narrows where the next is looked for.
	Headers []string
	Lines   []Line
	// AtEnd is set by "*** End of File".
	AtEnd bool
	// LooseTail is the number of blank lines at the end that may only separate
	// this hunk from what follows in the patch.
	LooseTail int
	Line      int
}

// Line of a hunk: Mark is ' ', '-' or '+'.
type Line struct {
	Mark byte
	Text string
}

// RejectedError says why a patch does not parse or does not apply. Its text is meant
// for the author of the patch.
type RejectedError struct{ Reason string }

func (r *RejectedError) Error() string { return r.Reason }

func rejectf(format string, args ...any) error {
	return &RejectedError{Reason: fmt.Sprintf(format, args...)}
}
