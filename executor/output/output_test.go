package output_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heddle-dev/heddle/executor/output"
)

func stream(tb testing.TB, cfg output.Config) *output.Stream {
	tb.Helper()
	cfg.Spool = filepath.Join(tb.TempDir(), "spool")
	if cfg.Notify == nil {
		cfg.Notify = func() {}
	}
	s := output.New(cfg)
	tb.Cleanup(s.Discard)
	return s
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7 / 3)
	}
	return b
}

// drain sends everything that the credits allow, acknowledging with ack.
func drain(t *testing.T, c *output.Credits, now time.Time, ack func(output.Chunk)) (data []byte, dropped int64) {
	t.Helper()
	for {
		chunk, ok, wait, err := c.Next(now)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			if wait == 0 {
				return data, dropped
			}
			now = now.Add(wait)
			continue
		}
		data = append(data, chunk.Data...)
		dropped += chunk.Dropped
		if ack != nil {
			ack(chunk)
		}
	}
}

func TestBytesThroughMemoryAndSpool(t *testing.T) {
	for _, piece := range []int{1, 1000, 70_000} {
		s := stream(t, output.Config{Window: 4096})
		want := pattern(300_000)
		for at := 0; at < len(want); at += piece {
			if _, err := s.Write(want[at:min(at+piece, len(want))]); err != nil {
				t.Fatal(err)
			}
		}
		s.Close()
		c := output.NewCredits([]*output.Stream{s})
		c.Reset(20_000)
		got, _ := drain(t, c, time.Now(), func(ch output.Chunk) { s.Ack(ch.Offset + int64(len(ch.Data))) })
		if !bytes.Equal(got, want) || !c.Done() {
			t.Fatalf("pieces of %d: %d bytes, done %v", piece, len(got), c.Done())
		}
	}
}

func TestWindowHoldsBackAndResetSendsAgain(t *testing.T) {
	s := stream(t, output.Config{})
	if _, err := s.Write(pattern(10_000)); err != nil {
		t.Fatal(err)
	}
	s.Close()
	c := output.NewCredits([]*output.Stream{s})
	c.Reset(6000)
	first, _ := drain(t, c, time.Now(), nil)
	if len(first) != 6000 || c.Done() {
		t.Fatalf("%d bytes under a window of 6000", len(first))
	}
	s.Ack(1000)
	more, _ := drain(t, c, time.Now(), nil)
	if len(more) != 1000 {
		t.Fatalf("%d bytes after an acknowledgement of 1000", len(more))
	}
	c.Reset(1 << 20)
	again, _ := drain(t, c, time.Now(), nil)
	if !bytes.Equal(again, pattern(10_000)[1000:]) || !c.Done() {
		t.Fatalf("%d bytes on a new connection", len(again))
	}
}

func TestWindowCountsBothStreams(t *testing.T) {
	a, b := stream(t, output.Config{}), stream(t, output.Config{})
	for _, s := range []*output.Stream{a, b} {
		if _, err := s.Write(pattern(5000)); err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
	c := output.NewCredits([]*output.Stream{a, b})
	c.Reset(7000)
	if got, _ := drain(t, c, time.Now(), nil); len(got) != 7000 {
		t.Fatalf("%d bytes of both under a window of 7000", len(got))
	}
}

func TestCapCountsDropped(t *testing.T) {
	s := stream(t, output.Config{Cap: 5000, Window: 2000})
	if n, err := s.Write(pattern(12_345)); n != 12_345 || err != nil {
		t.Fatal(n, err)
	}
	s.Close()
	c := output.NewCredits([]*output.Stream{s})
	c.Reset(1 << 20)
	got, dropped := drain(t, c, time.Now(), nil)
	if !bytes.Equal(got, pattern(12_345)[:5000]) || dropped != 7345 || !c.Done() {
		t.Fatalf("%d bytes, %d dropped", len(got), dropped)
	}
}

func TestCoalescing(t *testing.T) {
	s := stream(t, output.Config{})
	c := output.NewCredits([]*output.Stream{s})
	c.Reset(1 << 20)
	now := time.Now()
	put := func(text string) {
		if _, err := s.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	put("a")
	if ch, ok, _, _ := c.Next(now); !ok || string(ch.Data) != "a" {
		t.Fatal("the first bytes wait")
	}
	put("b")
	_, ok, wait, _ := c.Next(now.Add(time.Millisecond))
	if ok || wait != output.Coalesce-time.Millisecond {
		t.Fatalf("ok %v, wait %v", ok, wait)
	}
	put("c")
	if ch, ok, _, _ := c.Next(now.Add(output.Coalesce)); !ok || string(ch.Data) != "bc" {
		t.Fatalf("coalesced %q", ch.Data)
	}
	put("d")
	s.Close()
	if ch, ok, _, _ := c.Next(now.Add(output.Coalesce)); !ok || string(ch.Data) != "d" {
		t.Fatal("the last bytes wait")
	}
}

func TestDirectBlocksTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stream(t, output.Config{Direct: true, Window: 1000})
		wrote := make(chan error, 1)
		go func() {
			_, err := s.Write(pattern(2500))
			wrote <- err
		}()
		synctest.Wait()
		if st := s.State(); st.Size != 1000 {
			t.Fatalf("%d bytes taken with a window of 1000", st.Size)
		}
		s.Ack(1000)
		synctest.Wait()
		s.Ack(2000)
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := s.Write(pattern(1000))
			wrote <- err
		}()
		synctest.Wait()
		s.Discard()
		if err := <-wrote; !errors.Is(err, output.ErrClosed) {
			t.Fatalf("write to a discarded stream: %v", err)
		}
	})
}

func TestSpoolHasNoNameAndIsFreed(t *testing.T) {
	dir := t.TempDir()
	s := output.New(output.Config{Spool: filepath.Join(dir, "x"), Window: 10, Notify: func() {}})
	if _, err := s.Write(pattern(1000)); err != nil {
		t.Fatal(err)
	}
	if names, _ := os.ReadDir(dir); len(names) != 0 {
		t.Fatalf("files: %v", names)
	}
	s.Ack(1000)
	if _, err := s.Write(pattern(8)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	if n, err := s.ReadAt(buf, 1000); n != 8 || err != nil || !bytes.Equal(buf[:8], pattern(8)) {
		t.Fatal("after the spool was freed:", n, err)
	}
	s.Discard()
}

func TestSpoolFailureIsReported(t *testing.T) {
	s := output.New(output.Config{Spool: filepath.Join(t.TempDir(), "no", "dir"), Window: 10, Notify: func() {}})
	if n, err := s.Write(pattern(100)); err == nil || n != 10 {
		t.Fatalf("wrote %d, %v", n, err)
	}
}
