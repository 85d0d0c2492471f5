package appserver

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// serverTable returns what is done for a method about the server itself.
func serverTable(method string) (entry, bool) {
	switch method {
	case "server/diagnostics":
		return handle((*Server).diagnostics), true
	case "experimentalFeature/enablement/set":
		return handle((*Server).enablementSet), true
	case "mock/experimentalMethod":
		return handle((*Server).mock), true
	}
	return entry{}, false
}

// mock answers with its value: clients try with it whether they get experimental
// methods.
func (s *Server) mock(_ context.Context, _ *call, p *protocol.MockParams) (any, error) {
	return list{"echoed": p.Value}, nil
}

type gauge struct {
	Name  string `json:"name"`
	Value uint64 `json:"value"`
}

// diagnostics tells of this process and of its control plane's work.
func (s *Server) diagnostics(ctx context.Context, r *call, _ *protocol.NoParams) (any, error) {
	r.client.mu.Lock()
	inFlight, waiting := r.client.inFlight, 0
	for _, queue := range r.client.lanes {
		waiting += len(queue)
	}
	r.client.mu.Unlock()
	gauges := []gauge{
		{"app.requests.in_flight", uint64(max(inFlight, 0))}, {"app.requests.queued", uint64(waiting)}, {"core.threads.live", uint64(len(s.loadedIDs()))},
	}
	status, err := catalog(ctx, s, func(ctx context.Context, c heddlev1.CatalogServiceClient) (*heddlev1.GetStatusResponse, error) {
		return c.GetStatus(ctx, &heddlev1.GetStatusRequest{})
	})
	if err != nil {
		return nil, err
	}
	gauges = append(gauges,
		gauge{"controlplane.sessions", uint64(max(status.GetSessions(), 0))}, gauge{"controlplane.turns.active", uint64(max(status.GetActiveTurns(), 0))},
		gauge{"controlplane.executors", uint64(len(status.GetExecutors()))}, gauge{"controlplane.actions.waiting", uint64(len(status.GetWaiting()))})
	return list{
		"process": list{"id": os.Getpid(), "residentMemoryBytes": residentBytes(), "physicalFootprintBytes": nil}, "gauges": gauges,
	}, nil
}

// residentBytes is the memory that this process has; nil when the system does
// not say.
func residentBytes() *uint64 {
	data, err := os.ReadFile("/proc/self/statm")
	fields := bytes.Fields(data)
	if err != nil || len(fields) < 2 {
		return nil
	}
	pages, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		return nil
	}
	n := pages * uint64(os.Getpagesize())
	return &n
}

// enablementSet turns switches on or off until this server ends. Names that are
// none of the switches are left out of the answer, which says what was done.
func (s *Server) enablementSet(ctx context.Context, _ *call, p *protocol.EnablementParams) (any, error) {
	known, err := catalog(ctx, s, func(ctx context.Context, c heddlev1.CatalogServiceClient) (*heddlev1.ListFeaturesResponse, error) {
		return c.ListFeatures(ctx, &heddlev1.ListFeaturesRequest{})
	})
	if err != nil {
		return nil, err
	}
	keys, done := map[string]any{}, map[string]bool{}
	for name, on := range p.Enablement {
		if slices.ContainsFunc(known.GetFeatures(), func(f *heddlev1.Feature) bool { return f.GetName() == name }) && !strings.Contains(name, ".") {
			keys["features."+name], done[name] = on, on
		}
	}
	if len(keys) > 0 {
		if err := s.session.Override(ctx, keys); err != nil {
			return nil, err
		}
	}
	return list{"enablement": done}, nil
}
