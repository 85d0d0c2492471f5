package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"regexp"
	"time"

	"github.com/heddle-dev/heddle/controlplane/agent/model/anthropic"
	"github.com/heddle-dev/heddle/controlplane/agent/model/httpstream"
	"github.com/heddle-dev/heddle/controlplane/config"
)

// Bounds of the list of a provider's models.
const (
	listWait = 2 * time.Second
	maxList  = 1 << 20
	// maxListed bounds the models that are kept of one list.
	maxListed = 500
	// listKept is how long a list is taken from memory, listFailed a failure.
	listKept   = 5 * time.Minute
	listFailed = 30 * time.Second
)

// modelList is what a provider answered, or why it did not.
type modelList struct {
	names []string
	err   error
	until time.Time
}

var versioned = regexp.MustCompile(`^v\d+`)

// Models asks a provider which models it has, by its /models endpoint, and keeps
// the answer for a while. It takes two seconds at most; turns never wait for it.
func (s *Set) Models(ctx context.Context, p config.Provider, getenv func(string) string) ([]string, error) {
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	key, headers, err := credentials(p, getenv)
	if err != nil {
		return nil, err
	}
	id := fingerprint(p, key, headers)
	now := time.Now()
	s.mu.Lock()
	known, ok := s.lists[id]
	s.mu.Unlock()
	if ok && now.Before(known.until) {
		return known.names, known.err
	}
	if p.WireAPI == config.WireAnthropic {
		headers = anthropic.Headers(key, headers)
	} else {
		headers = httpstream.Bearer(key, headers)
	}
	l := modelList{until: now.Add(listKept)}
	if l.names, l.err = s.fetchModels(ctx, p, headers); l.err != nil {
		if ctx.Err() != nil {
			return nil, l.err
		}
		l.until = now.Add(listFailed)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lists == nil || len(s.lists) >= maxClients {
		s.lists = map[string]modelList{}
	}
	s.lists[id] = l
	return l.names, l.err
}

func (s *Set) fetchModels(ctx context.Context, p config.Provider, headers map[string]string) ([]string, error) {
	u, err := httpstream.BaseURL(p.Name, p.BaseURL)
	if err != nil {
		return nil, err
	}
	if p.WireAPI == config.WireAnthropic && !versioned.MatchString(path.Base(u.Path)) {
		u = u.JoinPath("v1")
	}
	ctx, cancel := context.WithTimeout(ctx, listWait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, httpstream.WithQuery(u.JoinPath("models"), p.QueryParams), nil)
	if err != nil {
		return nil, fmt.Errorf("list the models of %q: %w", p.ID, err)
	}
	for k, v := range headers {
		req.Header.Set(k, v)
	}
	res, err := httpstream.SameHost(s.cfg.HTTPClient).Do(req)
	if err != nil {
		return nil, fmt.Errorf("list the models of %q: %w", p.ID, err)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("list the models of %q: status %d", p.ID, res.StatusCode)
	}
	var body struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, maxList)).Decode(&body); err != nil {
		return nil, fmt.Errorf("list the models of %q: %w", p.ID, err)
	}
	var names []string
	for _, m := range body.Data {
		if m.ID != "" && len(m.ID) <= 256 && len(names) < maxListed {
			names = append(names, m.ID)
		}
	}
	return names, nil
}
