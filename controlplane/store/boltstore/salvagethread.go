package boltstore

import (
	bolt "go.etcd.io/bbolt"

	"github.com/heddle-dev/heddle/controlplane/thread"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func (s *salvager) thread(id string, b *bolt.Bucket, rowRecord []byte) (*heddlev1.Thread, error) {
	h, headErr := decodeHead(valueOf(b, keyHead))
	row, err := decode[heddlev1.Thread](rowRecord)
	rowLost := err != nil || row.GetId() != id
	if rowLost {
		row = nil
	}
	l, err := s.events(id, b)
	if err != nil {
		return nil, err
	}
	var attached map[thread.AttachmentKey]thread.AttachmentRow
	if s.all || s.damaged[id] {
		folded := fold(id, row, l.events)
		if rowLost {
			row = folded.Row
		}
		attached = folded.Attachments
		folded.Row, folded.Actions, folded.Attachments = nil, nil, nil
		if err := s.put(id, folded); err != nil {
			return nil, err
		}
	}
	lowest, err := s.copyRows(id, b)
	if err != nil {
		return nil, err
	}
	if headErr != nil {
		h = head{seq: max(l.last, 1), epoch: 1}
		if l.unsure {
			h.seq += seqMargin
		}
		if row.GetForkedFromId() != "" {
			h.base = row.GetTurnCount()
			if lowest > 0 {
				h.base = lowest - 1
			}
		}
	}
	w, err := s.writer(id)
	if err != nil {
		return nil, err
	}
	if err := w.put(w.bucket, keyHead, h.frame()); err != nil {
		return nil, err
	}
	if err := s.put(id, thread.Changes{Row: row}); err != nil {
		return nil, err
	}
	return row, s.attachments(id, b, row, attached)
}

// attachments writes what was folded of them, then those that verify. They need
// the row, which says whose they are.
func (s *salvager) attachments(id string, b *bolt.Bucket, row *heddlev1.Thread, folded map[thread.AttachmentKey]thread.AttachmentRow) error {
	if row == nil {
		return nil
	}
	if err := s.put(id, thread.Changes{Attachments: folded}); err != nil {
		return err
	}
	return s.walk(b, subAttached, func(_, v []byte) error {
		a, err := decode[heddlev1.Attachment](v)
		if err != nil {
			return nil
		}
		return s.put(id, thread.Changes{Attachments: map[thread.AttachmentKey]thread.AttachmentRow{thread.KeyOf(a): {Attachment: a}}})
	})
}

// salvagedLog is what could be read of a thread's events.
type salvagedLog struct {
	// events are kept only where they are folded again.
	events []*heddlev1.Event
	last   uint64
	// unsure is true when there were events after last that cannot be read.
	unsure bool
}

func (s *salvager) events(id string, thread *bolt.Bucket) (salvagedLog, error) {
	var l salvagedLog
	keep := s.all || s.damaged[id]
	b, err := child(thread, subEvents)
	if err != nil {
		l.unsure = true
		return l, nil
	}
	err = walk(s.ctx, b, func(k, v []byte) error {
		bt, err := decodeBatch(k, v)
		if err == nil {
			err = bt.verify()
		}
		if err != nil {
			l.unsure = l.unsure || bt.first > l.last
			l.last = max(l.last, bt.first)
			return nil
		}
		l.unsure = l.unsure && bt.last < l.last
		l.last = max(l.last, bt.last)
		if keep {
			_ = bt.each(func(raw []byte) bool {
				if ev, err := unmarshal[heddlev1.Event](raw); err == nil {
					l.events = append(l.events, ev)
				}
				return true
			})
		}
		return s.putEvents(id, k, v)
	}, func(error) { l.unsure = true })
	return l, err
}

// fold makes rows of the events that are left. What an event refers to may be
// lost, so an event that does not fit is passed over.
func fold(id string, row *heddlev1.Thread, events []*heddlev1.Event) thread.Changes {
	st, ch := thread.New(), thread.Changes{}
	if len(events) == 0 || events[0].GetThreadCreated() == nil {
		// Its beginning is lost: what the row knows stands for it.
		st.Row = row
		if row == nil {
			st.Row = &heddlev1.Thread{Id: id, Principal: "local", State: heddlev1.ThreadState_THREAD_STATE_IDLE, Settings: &heddlev1.ThreadSettings{}}
			if len(events) > 0 {
				st.Row.CreatedAtMs, st.Row.UpdatedAtMs = events[0].GetTimeMs(), events[len(events)-1].GetTimeMs()
			}
			ch.Row = st.Row
		}
	}
	for _, ev := range events {
		if ev.GetSeq() == 0 {
			continue
		}
		st.LastSeq = ev.GetSeq() - 1
		_ = st.Fold(ev, &ch)
	}
	return ch
}
