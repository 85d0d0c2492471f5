package thread

import (
	"fmt"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// MaxAttachments bounds the attachments of one thread.
const MaxAttachments = 200

// AttachmentKey is what is unique within a thread about an attachment.
type AttachmentKey struct{ Type, Key string }

// KeyOf returns an attachment's key.
func KeyOf(a *heddlev1.Attachment) AttachmentKey { return AttachmentKey{a.GetType(), a.GetKey()} }

// AttachmentRow is an attachment, or with Removed what is left of one.
type AttachmentRow struct {
	*heddlev1.Attachment
	Removed bool
}

// attachmentChanged trusts its writer that an added attachment is new and a
// removed one there: the state does not hold them.
func (s *State) attachmentChanged(p *heddlev1.AttachmentChanged, ch *Changes) error {
	if err := checkID("an attachment", p.GetAttachment().GetId()); err != nil {
		return err
	}
	row := s.row(ch)
	switch {
	case p.GetRemoved() && row.GetAttachmentCount() == 0:
		return fmt.Errorf("fold: there is no attachment to remove")
	case p.GetRemoved():
		row.AttachmentCount--
	case row.GetAttachmentCount() >= MaxAttachments:
		return fmt.Errorf("fold: a thread has at most %d attachments", MaxAttachments)
	default:
		row.AttachmentCount++
	}
	put(&ch.Attachments, KeyOf(p.GetAttachment()), AttachmentRow{p.GetAttachment(), p.GetRemoved()})
	return nil
}
