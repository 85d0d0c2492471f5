package appserver

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func FuzzAppendString(f *testing.F) {
	f.Add([]byte("plain \"quoted\" \\ \n\t\x00\x1f"))
	f.Add([]byte("h\u00e9\u2028\xff\xe2\x82"))
	f.Fuzz(func(t *testing.T, in []byte) {
		out := appendString(nil, in)
		var back string
		if err := json.Unmarshal(out, &back); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		// Bytes that are no characters are shown as one replacement each.
		want := string([]rune(string(in)))
		if back != want {
			t.Errorf("%q became %q, want %q", in, back, want)
		}
		if bytes.ContainsAny(out, "\n\r\u2028\u2029") {
			t.Errorf("%q would end a line", out)
		}
	})
}

func FuzzOutputView(f *testing.F) {
	f.Add([]byte("h\u00e9llo \U0001F389 \xff\xfe\x80ok\n"), uint8(1))
	f.Fuzz(func(t *testing.T, in []byte, step uint8) {
		var v outputView
		var all, shown []byte
		for rest := in; len(rest) > 0; {
			n := min(int(step)%7+1, len(rest))
			text := v.take(append([]byte(nil), rest[:n]...))
			rest = rest[n:]
			all = append(all, text...)
			shown = append(shown, strings.ToValidUTF8(string(text), "\uFFFD")...)
			if len(v.tail) >= utf8.UTFMax {
				t.Fatalf("%d bytes are held back", len(v.tail))
			}
		}
		all = append(all, v.flush()...)
		if !bytes.Equal(all, in) {
			t.Errorf("the pieces of %q join to %q", in, all)
		}
		if utf8.Valid(in) && !bytes.Equal(shown, in) {
			t.Errorf("%q is shown as %q", in, shown)
		}
	})
}

func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		first, second := g.hold(), g.hold()
		passed := make(chan struct{})
		go func() {
			if err := g.wait(t.Context()); err != nil {
				t.Error(err)
			}
			close(passed)
		}()
		first()
		first()
		synctest.Wait()
		select {
		case <-passed:
			t.Error("the gate opened while a hold was left")
		default:
		}
		second()
		<-passed
	})
}

func event(seq uint64, size int) *heddlev1.Event {
	return &heddlev1.Event{Seq: seq, Payload: &heddlev1.Event_WarningRaised{WarningRaised: &heddlev1.WarningRaised{Message: strings.Repeat("x", size)}}}
}

// TestFeedIsBounded: a feed keeps what is recent and says so to a reader that
// fell behind.
func TestFeedIsBounded(t *testing.T) {
	f := &feed{changed: make(chan struct{})}
	for seq := uint64(1); seq <= 100; seq += 2 {
		f.add([]*heddlev1.Event{event(seq, 30<<10), event(seq+1, 10)})
	}
	if f.bytes > feedBytes+64<<10 {
		t.Errorf("%d bytes are kept", f.bytes)
	}
	if _, behind, _, _ := f.recent(3); !behind {
		t.Error("a reader at 3 is not behind")
	}
	events, behind, _, _ := f.recent(95)
	if behind || len(events) != 1 || events[0].GetSeq() != 96 {
		t.Errorf("after 95: %v %v", events, behind)
	}
	if events, behind, wait, _ := f.recent(100); events != nil || behind || wait == nil {
		t.Error("a reader at the head does not wait")
	}
	f.add([]*heddlev1.Event{{Seq: 101, Payload: &heddlev1.Event_RangeCompacted{RangeCompacted: &heddlev1.RangeCompacted{LastSeq: 140}}}})
	if f.head != 140 {
		t.Errorf("head %d after a compacted range", f.head)
	}
}

