package robust

import (
	"fmt"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Cursor is where one reader of one thread stands.
type Cursor struct {
	Reader, Thread string
	After          uint64
}

// Take accounts for a batch, which must go on exactly after the cursor.
func (c *Cursor) Take(s *Seen, events []*heddlev1.Event, head uint64) {
	for _, ev := range events {
		// A cursor inside a compacted range is shown the whole range.
		if ev.GetSeq() > c.After+1 || ev.GetSeq() < c.After+1 && (ev.GetRangeCompacted() == nil || lastOf(ev) <= c.After) {
			s.Report(Violation{c.Thread, ev.GetSeq(), fmt.Sprintf("%s stood at %d and was shown %d next", c.Reader, c.After, ev.GetSeq())})
		}
		c.After = lastOf(ev)
	}
	if c.After > head {
		s.Report(Violation{c.Thread, c.After, fmt.Sprintf("%s was shown more than the head %d", c.Reader, head)})
	}
	s.Observe(c.Reader, events...)
}
