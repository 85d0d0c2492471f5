package server

import (
	"bytes"
	"context"
	"strings"
	"sync"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/session"
	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// PinnedSection is there for every principal and cannot be changed. Clients know
// its id.
const PinnedSection = "01984de2-8f74-7c91-a3b2-5c5e937cf318"

const (
	kindSection = "section"

	maxSections       = 200
	maxSectionName    = 1 << 10
	maxAppearance     = 64
	memberConcurrency = 32
)

// organizeService changes one thing at a time: what it checks is what it writes.
type organizeService struct {
	heddlev1.UnimplementedOrganizeServiceServer
	*Server
}

func (s *Server) pinned() *heddlev1.Section {
	return &heddlev1.Section{Id: PinnedSection, Name: "Pinned"}
}

func sectionMissing(id string) error {
	return errdefs.New(errdefs.InvalidArgument, "thread section not found: %s", id)
}

// records reads all records of a kind.
func records[T any, M interface {
	*T
	proto.Message
}](ctx context.Context, s *Server, kind string) ([]M, error) {
	rows, err := s.store.Records(ctx, session.Local, kind)
	if err != nil {
		return nil, err
	}
	out := make([]M, 0, len(rows))
	for _, r := range rows {
		m := M(new(T))
		if err := proto.Unmarshal(r.Value, m); err != nil {
			s.cfg.Logger.Error("a record does not decode", "kind", kind, "id", r.ID, "error", err)
			continue
		}
		out = append(out, m)
	}
	return out, nil
}

// putRecord writes a record, or removes it with a nil message.
func (s *Server) putRecord(ctx context.Context, kind, id string, m proto.Message) error {
	r := store.Record{ID: id}
	if m != nil {
		var err error
		if r.Value, err = proto.Marshal(m); err != nil {
			return errdefs.New(errdefs.Internal, "encode a %s: %w", kind, err)
		}
		if r.Value == nil {
			r.Value = []byte{}
		}
	}
	return s.cfg.Log.PutRecords(ctx, session.Local, kind, r)
}

func (s *Server) section(ctx context.Context, id string) (*heddlev1.Section, error) {
	if id == PinnedSection {
		return s.pinned(), nil
	}
	v, err := s.store.Record(ctx, session.Local, kindSection, id)
	if err != nil || v == nil {
		return nil, err
	}
	m := &heddlev1.Section{}
	return m, proto.Unmarshal(v, m)
}

// mustSection fails when there is no such section.
func (s *Server) mustSection(ctx context.Context, id string) (*heddlev1.Section, error) {
	m, err := s.section(ctx, id)
	if err == nil && m == nil {
		err = sectionMissing(id)
	}
	return m, err
}

func checkSection(name string, a *heddlev1.SectionAppearance) (string, error) {
	name = strings.TrimSpace(name)
	switch {
	case name == "":
		return "", errdefs.New(errdefs.InvalidArgument, "section name must not be empty")
	case len(name) > maxSectionName:
		return "", errdefs.New(errdefs.InvalidArgument, "section name must not exceed %d bytes", maxSectionName)
	case len(a.GetColor()) > maxAppearance:
		return "", errdefs.New(errdefs.InvalidArgument, "section appearance color must not exceed %d bytes", maxAppearance)
	case len(a.GetIcon()) > maxAppearance:
		return "", errdefs.New(errdefs.InvalidArgument, "section appearance icon must not exceed %d bytes", maxAppearance)
	}
	return name, nil
}

func (s *organizeService) CreateSection(ctx context.Context, r *heddlev1.CreateSectionRequest) (*heddlev1.CreateSectionResponse, error) {
	name, err := checkSection(r.GetName(), r.GetAppearance())
	if err != nil {
		return nil, err
	}
	s.organizing.Lock()
	defer s.organizing.Unlock()
	have, err := s.store.Records(ctx, session.Local, kindSection)
	if err != nil {
		return nil, err
	}
	if len(have) >= maxSections {
		return nil, errdefs.New(errdefs.InvalidArgument, "there are %d sections, which is the limit", maxSections)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "make a section id: %w", err)
	}
	m := &heddlev1.Section{Id: id.String(), Name: name, Appearance: r.GetAppearance()}
	if err := s.putRecord(ctx, kindSection, m.GetId(), m); err != nil {
		return nil, err
	}
	return &heddlev1.CreateSectionResponse{Section: m}, nil
}

