package e2e

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/heddle-dev/heddle/controlplane/store/boltstore"
	"github.com/heddle-dev/heddle/controlplane/store/storetest"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// record fills the store of a home that nothing uses, as a control plane would
// have done it.
func (w *world) record(fill func(h *storetest.Harness)) {
	w.t.Helper()
	s, err := boltstore.Open(w.t.Context(), boltstore.Config{Path: w.store()})
	if err != nil {
		w.t.Fatal(err)
	}
	h := storetest.NewHarness(w.t, s)
	h.Now = time.Now().Add(-time.Hour).UnixMilli()
	fill(h)
	if err := s.Close(); err != nil {
		w.t.Fatal(err)
	}
}

// recordThread makes a thread in the workspace.
func (w *world) recordThread(h *storetest.Harness) string {
	id := uuid.Must(uuid.NewV7()).String()
	h.Create(id, func(t *heddlev1.Thread) {
		t.Settings = &heddlev1.ThreadSettings{Cwd: w.workspace, ModelProvider: "mock", Model: "mock-model"}
	})
	return id
}

// recordTurn adds a turn with an answer.
func recordTurn(h *storetest.Harness, thread, text string) (turn string) {
	events := turnEvents(text)
	h.Add(thread, events...)
	return events[0].GetTurnId()
}

func turnEvents(text string) []*heddlev1.Event {
	turn := uuid.Must(uuid.NewV7()).String()
	item := storetest.AgentItem("m-"+turn, text)
	item.Status = heddlev1.ItemStatus_ITEM_STATUS_COMPLETED
	return []*heddlev1.Event{
		storetest.Accepted(turn, "ask"), storetest.Started(turn),
		storetest.ItemStarted(turn, storetest.UserItem("u-"+turn, "ask")), storetest.ItemCompleted(turn, storetest.UserItem("u-"+turn, "ask")),
		storetest.ItemStarted(turn, storetest.AgentItem("m-"+turn, "")), storetest.ItemCompleted(turn, item),
		storetest.Completed(turn, heddlev1.TurnStatus_TURN_STATUS_COMPLETED),
	}
}

// P12 through the whole program: garbage in the middle of a thread and at its
// end, an event of an unknown newer kind, and an item of 50 MB. Lists, reads,
// resumes, forks, replays and new turns of all the rest work, in that thread and
// in others.
func TestP12DamagedHistoryIsOfUse(t *testing.T) {
	t.Parallel()
	const middle, end = "middlequartz", "lastquartz"
	w := newWorld(t, newModel(t, map[string][]step{"MORE": {{say: "more"}}}))
	var bad, sound string
	var turns []string
	w.record(func(h *storetest.Harness) {
		bad, sound = w.recordThread(h), w.recordThread(h)
		turns = append(turns, recordTurn(h, bad, "first"), recordTurn(h, bad, middle))
		newer := &heddlev1.Event{}
		newer.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 9999, protowire.BytesType), []byte("of a newer version")))
		h.Add(bad, newer)
		turns = append(turns, recordTurn(h, bad, strings.Repeat("0123456789", 5_000_000)), recordTurn(h, bad, "fourth"), recordTurn(h, bad, end))
		recordTurn(h, sound, "sound")
	})
	data := readFile(t, w.store())
	for _, mark := range []string{middle, end} {
		if !bytes.Contains(data, []byte(mark)) {
			t.Fatalf("%s is not in the store", mark)
		}
		data = bytes.ReplaceAll(data, []byte(mark), []byte(strings.ToUpper(mark)))
	}
	if err := os.WriteFile(w.store(), data, 0o600); err != nil {
		t.Fatal(err)
	}

	app := w.connect(map[string]any{"experimentalApi": true, "heddle": map[string]any{"eventSeq": true}}, "app-server")
	list, _ := app.call("thread/list", map[string]any{})["data"].([]any)
	if len(list) != 2 {
		t.Errorf("threads: %v", list)
	}
	shown := func(what string, result map[string]any) {
		t.Helper()
		row, _ := result["thread"].(map[string]any)
		list, _ := row["turns"].([]any)
		have := map[string]bool{}
		for _, v := range list {
			turn, _ := v.(map[string]any)
			have[fmt.Sprint(turn["id"])] = true
		}
		// The rows of the second and the last turn hold their answers.
		for i, id := range turns {
			if damaged := i == 1 || i == 4; !have[id] && !damaged {
				t.Errorf("%s lacks turn %d: %v", what, i+1, have)
			}
		}
	}
	shown("read", app.call("thread/read", map[string]any{"threadId": bad, "includeTurns": true}))
	shown("resume", app.call("thread/resume", map[string]any{"threadId": bad}))
	page, _ := app.call("thread/turns/list", map[string]any{"threadId": bad, "limit": 3})["data"].([]any)
	if len(page) == 0 {
		t.Error("no page of turns")
	}
	fork := app.call("thread/fork", map[string]any{"threadId": bad})
	shown("fork", fork)
	forked, _ := fork["thread"].(map[string]any)
	app.call("thread/resume", map[string]any{"threadId": sound})
	for _, id := range []string{sound, fmt.Sprint(forked["id"])} {
		if status := app.awaitTurn(app.startTurn(id, "MORE"), 60*time.Second); status != "completed" {
			t.Errorf("a turn of %s is %s", id, status)
		}
	}
	// A model that is sent 50 MB may refuse it; the turn ends either way.
	app.awaitTurn(app.startTurn(bad, "MORE"), 60*time.Second)

	next := w.connect(map[string]any{"experimentalApi": true, "heddle": map[string]any{"eventSeq": true}}, "app-server")
	head := uint64(next.call("thread/events/subscribe", map[string]any{"threadId": bad, "after": 0})["head"].(float64))
	var last uint64
	next.await("the replay up to its head", 60*time.Second, func(m message) bool {
		if m.Seq > last {
			if m.Prev != last {
				t.Errorf("%s %d has prev %d after %d", m.Method, m.Seq, m.Prev, last)
			}
			last = m.Seq
		}
		return last >= head
	})
	if next.longest > 1<<20 {
		t.Errorf("a line of %d bytes", next.longest)
	}
	app.close()
	next.close()
	w.stopped()
	if got := w.run("doctor", "--store"); got.code != 1 || !strings.Contains(got.stdout, "thread "+bad) || strings.Contains(got.stdout, sound) {
		t.Errorf("doctor: %+v", got)
	}
}

