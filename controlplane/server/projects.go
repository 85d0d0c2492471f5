package server

import (
	"bytes"
	"cmp"
	"context"
	"path"
	"slices"
	"strings"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/session"
	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	kindProject = "project"

	maxProjects    = 1000
	maxProjectName = 4 << 10
	maxRoots       = 64
	maxRootPath    = 4 << 10
	// maxProjectMetadata bounds what a client says of a project.
	maxProjectMetadata = 32 << 10
	maxIdempotencyKey  = 512
	maxImported        = 1000
)

func projectMissing(id string) error {
	return errdefs.New(errdefs.InvalidArgument, "project not found: %s", id)
}

// project returns a project that is there, nil for none.
func (s *Server) project(ctx context.Context, id string) (*heddlev1.Project, error) {
	v, err := s.store.Record(ctx, session.Local, kindProject, id)
	if err != nil || v == nil {
		return nil, err
	}
	m := &heddlev1.Project{}
	if err := proto.Unmarshal(v, m); err != nil || m.GetDeleted() {
		return nil, err
	}
	return m, nil
}

// mustProject fails when there is no such project.
func (s *Server) mustProject(ctx context.Context, id string) (*heddlev1.Project, error) {
	m, err := s.project(ctx, id)
	if err == nil && m == nil {
		err = projectMissing(id)
	}
	return m, err
}

func (s *Server) putProject(ctx context.Context, m *heddlev1.Project) error {
	m = proto.CloneOf(m)
	m.RecencyAtMs = 0
	return s.putRecord(ctx, kindProject, m.GetId(), m)
}

// recent fills in when a member was updated last.
func (s *Server) recent(ctx context.Context, m *heddlev1.Project) error {
	page, err := s.store.ListThreads(ctx, session.Local, &heddlev1.ListThreadsRequest{ProjectId: &m.Id, SortKey: "updated_at", PageSize: 1})
	if err != nil {
		return err
	}
	for _, t := range page.GetThreads() {
		m.RecencyAtMs = t.GetUpdatedAtMs()
	}
	return nil
}

func checkProjectName(name string) (string, error) {
	name = strings.TrimSpace(name)
	switch {
	case name == "":
		return "", errdefs.New(errdefs.InvalidArgument, "project name must not be empty")
	case len(name) > maxProjectName:
		return "", errdefs.New(errdefs.InvalidArgument, "project name must not exceed %d bytes", maxProjectName)
	}
	return name, nil
}

// checkRoots cleans the folders of a project.
func checkRoots(roots []string) ([]string, error) {
	if len(roots) > maxRoots {
		return nil, errdefs.New(errdefs.InvalidArgument, "a project has at most %d roots", maxRoots)
	}
	var out []string
	for _, r := range roots {
		if !path.IsAbs(r) || len(r) > maxRootPath || strings.ContainsRune(r, 0) {
			return nil, errdefs.New(errdefs.InvalidArgument, "a project root must be an absolute path of at most %d bytes", maxRootPath)
		}
		r = path.Clean(r)
		if slices.Contains(out, r) {
			return nil, errdefs.New(errdefs.InvalidArgument, "duplicate project root: %s", r)
		}
		out = append(out, r)
	}
	return out, nil
}

// newProject checks a request and makes the project of it.
func (s *Server) newProject(ctx context.Context, r *heddlev1.CreateProjectRequest) (*heddlev1.Project, error) {
	name, err := checkProjectName(r.GetName())
	if err != nil {
		return nil, err
	}
	roots, err := checkRoots(r.GetRoots())
	if err != nil {
		return nil, err
	}
	if err := checkMap("project metadata", r.GetMetadata(), maxMetadataKeys, maxProjectMetadata); err != nil {
		return nil, err
	}
	if len(r.GetThreadIds()) > maxImported {
		return nil, errdefs.New(errdefs.InvalidArgument, "at most %d threads can be imported at once", maxImported)
	}
	for _, id := range r.GetThreadIds() {
		row, err := s.thread(ctx, id)
		if errdefs.Is(err, errdefs.ThreadNotFound) || errdefs.Is(err, errdefs.InvalidArgument) || row.GetEphemeral() {
			return nil, errdefs.New(errdefs.InvalidArgument, "thread not found: %s", id)
		}
		if err != nil {
			return nil, err
		}
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "make a project id: %w", err)
	}
	now := s.cfg.Clock().UnixMilli()
	return &heddlev1.Project{
		Id: id.String(), Name: name, Roots: roots, Metadata: r.GetMetadata(), CreatedAtMs: now, UpdatedAtMs: now,
		IdempotencyKey: r.GetIdempotencyKey(), PendingThreadIds: r.GetThreadIds(),
	}, nil
}