func TestTranslatorShowsEachStatusOnce(t *testing.T) {
	tr := newTranslator(&heddlev1.Thread{Id: "t", State: heddlev1.ThreadState_THREAD_STATE_IDLE}, nil)
	ask := func(id string) *heddlev1.Event {
		return &heddlev1.Event{Payload: &heddlev1.Event_ApprovalRequested{ApprovalRequested: &heddlev1.ApprovalRequested{Approval: &heddlev1.Approval{Id: id}}}}
	}
	resolve := func(id string) *heddlev1.Event {
		return &heddlev1.Event{Payload: &heddlev1.Event_ApprovalResolved{ApprovalResolved: &heddlev1.ApprovalResolved{Approval: &heddlev1.Approval{Id: id}}}}
	}
	failed := &heddlev1.Turn{Id: "u", Status: heddlev1.TurnStatus_TURN_STATUS_FAILED}
	events := []*heddlev1.Event{
		{Payload: &heddlev1.Event_TurnStarted{TurnStarted: &heddlev1.TurnStarted{Turn: &heddlev1.Turn{Id: "u"}}}},
		ask("1"), ask("2"), resolve("1"), resolve("2"),
		{Payload: &heddlev1.Event_ErrorRaised{ErrorRaised: &heddlev1.ErrorRaised{Error: &heddlev1.TurnError{Message: "m"}}}},
		{Payload: &heddlev1.Event_TurnCompleted{TurnCompleted: &heddlev1.TurnCompleted{Turn: failed}}},
		{Payload: &heddlev1.Event_TurnStarted{TurnStarted: &heddlev1.TurnStarted{Turn: &heddlev1.Turn{Id: "v"}}}},
	}
	var got []string
	for _, e := range events {
		err := tr.event(t.Context(), e, func(n note) error {
			switch {
			case n.ask != nil:
				got = append(got, "ask "+n.ask.GetId())
			case n.method == "thread/status/changed":
				got = append(got, "status "+key(n.params.(statusChanged).Status))
			case n.method != "thread/readState/changed":
				got = append(got, n.method)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	want := "status active, turn/started, status active waitingOnApproval, ask 1, ask 2, serverRequest/resolved, serverRequest/resolved, status active, status systemError, error, turn/completed, status active, turn/started"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
}

func TestOutputIsCutWithAMark(t *testing.T) {
	tr := newTranslator(&heddlev1.Thread{Id: "t"}, nil)
	tr.read = func(_ context.Context, _ string, _, n int64) ([]byte, error) {
		return bytes.Repeat([]byte("x"), int(n)), nil
	}
	total, last := 0, ""
	for off := int64(0); off < outputLimit+4<<20; off += 1 << 20 {
		e := &heddlev1.Event{TurnId: "u", Payload: &heddlev1.Event_OutputAdvanced{OutputAdvanced: &heddlev1.OutputAdvanced{ItemId: "i", Offset: off, Length: 1 << 20}}}
		err := tr.event(t.Context(), e, func(n note) error {
			if len(n.body) > 1<<20 {
				t.Errorf("a delta of %d bytes", len(n.body))
			}
			total += len(n.body)
			last = string(n.body)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if total < outputLimit || total > outputLimit+1<<20 {
		t.Errorf("%d bytes were sent", total)
	}
	if !strings.Contains(last, "output beyond byte 33554432 is not shown here") {
		t.Errorf("no mark at the end: %.100s", last)
	}
}

func BenchmarkDelta(b *testing.B) {
	tr := newTranslator(&heddlev1.Thread{Id: "01a22c36-606d-7c79-b456-7b133acc1c1b"}, nil)
	e := &heddlev1.Event{Seq: 1, TurnId: "01a22c36-60bf-7c8e-9d7e-18852a194184", Payload: &heddlev1.Event_ItemDelta{ItemDelta: &heddlev1.ItemDelta{ItemId: "msg_1", Delta: &heddlev1.ItemDelta_AgentText{AgentText: "some words of a message "}}}}
	b.ReportAllocs()
	for b.Loop() {
		err := tr.event(b.Context(), e, func(n note) error {
			_, err := n.encode(1796038804268, false, 0)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