func (s *organizeService) ListSections(ctx context.Context, _ *heddlev1.ListSectionsRequest) (*heddlev1.ListSectionsResponse, error) {
	all, err := records[heddlev1.Section](ctx, s.Server, kindSection)
	if err != nil {
		return nil, err
	}
	return &heddlev1.ListSectionsResponse{Sections: append([]*heddlev1.Section{s.pinned()}, all...)}, nil
}

func (s *organizeService) UpdateSection(ctx context.Context, r *heddlev1.UpdateSectionRequest) (*heddlev1.UpdateSectionResponse, error) {
	if r.GetSectionId() == PinnedSection {
		return nil, errdefs.New(errdefs.InvalidArgument, "the built-in pinned section cannot be renamed")
	}
	name, err := checkSection(r.GetName(), r.GetAppearance())
	if err != nil {
		return nil, err
	}
	s.organizing.Lock()
	defer s.organizing.Unlock()
	m, err := s.mustSection(ctx, r.GetSectionId())
	if err != nil {
		return nil, err
	}
	m.Name = name
	if r.GetSetAppearance() {
		m.Appearance = r.GetAppearance()
	}
	if err := s.putRecord(ctx, kindSection, m.GetId(), m); err != nil {
		return nil, err
	}
	return &heddlev1.UpdateSectionResponse{Section: m}, nil
}

// DeleteSection empties the section first: after a stop in between it is there
// still and can be deleted again.
func (s *organizeService) DeleteSection(ctx context.Context, r *heddlev1.DeleteSectionRequest) (*heddlev1.DeleteSectionResponse, error) {
	if r.GetSectionId() == PinnedSection {
		return nil, errdefs.New(errdefs.InvalidArgument, "the built-in pinned section cannot be deleted")
	}
	s.organizing.Lock()
	defer s.organizing.Unlock()
	m, err := s.mustSection(ctx, r.GetSectionId())
	if err != nil {
		return nil, err
	}
	list := &heddlev1.ListThreadsRequest{SectionId: &m.Id, SortKey: "section_position", PageSize: store.MaxPage}
	ids, err := s.release(ctx, list, &heddlev1.Event{Payload: &heddlev1.Event_SectionChanged{SectionChanged: &heddlev1.SectionChanged{}}})
	if err != nil {
		return nil, err
	}
	if err := s.putRecord(ctx, kindSection, m.GetId(), nil); err != nil {
		return nil, err
	}
	return &heddlev1.DeleteSectionResponse{ThreadIds: ids}, nil
}

// release records an event that takes threads out of a list, in both halves of
// it, until none is left.
func (s *Server) release(ctx context.Context, list *heddlev1.ListThreadsRequest, ev *heddlev1.Event) ([]string, error) {
	var all []string
	for _, archived := range []bool{false, true} {
		list.Archived = archived
		for {
			page, err := s.store.ListThreads(ctx, session.Local, list)
			if err != nil {
				return nil, err
			}
			if len(page.GetThreads()) == 0 {
				break
			}
			var ids []string
			for _, t := range page.GetThreads() {
				ids = append(ids, t.GetId())
			}
			if err := s.recordAll(ctx, ids, ev); err != nil {
				return nil, err
			}
			all = append(all, ids...)
		}
	}
	return all, nil
}

