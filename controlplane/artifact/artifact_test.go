package artifact_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/artifact"
)

func open(tb testing.TB, dir string, limit int64) *artifact.Streams {
	tb.Helper()
	s, err := artifact.New(artifact.Config{Dir: dir, Cap: limit})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func writer(tb testing.TB, s *artifact.Streams, thread, item string) *artifact.Writer {
	tb.Helper()
	w, err := s.Open(thread, item)
	if err != nil {
		tb.Fatal(err)
	}
	return w
}

func write(tb testing.TB, w *artifact.Writer, offset int64, data string) (added, dropped int64) {
	tb.Helper()
	added, dropped, err := w.WriteAt(offset, []byte(data))
	if err != nil {
		tb.Fatal(err)
	}
	return added, dropped
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, filepath.Base(path))
		}
		return err
	})
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return out
}

// I8: the bytes come back as they went in, invalid UTF-8 included (F2).
func TestBytesAreKept(t *testing.T) {
	s := open(t, t.TempDir(), 0)
	w := writer(t, s, "th", "it")
	want := "\xff\xfe\x80ok\n"
	write(t, w, 0, want[:3])
	data, total, err := s.ReadAt("th", "it", 0, 100)
	if err != nil || string(data) != want[:3] || total != 3 {
		t.Errorf("while open: %q of %d, %v", data, total, err)
	}
	write(t, w, 3, want[3:])
	seal, err := w.Seal()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(want))
	if seal != (artifact.Seal{Bytes: int64(len(want)), SHA256: hex.EncodeToString(sum[:])}) {
		t.Errorf("seal %+v", seal)
	}
	data, total, err = s.ReadAt("th", "it", 2, 3)
	if err != nil || string(data) != want[2:5] || total != int64(len(want)) {
		t.Errorf("range: %q of %d, %v", data, total, err)
	}
	for _, off := range []int64{-1, total, total + 5} {
		if data, _, err := s.ReadAt("th", "it", off, 10); err != nil || len(data) != 0 {
			t.Errorf("read at %d: %q, %v", off, data, err)
		}
	}
}

// Chunks that are sent again, whole or in part, change nothing; a gap is
// refused and says from where to send.
func TestWritesAreIdempotent(t *testing.T) {
	dir := t.TempDir()
	rnd := rand.New(rand.NewPCG(3, 4))
	want := make([]byte, 20_000)
	for i := range want {
		want[i] = byte(rnd.Uint32())
	}
	s := open(t, dir, 0)
	w := writer(t, s, "th", "it")
	for have := int64(0); have < int64(len(want)); {
		from := max(0, have-int64(rnd.IntN(300)))
		to := min(int64(len(want)), from+int64(rnd.IntN(600)))
		added, _, err := w.WriteAt(from, want[from:to])
		if err != nil {
			t.Fatal(err)
		}
		have += added
		if rnd.IntN(20) == 0 {
			// The writing process is replaced.
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, dir, 0)
			w = writer(t, s, "th", "it")
			if size, _ := w.Size(); size != have {
				t.Fatalf("size %d after reopening, want %d", size, have)
			}
		}
		_, _, err = w.WriteAt(have+1, []byte("x"))
		var gap *artifact.GapError
		if !errors.As(err, &gap) || gap.Have != have {
			t.Fatalf("gap: %v", err)
		}
	}
	seal, err := w.Seal()
	sum := sha256.Sum256(want)
	if err != nil || seal.SHA256 != hex.EncodeToString(sum[:]) {
		t.Errorf("seal %+v, %v", seal, err)
	}
	again := writer(t, s, "th", "it")
	if added, _ := write(t, again, 100, string(want[100:200])); added != 0 {
		t.Errorf("%d bytes were added to a sealed stream", added)
	}
	if _, _, err := again.WriteAt(int64(len(want)), []byte("more")); !errors.Is(err, artifact.ErrSealed) {
		t.Errorf("write to a sealed stream: %v", err)
	}
	if second, err := again.Seal(); err != nil || second != seal {
		t.Errorf("second seal %+v, %v", second, err)
	}
}

func TestNoOutputNoFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "streams")
	s := open(t, dir, 0)
	w := writer(t, s, "th", "it")
	if seal, err := w.Seal(); err != nil || seal.Bytes != 0 {
		t.Errorf("seal %+v, %v", seal, err)
	}
	if data, total, err := s.ReadAt("th", "it", 0, 10); err != nil || total != 0 || len(data) != 0 {
		t.Errorf("read: %q of %d, %v", data, total, err)
	}
	if v, err := s.Aggregated("th", "it", 10); err != nil || len(v.Data) != 0 {
		t.Errorf("view %+v, %v", v, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder exists: %v", err)
	}
}

