// Command historybench measures what a long history costs: listing 25 of many
// threads and resuming a thread of many turns, each as the first request of a new
// control plane, through `heddle app-server`, and the memory that the processes
// have then. The same is measured on a home with little history beside it.
//
// Cold means new processes: the file may be in the operating system's cache.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/heddle-dev/heddle/controlplane/store/boltstore"
)

func main() {
	heddle := flag.String("heddle", "bin/heddle", "the binary to measure")
	threads := flag.Int("threads", 50_000, "threads of the large home")
	turns := flag.Int("turns", 10_000, "turns of the long thread")
	rounds := flag.Int("rounds", 5, "starts to measure; the median counts")
	limit := flag.Duration("limit", 0, "fail when a median is above this; 0 only prints")
	flag.Parse()
	if err := run(*heddle, *threads, *turns, *rounds, *limit, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "historybench:", err)
		os.Exit(1)
	}
}

func run(heddle string, threads, turns, rounds int, limit time.Duration, out io.Writer) error {
	heddle, err := filepath.Abs(heddle)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "historybench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, c := range []struct {
		name           string
		threads, turns int
	}{{"small", 50, 10}, {"large", threads, turns}} {
		home := filepath.Join(dir, c.name)
		began := time.Now()
		long, err := fillHome(home, c.threads, c.turns)
		if err != nil {
			return fmt.Errorf("make the %s home: %w", c.name, err)
		}
		info, err := os.Stat(filepath.Join(home, "state.db"))
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s home: %d threads, one of %d turns, %d MB (made in %v)\n", c.name, c.threads, c.turns, info.Size()>>20, time.Since(began).Round(time.Millisecond))
		if err := measure(heddle, home, long, rounds, limit, out); err != nil {
			return err
		}
	}
	return nil
}

// fillHome makes a home with a history and returns the id of its long thread.
func fillHome(home string, threads, turns int) (string, error) {
	if err := os.MkdirAll(home, 0o700); err != nil {
		return "", err
	}
	s, err := boltstore.Open(context.Background(), boltstore.Config{Path: filepath.Join(home, "state.db")})
	if err != nil {
		return "", err
	}
	h := history{store: s, cwd: home}
	if err := h.short(threads); err != nil {
		return "", err
	}
	long, err := h.long(turns)
	if err != nil {
		return "", err
	}
	return long, s.Close()
}

// sample is what one start of everything showed.
type sample struct {
	ready, list, resume, page time.Duration
	rss                       int
}

func measure(heddle, home, long string, rounds int, limit time.Duration, out io.Writer) error {
	var all []sample
	for range rounds {
		s, err := once(heddle, home, long)
		if err != nil {
			return err
		}
		all = append(all, s)
	}
	over := false
	for _, f := range []struct {
		name    string
		of      func(sample) time.Duration
		limited bool
	}{
		{"start until the first answer", func(s sample) time.Duration { return s.ready }, false},
		{"list 25, first request", func(s sample) time.Duration { return s.list }, true},
		{"resume, first request about the thread", func(s sample) time.Duration { return s.resume }, true},
		{"resume with its newest turns", func(s sample) time.Duration { return s.page }, false},
	} {
		m := median(all, f.of)
		fmt.Fprintf(out, "  %-40s %v\n", f.name, m.Round(10*time.Microsecond))
		over = over || f.limited && limit > 0 && m > limit
	}
	fmt.Fprintf(out, "  %-40s %d MB\n", "memory of the control plane after it", median(all, func(s sample) int { return s.rss })>>10)
	if over {
		return fmt.Errorf("a median is above %v", limit)
	}
	return nil
}

func median[T cmp.Ordered](all []sample, of func(sample) T) T {
	var v []T
	for _, s := range all {
		v = append(v, of(s))
	}
	slices.Sort(v)
	return v[len(v)/2]
}

// once starts everything anew and asks.
func once(heddle, home, long string) (s sample, err error) {
	began := time.Now()
	c, err := startAppServer(heddle, home)
	if err != nil {
		return s, err
	}
	defer func() {
		if stop := c.stop(); err == nil {
			err = stop
		}
	}()
	// The first call starts the control plane; it reads nothing of the history.
	if _, err := c.call("model/list", map[string]any{}); err != nil {
		return s, err
	}
	s.ready = time.Since(began)
	if s.list, err = c.timed("thread/list", map[string]any{"limit": 25}); err != nil {
		return s, err
	}
	if s.resume, err = c.timed("thread/resume", map[string]any{"threadId": long, "excludeTurns": true}); err != nil {
		return s, err
	}
	if s.page, err = c.timed("thread/resume", map[string]any{"threadId": long}); err != nil {
		return s, err
	}
	s.rss, err = c.planeKB(home)
	return s, err
}