func (s *organizeService) CreateProject(ctx context.Context, r *heddlev1.CreateProjectRequest) (*heddlev1.CreateProjectResponse, error) {
	switch key := r.GetIdempotencyKey(); {
	case key == "":
		return nil, errdefs.New(errdefs.InvalidArgument, "idempotencyKey must not be empty")
	case len(key) > maxIdempotencyKey:
		return nil, errdefs.New(errdefs.InvalidArgument, "idempotencyKey must be at most %d bytes", maxIdempotencyKey)
	}
	if _, err := checkProjectName(r.GetName()); err != nil {
		return nil, err
	}
	s.organizing.Lock()
	defer s.organizing.Unlock()
	all, err := records[heddlev1.Project](ctx, s.Server, kindProject)
	if err != nil {
		return nil, err
	}
	resp := &heddlev1.CreateProjectResponse{}
	var last []byte
	live := 0
	for _, m := range all {
		if m.GetIdempotencyKey() == r.GetIdempotencyKey() {
			if m.GetDeleted() {
				return nil, errdefs.New(errdefs.InvalidArgument, "idempotency key refers to deleted project: %s", r.GetIdempotencyKey())
			}
			resp.Project = m
		}
		if !m.GetDeleted() {
			live++
		}
		if bytes.Compare(m.GetPosition(), last) > 0 {
			last = m.GetPosition()
		}
	}
	if resp.Project == nil {
		if live >= maxProjects {
			return nil, errdefs.New(errdefs.InvalidArgument, "there are %d projects, which is the limit", maxProjects)
		}
		if resp.Project, err = s.newProject(ctx, r); err != nil {
			return nil, err
		}
		resp.Project.Position, resp.Created = after(last), true
		if err := s.putProject(ctx, resp.Project); err != nil {
			return nil, err
		}
	}
	if resp.ThreadIds, err = s.admit(ctx, resp.Project); err != nil {
		return nil, err
	}
	return resp, s.recent(ctx, resp.Project)
}

// admit makes the threads that a project waits for its members.
func (s *Server) admit(ctx context.Context, m *heddlev1.Project) ([]string, error) {
	ids := m.GetPendingThreadIds()
	if len(ids) == 0 {
		return nil, nil
	}
	if err := s.recordAll(ctx, ids, projectChanged(m.GetId())); err != nil {
		return nil, err
	}
	m.PendingThreadIds = nil
	return ids, s.putProject(ctx, m)
}

func projectChanged(id string) *heddlev1.Event {
	return &heddlev1.Event{Payload: &heddlev1.Event_ProjectChanged{ProjectChanged: &heddlev1.ProjectChanged{ProjectId: id}}}
}

func (s *organizeService) GetProject(ctx context.Context, r *heddlev1.GetProjectRequest) (*heddlev1.GetProjectResponse, error) {
	m, err := s.mustProject(ctx, r.GetProjectId())
	if err != nil {
		return nil, err
	}
	return &heddlev1.GetProjectResponse{Project: m}, s.recent(ctx, m)
}

func (s *organizeService) ListProjects(ctx context.Context, r *heddlev1.ListProjectsRequest) (*heddlev1.ListProjectsResponse, error) {
	all, err := records[heddlev1.Project](ctx, s.Server, kindProject)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, (*heddlev1.Project).GetDeleted)
	for _, m := range all {
		if err := s.recent(ctx, m); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(all, func(a, b *heddlev1.Project) int { return compareProjects(a, b, r) })
	start := 0
	if r.GetPageToken() != "" {
		at := slices.IndexFunc(all, func(m *heddlev1.Project) bool { return projectToken(m, r) == r.GetPageToken() })
		if at < 0 {
			return nil, errdefs.New(errdefs.InvalidCursor, "invalid project cursor: malformed or mismatched sort anchor")
		}
		start = at + 1
	}
	rest := all[start:]
	page := rest[:min(len(rest), store.PageSize(r.GetPageSize()))]
	page = page[:store.Fit(page, func(m *heddlev1.Project) int { return proto.Size(m) })]
	resp := &heddlev1.ListProjectsResponse{Projects: page}
	if len(page) < len(rest) {
		resp.NextPageToken = projectToken(page[len(page)-1], r)
	}
	return resp, nil
}

func projectToken(m *heddlev1.Project, r *heddlev1.ListProjectsRequest) string {
	sort := "position"
	if r.GetByRecency() {
		sort = "recency"
	}
	if r.GetDescending() {
		sort += "-desc"
	}
	return sort + "|" + m.GetId()
}

// compareProjects orders a listing; by recency what has no members comes last.
func compareProjects(a, b *heddlev1.Project, r *heddlev1.ListProjectsRequest) int {
	c := bytes.Compare(a.GetPosition(), b.GetPosition())
	if r.GetByRecency() {
		x, y := a.GetRecencyAtMs(), b.GetRecencyAtMs()
		if (x == 0) != (y == 0) {
			return cmp.Compare(y, x)
		}
		c = cmp.Compare(x, y)
	}
	c = cmp.Or(c, cmp.Compare(a.GetId(), b.GetId()))
	if r.GetDescending() {
		return -c
	}
	return c
}