// F1: what is over the cap is counted, and every cut is marked.
func TestCapAndViews(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 100)
	w := writer(t, s, "th", "it")
	if added, dropped := write(t, w, 0, strings.Repeat("a", 90)); added != 90 || dropped != 0 {
		t.Errorf("added %d, dropped %d", added, dropped)
	}
	if added, dropped := write(t, w, 80, strings.Repeat("b", 40)); added != 10 || dropped != 20 {
		t.Errorf("added %d, dropped %d", added, dropped)
	}
	if added, dropped := write(t, w, 120, "zz"); added != 0 || dropped != 2 {
		t.Errorf("added %d, dropped %d", added, dropped)
	}
	// A new writer finds the file only; the executor goes on past the cap.
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w = writer(t, s, "th", "it")
	if added, dropped := write(t, w, 122, "yyy"); added != 0 || dropped != 3 {
		t.Errorf("added %d, dropped %d", added, dropped)
	}
	seal, err := w.Seal()
	if err != nil || seal.Bytes != 100 || seal.Dropped != 25 {
		t.Errorf("seal %+v, %v", seal, err)
	}
	v, err := s.Aggregated("th", "it", 30)
	if err != nil || v.Total != 100 || v.Dropped != 25 || v.Omitted != 70 || v.OmittedFrom != 15 {
		t.Errorf("view %+v, %v", v, err)
	}
	text := string(v.Data)
	if !strings.HasPrefix(text, strings.Repeat("a", 15)+"\n[... 70 bytes") || !strings.Contains(text, "offsets 15 to 85") || !strings.Contains(text, "aaaaabbbbbbbbbb\n[... 25 bytes of output were dropped") {
		t.Errorf("view %q", text)
	}
	if v, err := s.Aggregated("th", "it", 100); err != nil || v.Omitted != 0 || !bytes.HasPrefix(v.Data, []byte(strings.Repeat("a", 90))) {
		t.Errorf("whole view %+v, %v", v, err)
	}
}

// Ids come from models and clients: none leads out of the folder or collides.
func TestHostileIDs(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "streams"), 0)
	ids := []string{"../../etc/passwd", "..", ".", "a/b", "A", "a", "x-ge", "p-a", "a.seal", "\x00", "ü", strings.Repeat("n", 300), strings.Repeat("N", 5000), "call_AbC"}
	for i, id := range ids {
		w := writer(t, s, id, id)
		write(t, w, 0, fmt.Sprint("content ", i))
		if _, err := w.Seal(); err != nil {
			t.Fatal(err)
		}
	}
	for i, id := range ids {
		if data, _, err := s.ReadAt(id, id, 0, 100); err != nil || string(data) != fmt.Sprint("content ", i) {
			t.Errorf("%q: %q, %v", id, data, err)
		}
	}
	if left := files(t, dir); len(left) != len(ids) {
		t.Errorf("%d files", len(left))
	}
	for _, bad := range [][2]string{{"", "a"}, {"a", ""}} {
		if _, err := s.Open(bad[0], bad[1]); err == nil {
			t.Errorf("ids %q were accepted", bad)
		}
	}
}

func TestDeleteAndSweep(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 0)
	for _, thread := range []string{"keep", "Gone", "deleted"} {
		write(t, writer(t, s, thread, "one"), 0, "x")
	}
	w := writer(t, s, "deleted", "one")
	if err := s.DeleteThread("deleted"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.WriteAt(1, []byte("y")); !errors.Is(err, os.ErrClosed) {
		t.Errorf("write to a deleted thread's stream: %v", err)
	}
	n, err := open(t, dir, 0).Sweep(func(id string) (bool, error) { return id == "keep", nil })
	if err != nil || n != 1 {
		t.Errorf("swept %d, %v", n, err)
	}
	if left := files(t, dir); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

// A seal that a crash cut short is made again from the bytes.
func TestTornSeal(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 0)
	w := writer(t, s, "th", "it")
	write(t, w, 0, strings.Repeat("data", 5000))
	want, err := w.Seal()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "p-th", "p-it.seal"), []byte(`{"byt`), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := writer(t, open(t, dir, 0), "th", "it").Seal()
	if err != nil || got != want {
		t.Errorf("seal %+v, %v, want %+v", got, err, want)
	}
}

func BenchmarkSmallOutput(b *testing.B) {
	s := open(b, b.TempDir(), 0)
	data := bytes.Repeat([]byte("line of output\n"), 100)
	for i := 0; b.Loop(); i++ {
		w := writer(b, s, "th", fmt.Sprint("item", i))
		if _, _, err := w.WriteAt(0, data); err != nil {
			b.Fatal(err)
		}
		if _, err := w.Seal(); err != nil {
			b.Fatal(err)
		}
	}
}
