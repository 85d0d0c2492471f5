package boltstore_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/heddle-dev/heddle/controlplane/store/boltstore"
	"github.com/heddle-dev/heddle/controlplane/store/storetest"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// edit changes the closed file with bbolt itself.
func edit(t *testing.T, path string, f func(tx *bolt.Tx) error) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Update(f); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func seqKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func sub(tx *bolt.Tx, thread, name string) *bolt.Bucket {
	return tx.Bucket([]byte("threads")).Bucket([]byte(thread)).Bucket([]byte(name))
}

// filled makes a store with two threads of three turns each and closes it.
func filled(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	h := storetest.NewHarness(t, s)
	for _, id := range []string{"a", "b"} {
		h.Create(id, nil)
		for i := range 3 {
			h.AddTurn(id, fmt.Sprint("t", i+1))
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// P12: records that are cut short, garbage or repeated leave everything else
// readable. The event of a newer kind and the very large item are in e2e.
func TestP12DamagedRecords(t *testing.T) {
	path := filled(t)
	garbage := []byte("\x00garbage\xff\xfe")
	edit(t, path, func(tx *bolt.Tx) error {
		events := sub(tx, "a", "events")
		var keys [][]byte
		if err := events.ForEach(func(k, _ []byte) error { keys = append(keys, bytes.Clone(k)); return nil }); err != nil {
			return err
		}
		last := keys[len(keys)-1]
		cut := bytes.Clone(events.Get(last))
		for _, err := range []error{
			events.Put(keys[2], garbage),
			events.Put(last, cut[:len(cut)/2]),
			events.Put([]byte("odd"), garbage),
			// A record of many events once more, under a number in its middle.
			events.Put(append(bytes.Clone(keys[5][:7]), keys[5][7]+1), bytes.Clone(events.Get(keys[5]))),
			sub(tx, "a", "turns").Put(seqKey(2), garbage),
			sub(tx, "a", "items").Put(append(seqKey(1), seqKey(4)...), garbage),
			sub(tx, "a", "history").Put([]byte("short"), garbage),
			tx.Bucket([]byte("created")).Put([]byte("\x00\x05local\x00short"), garbage),
		} {
			if err != nil {
				return err
			}
		}
		return nil
	})
	s := open(t, path)
	defer s.Close()
	ctx := t.Context()
	events, head, err := s.Events(ctx, "a", 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	next, gaps := uint64(1), 0
	for _, ev := range events {
		if ev.GetSeq() != next {
			t.Fatalf("seq %d, want %d", ev.GetSeq(), next)
		}
		next++
		if r := ev.GetRangeCompacted(); r != nil {
			if !r.GetDamaged() {
				t.Errorf("gap %v is not marked as damage", ev)
			}
			gaps++
			next = r.GetLastSeq() + 1
		}
	}
	if next != head+1 || gaps != 2 {
		t.Errorf("read up to %d of %d with %d gaps, want 2", next-1, head, gaps)
	}
	turns, err := s.ListTurns(ctx, &heddlev1.ListTurnsRequest{ThreadId: "a"})
	if err != nil || len(turns.GetTurns()) != 2 {
		t.Errorf("turns: %v, %v", turns, err)
	}
	if _, err := s.History(ctx, "a"); err != nil {
		t.Error(err)
	}
	h := storetest.NewHarness(t, s)
	h.Fork("f", "a", "t3")
	h.AddTurn("f", "own")
	list, err := s.ListThreads(ctx, "local", &heddlev1.ListThreadsRequest{})
	if err != nil || len(list.GetThreads()) != 3 {
		t.Errorf("threads: %v, %v", list, err)
	}
	if _, err := s.Load(ctx, "a"); err != nil {
		t.Error(err)
	}
	if s.Stats()["damaged"] == 0 {
		t.Error("the damage was not counted")
	}
}

func TestDamagedThread(t *testing.T) {
	path := filled(t)
	edit(t, path, func(tx *bolt.Tx) error { return tx.Bucket([]byte("rows")).Put([]byte("a"), []byte("junk")) })
	s := open(t, path)
	defer s.Close()
	ctx := t.Context()
	if _, err := s.Thread(ctx, "a"); !errdefs.Is(err, errdefs.Internal) {
		t.Errorf("damaged row: %v", err)
	}
	list, err := s.ListThreads(ctx, "local", &heddlev1.ListThreadsRequest{})
	if err != nil || len(list.GetThreads()) != 1 {
		t.Errorf("list: %v, %v", list, err)
	}
	if turns, err := s.ListTurns(ctx, &heddlev1.ListTurnsRequest{ThreadId: "a"}); err != nil || len(turns.GetTurns()) != 3 {
		t.Errorf("turns of a thread with a damaged row: %v, %v", turns, err)
	}
	if err := s.DeleteThread(ctx, "a"); err != nil {
		t.Errorf("delete: %v", err)
	}
	h := storetest.NewHarness(t, s)
	h.Create("c", nil)
	h.AddTurn("c", "t")
}

// Damaged records of what is open do not stop recovery: they can be ended.
func TestDamagedOpenWork(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	h := storetest.NewHarness(t, s)
	h.Create("a", nil)
	h.Add("a", storetest.Accepted("t", "q"))
	h.Add("a", storetest.Started("t"), storetest.ItemStarted("t", storetest.CommandItem("c")), storetest.Intended("t", "x"), storetest.Asked("t", "ap", 0))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	edit(t, path, func(tx *bolt.Tx) error {
		for _, name := range []string{"turns", "items", "approvals"} {
			b := sub(tx, "a", name)
			k, _ := b.Cursor().First()
			if err := b.Put(bytes.Clone(k), []byte("junk")); err != nil {
				return err
			}
		}
		return sub(tx, "a", "open").Put([]byte("ax"), []byte("junk"))
	})
	s = open(t, path)
	defer s.Close()
	st, err := s.Load(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if st.Turns["t"].GetOrdinal() != 1 || st.Items["c"].Item.GetId() != "c" || st.Actions["x"] == nil || st.Approvals["ap"] == nil {
		t.Errorf("open work is lost: %+v", st)
	}
	turns, err := s.OpenTurns(t.Context())
	if err != nil || len(turns) != 1 {
		t.Errorf("open turns %v, %v", turns, err)
	}
}

// Pages overwritten with noise give errors, never a crash.
func TestDamagedPages(t *testing.T) {
	path := filled(t)
	clean, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	page := os.Getpagesize()
	for round := range 60 {
		data := bytes.Clone(clean)
		// The two meta pages verify themselves; damage one of the others.
		at := page * (2 + rnd.IntN(len(data)/page-2))
		for i := range min(page, 64+rnd.IntN(page)) {
			data[at+i] = byte(rnd.Uint32())
		}
		if round%10 == 9 {
			data = data[:at]
		}
		bad := filepath.Join(t.TempDir(), "bad.db")
		if err := os.WriteFile(bad, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := boltstore.Open(t.Context(), boltstore.Config{Path: bad})
		if err != nil {
			continue
		}
		ctx := t.Context()
		_, err1 := s.ListThreads(ctx, "local", &heddlev1.ListThreadsRequest{})
		_, _, err2 := s.Events(ctx, "a", 0, 0)
		_, err3 := s.ListTurns(ctx, &heddlev1.ListTurnsRequest{ThreadId: "b"})
		err4 := s.SetMeta(ctx, "k", []byte("v"))
		for _, err := range []error{err1, err2, err3, err4} {
			if err != nil && errdefs.From(err) == nil {
				t.Errorf("round %d: untyped error %v", round, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Logf("round %d: close: %v", round, err)
		}
	}
}
