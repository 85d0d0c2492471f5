// Package search finds files by name.
//
// Serve walks the folders of one search once and answers queries over what it
// found, the latest query only. In a repository what its ignore files name is
// left out; hidden files and what is in .git are not. The walk is bounded in
// files, depth and time; an answer says when it did not see everything.
// Everything ends with Serve.
package search

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	defaultLimit = 50
	maxLimit     = 1000
	maxRoots     = 64
	// refresh is how often an answer is made anew while files are being found.
	refresh = 150 * time.Millisecond
)

// Config of a search.
type Config struct {
	// Roots are absolute folders; others are left out.
	Roots []string
	// Limit of matches per answer; 0 means 50.
	Limit int
}

// Serve takes queries from next until it returns an error, io.EOF for the
// orderly end: then the last query is still answered. emit is called by one
// goroutine and may block.
func Serve(ctx context.Context, cfg Config, next func() (*heddlev1.SearchQuery, error), emit func(*heddlev1.SearchResults) error) error {
	if cfg.Limit <= 0 {
		cfg.Limit = defaultLimit
	}
	cfg.Limit = min(cfg.Limit, maxLimit)
	cfg.Roots = cfg.Roots[:min(len(cfg.Roots), maxRoots)]
	roots := make([]string, len(cfg.Roots))
	for i, r := range cfg.Roots {
		if filepath.IsAbs(r) {
			roots[i] = filepath.Clean(r)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	x := &index{ended: make(chan struct{})}
	work.Go(func() { x.walk(ctx, roots) })
	s := &session{cfg: cfg, index: x, emit: emit, came: make(chan struct{}, 1)}
	go s.read(next) // ends with next
	return s.run(ctx)
}

type session struct {
	cfg   Config
	index *index
	emit  func(*heddlev1.SearchResults) error
	came  chan struct{}

	mu   sync.Mutex
	want *heddlev1.SearchQuery
	end  error
}

func (s *session) read(next func() (*heddlev1.SearchQuery, error)) {
	for {
		q, err := next()
		s.mu.Lock()
		if err != nil {
			s.end = err
		} else {
			s.want = q
		}
		s.mu.Unlock()
		select {
		case s.came <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// latest returns the query to answer and why there will be no other.
func (s *session) latest() (*heddlev1.SearchQuery, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.want, s.end
}

func (s *session) run(ctx context.Context) error {
	var answered *heddlev1.SearchQuery // completely
	for {
		q, end := s.latest()
		if end != nil && !errors.Is(end, io.EOF) {
			return end
		}
		if q == nil || q == answered {
			if end != nil {
				return nil
			}
			select {
			case <-s.came:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			continue
		}
		complete, err := s.answer(ctx, q)
		if err != nil {
			return err
		}
		if complete {
			answered = q
			continue
		}
		late := time.NewTimer(refresh)
		select {
		case <-s.came:
		case <-s.index.ended:
		case <-late.C:
		case <-ctx.Done():
		}
		late.Stop()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// answer answers with what was found so far; complete is true for a last answer
// and for a query that was superseded.
func (s *session) answer(ctx context.Context, q *heddlev1.SearchQuery) (complete bool, err error) {
	files, done, partial := s.index.state()
	terms := termsOf(q.GetText())
	if len(terms) == 0 || len(s.cfg.Roots) == 0 {
		return true, s.emit(&heddlev1.SearchResults{Number: q.GetNumber(), Complete: true})
	}
	stale := func() bool {
		now, _ := s.latest()
		return now != q || ctx.Err() != nil
	}
	best, ok := rank(files, terms, s.cfg.Limit, stale)
	if !ok {
		return false, nil
	}
	res := &heddlev1.SearchResults{Number: q.GetNumber(), Complete: done, Partial: partial}
	for _, m := range best {
		f := &files[m.at]
		res.Matches = append(res.Matches, &heddlev1.SearchMatch{
			Root: s.cfg.Roots[f.root], Path: strings.ToValidUTF8(f.path.ToString(), "\uFFFD"), IsDirectory: f.dir,
			Score: uint32(max(m.score, 0)), Indices: positions(f, terms),
		})
	}
	return done, s.emit(res)
}

// positions are the matching characters of a path, in order.
func positions(f *found, terms []term) []uint32 {
	var out []uint32
	for _, t := range terms {
		_, at := t.match(f, true, nil)
		out = append(out, at...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
