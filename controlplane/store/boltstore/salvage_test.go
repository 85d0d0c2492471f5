package boltstore_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/heddle-dev/heddle/controlplane/store/boltstore"
	"github.com/heddle-dev/heddle/controlplane/store/storetest"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func check(t *testing.T, path string) *boltstore.Report {
	t.Helper()
	r, err := boltstore.Check(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// named lists what was found, as "thread record key".
func named(r *boltstore.Report) []string {
	var out []string
	for _, d := range r.Damage {
		out = append(out, strings.TrimSpace(d.ThreadID+" "+d.Record+" "+d.Key))
	}
	return out
}

func salvage(t *testing.T, path string) (*boltstore.Salvaged, string) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	into := path + ".new"
	out, err := boltstore.Salvage(t.Context(), path, into)
	if err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the damaged file was written: %v", err)
	}
	return out, into
}

// content is all that a reader sees of a store's threads.
func content(t *testing.T, path string, ids ...string) string {
	t.Helper()
	s := open(t, path)
	defer s.Close()
	ctx := t.Context()
	var b strings.Builder
	list, err := s.ListThreads(ctx, "local", &heddlev1.ListThreadsRequest{SearchTerm: ""})
	fmt.Fprintln(&b, list.GetThreads(), err)
	for _, id := range ids {
		events, head, err := s.Events(ctx, id, 0, 1<<20)
		fmt.Fprintln(&b, events, head, err)
		turns, err := s.ListTurns(ctx, &heddlev1.ListTurnsRequest{ThreadId: id})
		fmt.Fprintln(&b, turns, err)
		items, err := s.ListItems(ctx, &heddlev1.ListItemsRequest{ThreadId: id})
		fmt.Fprintln(&b, items, err)
		history, err := s.History(ctx, id)
		fmt.Fprintln(&b, history, err)
	}
	open, err := s.OpenThreads(ctx)
	fmt.Fprintln(&b, open, err)
	n, err := s.NextRequestID(ctx, "a")
	fmt.Fprintln(&b, n, err)
	return b.String()
}

