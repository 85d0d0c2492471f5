package store

import (
	"github.com/heddle-dev/heddle/controlplane/thread"
)

// Record is a small value of a principal that belongs to no thread. Kind and ID
// name it; ids order the records of a kind.
type Record struct {
	ID string
	// Value is nil for a record that is to be removed.
	Value []byte
}

// AttachmentOwner is a thread that has an attachment.
type AttachmentOwner struct {
	ThreadID string
	Archived bool
}

// AttachmentOwners asks for the threads with an attachment, by id.
type AttachmentOwners struct {
	Principal string
	thread.AttachmentKey
	// Archived is nil for both.
	Archived *bool
	// After is the id of the last thread of the page before.
	After string
	Limit int
}