// recordAll records a copy of an event in each of the threads.
func (s *Server) recordAll(ctx context.Context, ids []string, ev *heddlev1.Event) error {
	var wg sync.WaitGroup
	slots := make(chan struct{}, memberConcurrency)
	errs := make([]error, len(ids))
	for i, id := range ids {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = s.record(ctx, id, proto.CloneOf(ev))
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil && !errdefs.Is(err, errdefs.ThreadNotFound) {
			return err
		}
	}
	return nil
}

func (s *organizeService) MoveToSection(ctx context.Context, r *heddlev1.MoveToSectionRequest) (*heddlev1.MoveToSectionResponse, error) {
	id, to, before := r.GetThreadId(), r.GetSectionId(), r.GetBeforeThreadId()
	switch {
	case before != "" && to == "":
		return nil, errdefs.New(errdefs.InvalidArgument, "beforeThreadId requires a non-null sectionId")
	case before == id && id != "":
		return nil, errdefs.New(errdefs.InvalidArgument, "thread %s cannot be moved before itself", id)
	}
	s.organizing.Lock()
	defer s.organizing.Unlock()
	row, err := s.thread(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case row.GetEphemeral():
		return nil, errdefs.New(errdefs.InvalidArgument, "ephemeral thread does not support section moves: %s", id)
	}
	place, err := s.placeIn(ctx, row, to, before)
	if err != nil {
		return nil, err
	}
	ev := &heddlev1.Event{Payload: &heddlev1.Event_SectionChanged{SectionChanged: &heddlev1.SectionChanged{Place: place}}}
	if err := s.record(ctx, id, ev); err != nil {
		return nil, err
	}
	if row, err = s.thread(ctx, id); err != nil {
		return nil, err
	}
	return &heddlev1.MoveToSectionResponse{Thread: row}, nil
}

// placeIn is where a thread comes to stand in a section; nil for none.
func (s *Server) placeIn(ctx context.Context, row *heddlev1.Thread, to, before string) (*heddlev1.SectionPlace, error) {
	if to == "" {
		return nil, nil
	}
	m, err := s.section(ctx, to)
	switch {
	case err != nil:
		return nil, err
	case m == nil:
		return nil, errdefs.New(errdefs.InvalidArgument, "section %s does not exist", to)
	}
	place := &heddlev1.SectionPlace{SectionId: to, EnteredAtMs: s.cfg.Clock().UnixMilli()}
	if row.GetSection().GetSectionId() == to {
		place.EnteredAtMs = row.GetSection().GetEnteredAtMs()
	}
	if before == "" {
		last, err := s.neighbour(ctx, to, "")
		place.Position = after(last)
		return place, err
	}
	next, err := s.thread(ctx, before)
	if err != nil && !errdefs.Is(err, errdefs.ThreadNotFound) {
		return nil, err
	}
	if next.GetSection().GetSectionId() != to {
		return nil, errdefs.New(errdefs.InvalidArgument, "before thread %s is not in section %s", before, to)
	}
	last, err := s.neighbour(ctx, to, store.Token{Kind: store.TokenSection, ID: store.Place(next)}.Encode())
	if err != nil {
		return nil, err
	}
	place.Position, err = between(last, next.GetSection().GetPosition())
	return place, err
}

// neighbour is the position of the last thread of a section before a place, or
// of all with none; archived threads keep their places.
func (s *Server) neighbour(ctx context.Context, section, token string) ([]byte, error) {
	var last []byte
	for _, archived := range []bool{false, true} {
		page, err := s.store.ListThreads(ctx, session.Local, &heddlev1.ListThreadsRequest{
			SectionId: &section, SortKey: "section_position", PageSize: 1, PageToken: token, Archived: archived,
		})
		if err != nil {
			return nil, err
		}
		for _, t := range page.GetThreads() {
			if p := t.GetSection().GetPosition(); bytes.Compare(p, last) > 0 {
				last = p
			}
		}
	}
	return last, nil
}