// A sound store has nothing to report, and its salvage is the same store, with
// forks and what is open in it.
func TestSalvageOfSoundStore(t *testing.T) {
	path := filled(t)
	s := open(t, path)
	h := storetest.NewHarness(t, s)
	h.Fork("f", "a", "t2")
	h.AddTurn("f", "own")
	h.Create("o", nil)
	h.Add("o", storetest.Accepted("open", "q"))
	h.Add("o", storetest.Started("open"), storetest.ItemStarted("open", storetest.CommandItem("c")), storetest.Intended("open", "x"), storetest.Asked("open", "ap", 7))
	if err := s.SetMeta(t.Context(), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if r := check(t, path); !r.Sound() || r.Threads != 4 || r.Records == 0 || r.Schema == 0 {
		t.Errorf("a sound store: %+v", r)
	}
	out, into := salvage(t, path)
	if !out.After.Sound() || out.After.Threads != 4 {
		t.Errorf("after: %+v", out.After)
	}
	if want, got := content(t, path, "a", "b", "f", "o"), content(t, into, "a", "b", "f", "o"); want != got {
		t.Errorf("the copy differs\nwant %s\ngot  %s", want, got)
	}
	again := open(t, into)
	defer again.Close()
	st, err := again.Load(t.Context(), "o")
	if err != nil || st.Turns["open"] == nil || st.Actions["x"] == nil || st.Approvals["ap"] == nil || len(st.Items) != 1 {
		t.Errorf("open work: %+v, %v", st, err)
	}
	if v, err := again.Meta(t.Context(), "k"); string(v) != "v" || err != nil {
		t.Errorf("meta %q, %v", v, err)
	}
	if err := again.DeleteThread(t.Context(), "a"); !errdefs.Is(err, errdefs.ThreadHasForks) {
		t.Errorf("the fork is not known: %v", err)
	}
}

// Damaged projections are made again from the events; nothing is lost.
func TestSalvageFoldsAgain(t *testing.T) {
	path := filled(t)
	want := content(t, path, "a", "b")
	garbage := []byte("\x00garbage")
	edit(t, path, func(tx *bolt.Tx) error {
		first := func(name string) []byte { k, _ := sub(tx, "a", name).Cursor().First(); return bytes.Clone(k) }
		created, _ := tx.Bucket([]byte("created")).Cursor().First()
		for _, err := range []error{
			tx.Bucket([]byte("rows")).Put([]byte("a"), garbage),
			sub(tx, "a", "turns").Put(seqKey(2), garbage),
			sub(tx, "a", "items").Put(first("items"), garbage),
			sub(tx, "a", "history").Put(first("history"), garbage),
			tx.Bucket([]byte("created")).Delete(bytes.Clone(created)),
			tx.Bucket([]byte("text")).Delete([]byte("b")),
		} {
			if err != nil {
				return err
			}
		}
		return nil
	})
	found := named(check(t, path))
	for _, want := range []string{"a row", "a turn 2", "b index text"} {
		if !slices.Contains(found, want) {
			t.Errorf("the check does not name %q: %q", want, found)
		}
	}
	if len(found) < 5 {
		t.Errorf("found only %q", found)
	}
	out, into := salvage(t, path)
	if !out.After.Sound() {
		t.Errorf("after: %v", out.After.Damage)
	}
	if got := content(t, into, "a", "b"); got != want {
		t.Errorf("what was made again differs\nwant %s\ngot  %s", want, got)
	}
}

// Without its head a thread goes on under numbers that nobody can have seen.
func TestSalvageOfHeadAndTail(t *testing.T) {
	path := filled(t)
	s := open(t, path)
	_, old, err := s.Events(t.Context(), "a", 0, 0)
	if err != nil || s.Close() != nil {
		t.Fatal(err)
	}
	edit(t, path, func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte("threads")).Bucket([]byte("a"))
		k, v := b.Bucket([]byte("events")).Cursor().Last()
		if err := b.Bucket([]byte("events")).Put(bytes.Clone(k), bytes.Clone(v[:len(v)/2])); err != nil {
			return err
		}
		return b.Put([]byte("head"), []byte("gone"))
	})
	if found := named(check(t, path)); !slices.Contains(found, "a head") {
		t.Errorf("found %q", found)
	}
	out, into := salvage(t, path)
	for _, d := range out.After.Damage {
		if d.Record != "events" || d.ThreadID != "a" {
			t.Errorf("left: %v", d)
		}
	}
	if out.After.Sound() {
		t.Error("the lost events are not reported")
	}
	s = open(t, into)
	defer s.Close()
	events, head, err := s.Events(t.Context(), "a", 0, 0)
	if err != nil || head < old {
		t.Errorf("head %d after %d, %v", head, old, err)
	}
	if last := events[len(events)-1]; !last.GetRangeCompacted().GetDamaged() || last.GetRangeCompacted().GetLastSeq() != head {
		t.Errorf("the gap does not show: %v", last)
	}
	h := storetest.NewHarness(t, s)
	h.Create("new", nil)
	if _, err := s.Load(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

// Noise on pages: check and salvage end, what they leave is a sound store but
// for gaps, and the old file stays as it was.
func TestSalvageOfDamagedPages(t *testing.T) {
	path := filled(t)
	clean, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	page := os.Getpagesize()
	opened, kept := 0, 0
	for round := range 60 {
		data := bytes.Clone(clean)
		at := page * (2 + rnd.IntN(len(data)/page-2))
		for i := range min(page, 64+rnd.IntN(page)) {
			data[at+i] = byte(rnd.Uint32())
		}
		bad := filepath.Join(t.TempDir(), "bad.db")
		if err := os.WriteFile(bad, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := boltstore.Check(t.Context(), bad); err != nil {
			continue // the root itself
		}
		opened++
		out, into := salvage(t, bad)
		for _, d := range out.After.Damage {
			if d.Record != "events" {
				t.Errorf("round %d: the salvaged store has %v", round, d)
			}
		}
		s := open(t, into)
		list, err := s.ListThreads(t.Context(), "local", &heddlev1.ListThreadsRequest{})
		if err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		kept += len(list.GetThreads())
		storetest.NewHarness(t, s).Create("new", nil)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d of 60 could be salvaged, with %d of %d threads", opened, kept, 2*opened)
	if opened == 0 || kept < opened {
		t.Errorf("only %d threads of %d stores were kept", kept, opened)
	}
}

func TestCheckOfOpenStore(t *testing.T) {
	path := filled(t)
	s := open(t, path)
	defer s.Close()
	if _, err := boltstore.Check(t.Context(), path); !errdefs.Is(err, errdefs.Busy) {
		t.Errorf("check of an open store: %v", err)
	}
	if _, err := boltstore.Check(t.Context(), filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("check of no file: %v", err)
	}
}

// A backup under writes is one commit's state and a sound store of its own.
func TestBackupWhileWriting(t *testing.T) {
	path := filled(t)
	s := open(t, path)
	defer s.Close()
	h := storetest.NewHarness(t, s)
	h.Create("w", nil)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				h.AddTurn("w", fmt.Sprint("n", i))
			}
		}
	})
	for i := range 5 {
		_, before, err := s.Events(t.Context(), "w", 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(t.TempDir(), "copy.db")
		f, err := os.Create(to)
		if err != nil {
			t.Fatal(err)
		}
		n, err := s.Backup(t.Context(), f)
		if err != nil || n == 0 || f.Close() != nil {
			t.Fatalf("backup %d: %d bytes, %v", i, n, err)
		}
		if r := check(t, to); !r.Sound() || r.Threads != 3 {
			t.Errorf("backup %d: %+v", i, r)
		}
		c := open(t, to)
		if _, head, err := c.Events(t.Context(), "w", 0, 1); err != nil || head < before {
			t.Errorf("backup %d ends at %d, had %d before: %v", i, head, before, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	wg.Wait()
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".backup-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestCopy(t *testing.T) {
	path := filled(t)
	var b bytes.Buffer
	if n, err := boltstore.Copy(t.Context(), path, &b); err != nil || n != int64(b.Len()) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	to := filepath.Join(t.TempDir(), "copy.db")
	if err := os.WriteFile(to, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if content(t, path, "a", "b") != content(t, to, "a", "b") {
		t.Error("the copy differs")
	}
}
