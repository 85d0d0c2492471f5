package robust

import (
	"fmt"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Note is one notification that stands for an event, as a client got it. Notes
// with the same Chain came one after the other over one subscription.
type Note struct {
	Chain, Thread, Method string
	Seq, Prev             uint64
	// Subject is the id of the turn or item that the note is about.
	Subject string
}

// CheckNotes checks what one subscription was sent against the log: numbers only
// grow, prev names the note before, each note is about what the log has under
// its number, and no beginning or end of a turn or item between two notes was
// left out.
func CheckNotes(notes []Note, log []*heddlev1.Event) []Violation {
	if len(notes) == 0 || len(log) == 0 {
		return nil
	}
	bySeq := make(map[uint64]*heddlev1.Event, len(log))
	for _, ev := range log {
		bySeq[ev.GetSeq()] = ev
	}
	var out []Violation
	bad := func(n Note, format string, args ...any) {
		out = append(out, Violation{n.Thread, n.Seq, fmt.Sprintf("%s: %s: ", n.Chain, n.Method) + fmt.Sprintf(format, args...)})
	}
	for i, n := range notes {
		if method, subject := milestone(bySeq[n.Seq]); method != "" && n.Method != method {
			bad(n, "the log has %s here", method)
		} else if method != "" && subject != n.Subject {
			bad(n, "is about %s, in the log about %s", n.Subject, subject)
		} else if method == "" && isMilestone(n.Method) && log[len(log)-1].GetSeq() >= n.Seq {
			bad(n, "the log has no such event here")
		}
		if i == 0 {
			continue
		}
		before := notes[i-1]
		if n.Seq <= before.Seq {
			bad(n, "comes after %d", before.Seq)
			continue
		}
		if n.Prev != before.Seq {
			bad(n, "prev is %d, the note before was %d", n.Prev, before.Seq)
		}
		for seq := before.Seq + 1; seq < n.Seq; seq++ {
			if method, subject := milestone(bySeq[seq]); method != "" {
				bad(n, "%s of %s at %d was left out", method, subject, seq)
			}
		}
	}
	return out
}

func isMilestone(method string) bool {
	switch method {
	case "turn/started", "turn/completed", "item/started", "item/completed":
		return true
	}
	return false
}

// milestone is the notification that an event must make and what it is about.
func milestone(ev *heddlev1.Event) (method, subject string) {
	switch p := ev.GetPayload().(type) {
	case *heddlev1.Event_TurnStarted:
		return "turn/started", p.TurnStarted.GetTurn().GetId()
	case *heddlev1.Event_TurnCompleted:
		return "turn/completed", p.TurnCompleted.GetTurn().GetId()
	case *heddlev1.Event_ItemStarted:
		return "item/started", p.ItemStarted.GetItem().GetId()
	case *heddlev1.Event_ItemCompleted:
		return "item/completed", p.ItemCompleted.GetItem().GetId()
	}
	return "", ""
}
