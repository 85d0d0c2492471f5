package boltstore_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/store/boltstore"
	"github.com/heddle-dev/heddle/controlplane/store/storetest"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func TestReopen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "store.db")
	s := open(t, path)
	h := storetest.NewHarness(t, s)
	h.Create("a", nil)
	h.AddTurn("a", "t1")
	h.Add("a", storetest.Accepted("t2", "q"))
	h.Add("a", storetest.Started("t2"), storetest.Asked("t2", "ap", 3))
	if n, _ := s.NextRequestID(t.Context(), "a"); n != 4 {
		t.Errorf("request id %d", n)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Thread(t.Context(), "a"); !errdefs.Is(err, errdefs.StoreUnavailable) {
		t.Errorf("read after close: %v", err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if before.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", before.Mode())
	}
	s = open(t, path)
	defer s.Close()
	st, err := s.Load(t.Context(), "a")
	if err != nil || st.LastSeq != h.State("a").LastSeq || len(st.Turns) != 1 || len(st.Approvals) != 1 {
		t.Errorf("state %+v, %v", st, err)
	}
	// Id 4 was handed out and never committed: nobody saw it.
	if n, _ := s.NextRequestID(t.Context(), "a"); n != 4 {
		t.Errorf("request id after reopening %d", n)
	}
}

func TestSecondOpenIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	defer s.Close()
	_, err := boltstore.Open(t.Context(), boltstore.Config{Path: path, LockTimeout: 50 * time.Millisecond})
	if !errdefs.Is(err, errdefs.Busy) || !strings.Contains(err.Error(), "another control plane holds "+path) {
		t.Errorf("second open: %v", err)
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	if err := open(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	edit(t, path, func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("meta")).Put([]byte("schema"), binary.BigEndian.AppendUint32(nil, 99))
	})
	before, _ := os.ReadFile(path)
	_, err := boltstore.Open(t.Context(), boltstore.Config{Path: path})
	if !errdefs.Is(err, errdefs.VersionUnsupported) || !strings.Contains(err.Error(), "schema 99") {
		t.Errorf("open: %v", err)
	}
	if after, _ := os.ReadFile(path); string(after) != string(before) {
		t.Error("the file was changed")
	}
}

func TestForeignFilesAreRefused(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, "other.db")
	edit(t, other, func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte("theirs")); return err })
	text := filepath.Join(dir, "text.db")
	if err := os.WriteFile(text, []byte(strings.Repeat("not a database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{other, text} {
		before, _ := os.ReadFile(path)
		_, err := boltstore.Open(t.Context(), boltstore.Config{Path: path})
		if !errdefs.Is(err, errdefs.StoreUnavailable) || !strings.Contains(err.Error(), path) {
			t.Errorf("open %s: %v", path, err)
		}
		if after, _ := os.ReadFile(path); string(after) != string(before) {
			t.Errorf("%s was changed", path)
		}
	}
}

// A file that is mostly free pages is rewritten at open, with everything in it.
func TestCompactionOfTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	h := storetest.NewHarness(t, s)
	big := strings.Repeat("x", 100_000)
	for i := range 30 {
		id := fmt.Sprint("n", i)
		h.Create(id, nil)
		h.Add(id, storetest.Warning(big))
	}
	h.AddTurn("n0", "t1")
	for i := 1; i < 30; i++ {
		if err := s.DeleteThread(t.Context(), fmt.Sprint("n", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before, _ := os.Stat(path)
	s, err := boltstore.Open(t.Context(), boltstore.Config{Path: path, CompactBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	after, _ := os.Stat(path)
	if after.Size() > before.Size()/3 {
		t.Errorf("%d bytes before, %d after", before.Size(), after.Size())
	}
	if _, err := boltstore.Open(t.Context(), boltstore.Config{Path: path, LockTimeout: 20 * time.Millisecond}); !errdefs.Is(err, errdefs.Busy) {
		t.Errorf("the compacted file is not locked: %v", err)
	}
	if _, err := s.Turn(t.Context(), "n0", "t1"); err != nil {
		t.Error(err)
	}
	h.Store = s
	h.AddTurn("n0", "t2")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(path + ".*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A removal that was cut short is finished at the next open.
func TestDeleteOfLargeThread(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	h := storetest.NewHarness(t, s)
	h.Create("a", nil)
	var events []*heddlev1.Event
	for range 100 {
		events = append(events, storetest.History("", "x"))
	}
	for range 50 {
		batch := make([]*heddlev1.Event, len(events))
		for i := range batch {
			batch[i] = storetest.History("", "x")
		}
		h.Add("a", batch...)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	edit(t, path, func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("threads")).MoveBucket([]byte("a"), tx.Bucket([]byte("trash")))
	})
	s = open(t, path)
	h.Store = s
	h.Create("b", nil)
	if err := s.DeleteThread(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	edit(t, path, func(tx *bolt.Tx) error {
		if k, _ := tx.Bucket([]byte("trash")).Cursor().First(); k != nil {
			return fmt.Errorf("trash still holds %s", k)
		}
		return nil
	})
}

// A medium that takes no more bytes: the append fails with a typed error, what
// was there stays readable, and writing goes on when there is room again.
func TestFullDisk(t *testing.T) {
	// The limit holds for every file of a process, the log of a test binary too: the test has a process of its own.
	const alone = "HEDDLE_TEST_FULL_DISK"
	if os.Getenv(alone) == "" {
		c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
		c.Env = append(os.Environ(), alone+"=1")
		if out, err := c.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestFullDisk") {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	defer s.Close()
	h := storetest.NewHarness(t, s)
	h.Create("a", nil)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	limit := syscall.Rlimit{Cur: uint64(info.Size()), Max: old.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	full := h.Append("a", storetest.Warning(strings.Repeat("x", 1<<20)))
	err = s.Commit(t.Context(), []store.Append{full})
	_, head, readErr := s.Events(t.Context(), "a", 0, 0)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if !errdefs.Is(err, errdefs.StoreUnavailable) {
		t.Errorf("commit to a full disk: %v", err)
	}
	if readErr != nil || head != 1 {
		t.Errorf("head %d, %v after a failed commit", head, readErr)
	}
	if err := s.Commit(t.Context(), []store.Append{full}); err != nil {
		t.Errorf("commit when there is room again: %v", err)
	}
}