func (s *organizeService) UpdateProject(ctx context.Context, r *heddlev1.UpdateProjectRequest) (*heddlev1.UpdateProjectResponse, error) {
	s.organizing.Lock()
	defer s.organizing.Unlock()
	m, err := s.mustProject(ctx, r.GetProjectId())
	if err != nil {
		return nil, err
	}
	old := proto.CloneOf(m)
	if r.Name != nil {
		if m.Name, err = checkProjectName(r.GetName()); err != nil {
			return nil, err
		}
	}
	if r.GetSetRoots() {
		if m.Roots, err = checkRoots(r.GetRoots()); err != nil {
			return nil, err
		}
	}
	if r.GetSetMetadata() {
		if err := checkMap("project metadata", r.GetMetadata(), maxMetadataKeys, maxProjectMetadata); err != nil {
			return nil, err
		}
		m.Metadata = r.GetMetadata()
	}
	resp := &heddlev1.UpdateProjectResponse{Project: m, Changed: !proto.Equal(old, m)}
	if resp.GetChanged() {
		m.UpdatedAtMs = s.cfg.Clock().UnixMilli()
		if err := s.putProject(ctx, m); err != nil {
			return nil, err
		}
	}
	return resp, s.recent(ctx, m)
}

func (s *organizeService) MoveProject(ctx context.Context, r *heddlev1.MoveProjectRequest) (*heddlev1.MoveProjectResponse, error) {
	id, before := r.GetProjectId(), r.GetBeforeProjectId()
	s.organizing.Lock()
	defer s.organizing.Unlock()
	m, err := s.mustProject(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case id == before:
		return nil, errdefs.New(errdefs.InvalidArgument, "project %s cannot be moved before itself", id)
	}
	all, err := records[heddlev1.Project](ctx, s.Server, kindProject)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(p *heddlev1.Project) bool { return p.GetDeleted() || p.GetId() == id })
	slices.SortFunc(all, func(a, b *heddlev1.Project) int { return compareProjects(a, b, &heddlev1.ListProjectsRequest{}) })
	at := len(all)
	if before != "" {
		if at = slices.IndexFunc(all, func(p *heddlev1.Project) bool { return p.GetId() == before }); at < 0 {
			return nil, errdefs.New(errdefs.InvalidArgument, "before project not found: %s", before)
		}
	}
	var lo []byte
	if at > 0 {
		lo = all[at-1].GetPosition()
	}
	if at == len(all) {
		m.Position = after(lo)
	} else if m.Position, err = between(lo, all[at].GetPosition()); err != nil {
		return nil, err
	}
	return &heddlev1.MoveProjectResponse{}, s.putProject(ctx, m)
}

// DeleteProject takes the members out first: after a stop in between the project
// is there still. What is left of it keeps its idempotency key from being used
// for another one; the oldest of many are forgotten.
func (s *organizeService) DeleteProject(ctx context.Context, r *heddlev1.DeleteProjectRequest) (*heddlev1.DeleteProjectResponse, error) {
	s.organizing.Lock()
	defer s.organizing.Unlock()
	m, err := s.mustProject(ctx, r.GetProjectId())
	if err != nil {
		return nil, err
	}
	ids, err := s.release(ctx, &heddlev1.ListThreadsRequest{ProjectId: &m.Id, SortKey: "updated_at", PageSize: store.MaxPage}, projectChanged(""))
	if err != nil {
		return nil, err
	}
	all, err := records[heddlev1.Project](ctx, s.Server, kindProject)
	if err != nil {
		return nil, err
	}
	gone := slices.DeleteFunc(all, func(p *heddlev1.Project) bool { return !p.GetDeleted() })
	if len(gone) >= maxProjects {
		if err := s.putRecord(ctx, kindProject, gone[0].GetId(), nil); err != nil {
			return nil, err
		}
	}
	left := &heddlev1.Project{Id: m.GetId(), IdempotencyKey: m.GetIdempotencyKey(), Deleted: true}
	return &heddlev1.DeleteProjectResponse{ThreadIds: ids}, s.putProject(ctx, left)
}

func (s *organizeService) SetProject(ctx context.Context, r *heddlev1.SetProjectRequest) (*heddlev1.SetProjectResponse, error) {
	s.organizing.Lock()
	defer s.organizing.Unlock()
	row, err := s.thread(ctx, r.GetThreadId())
	switch {
	case err != nil:
		return nil, err
	case row.GetEphemeral():
		return nil, noMetadata(row.GetId())
	}
	if r.GetProjectId() != "" {
		if _, err := s.mustProject(ctx, r.GetProjectId()); err != nil {
			return nil, err
		}
	}
	resp := &heddlev1.SetProjectResponse{Thread: row, Changed: row.GetProjectId() != r.GetProjectId()}
	if !resp.GetChanged() {
		return resp, nil
	}
	if err := s.record(ctx, row.GetId(), projectChanged(r.GetProjectId())); err != nil {
		return nil, err
	}
	resp.Thread, err = s.thread(ctx, row.GetId())
	return resp, err
}

func noMetadata(id string) error {
	return errdefs.New(errdefs.InvalidArgument, "ephemeral thread does not support metadata updates: %s", id)
}
