package appserver

import (
	"context"
	"sync"
	"time"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
)

const (
	// sectionsFresh is how long the names of sections are believed: other
	// gateways change them too.
	sectionsFresh = time.Second
	sectionsWait  = 2 * time.Second
)

// sectionCache knows the names of sections, which rows of threads do not hold.
type sectionCache struct {
	mu   sync.Mutex
	read time.Time
	byID map[string]*protocol.Section
}

// section is what clients are told of a section; only its id is known where the
// control plane does not answer in time.
func (s *Server) section(id string) *protocol.Section {
	if id == "" {
		return nil
	}
	c := &s.sections
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.read) > sectionsFresh || c.byID[id] == nil {
		ctx, cancel := context.WithTimeout(context.Background(), sectionsWait)
		defer cancel()
		all, err := s.listSections(ctx)
		if err != nil {
			s.log.Info("reading sections failed", "error", err)
		} else {
			c.byID, c.read = map[string]*protocol.Section{}, time.Now()
			for _, m := range all {
				c.byID[m.GetId()] = protocol.FromSection(m)
			}
		}
	}
	return c.byID[id]
}