// anonKB is a process's memory that is no file's, in KiB: pages of the store that
// are mapped can be dropped at any time.
func anonKB(t *testing.T, pid int) int {
	t.Helper()
	_, rest, _ := strings.Cut(string(readFile(t, fmt.Sprintf("/proc/%d/status", pid))), "RssAnon:")
	kb := 0
	if _, err := fmt.Sscan(rest, &kb); err != nil {
		t.Fatal(err)
	}
	return kb
}

// P18: a thread with gigabytes of history is listed, resumed, paged through,
// followed, forked and gone on with in a few MiB of memory and at once.
func TestP18GigabytesOfHistory(t *testing.T) {
	t.Parallel()
	const turns, text = 8192, 64 << 10 // each text is in an event, an item and a turn
	w := newWorld(t, newModel(t, map[string][]step{"MORE": {{say: "more"}}}))
	var long, short string
	w.record(func(h *storetest.Harness) {
		short = w.recordThread(h)
		recordTurn(h, short, "short")
		long = w.recordThread(h)
		body := strings.Repeat("0123456789abcdef", text/16)
		for range turns / 64 {
			var events []*heddlev1.Event
			for range 64 {
				events = append(events, turnEvents(body)...)
			}
			h.Add(long, events...)
		}
	})
	size, err := os.Stat(w.store())
	if err != nil || size.Size() < 1<<30 {
		t.Fatalf("the store holds %v, %v", size, err)
	}
	t.Logf("%d MiB of history", size.Size()>>20)
	app := w.connect(map[string]any{"experimentalApi": true}, "app-server")
	app.call("thread/resume", map[string]any{"threadId": short, "excludeTurns": true})
	app.awaitTurn(app.startTurn(short, "MORE"), 60*time.Second)
	servers := map[string]int{"app-server": app.cmd.Process.Pid, "control plane": w.controlPlane()}
	before, most := map[string]int{}, map[string]int{}
	for name, pid := range servers {
		before[name] = anonKB(t, pid)
	}
	var thread string
	for _, step := range []struct {
		what string
		do   func()
	}{
		{"list", func() { app.call("thread/list", map[string]any{}) }},
		{"resume", func() { app.call("thread/resume", map[string]any{"threadId": long, "excludeTurns": true}) }},
		{"resume with turns", func() { app.call("thread/resume", map[string]any{"threadId": long}) }},
		{"read with turns", func() { app.call("thread/read", map[string]any{"threadId": long, "includeTurns": true}) }},
		{"the last turns", func() {
			page := app.call("thread/turns/list", map[string]any{"threadId": long, "limit": 5})
			if data, _ := page["data"].([]any); len(data) == 0 {
				t.Errorf("turns: %v", page)
			}
		}},
		{"fork", func() {
			row, _ := app.call("thread/fork", map[string]any{"threadId": long, "excludeTurns": true})["thread"].(map[string]any)
			thread = fmt.Sprint(row["id"])
		}},
		{"a turn", func() {
			if status := app.awaitTurn(app.startTurn(long, "MORE"), 60*time.Second); status != "completed" {
				t.Errorf("a turn is %s", status)
			}
		}},
		{"a turn of the fork", func() {
			if status := app.awaitTurn(app.startTurn(thread, "MORE"), 60*time.Second); status != "completed" {
				t.Errorf("a turn of the fork is %s", status)
			}
		}},
	} {
		began := time.Now()
		step.do()
		for name, pid := range servers {
			most[name] = max(most[name], anonKB(t, pid)-before[name])
		}
		t.Logf("%s: %v, KiB more at most %v", step.what, time.Since(began), most)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s took %v", step.what, took)
		}
	}
	for name, more := range most {
		if more > 128<<10 { // two answers as large as one may be, until they are collected
			t.Errorf("the %s grew by %d KiB over %d MiB of history", name, more, size.Size()>>20)
		}
	}
	app.close()
}
