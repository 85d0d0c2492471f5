package appserver

import (
	"context"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// projectTable returns what is done for a method about projects.
func projectTable(method string) (entry, bool) {
	switch method {
	case "project/create":
		return handle((*Server).projectCreate), true
	case "project/import":
		return handle((*Server).projectImport), true
	case "project/read":
		return handle((*Server).projectRead), true
	case "project/list":
		return handle((*Server).projectList), true
	case "project/update":
		return handle((*Server).projectUpdate), true
	case "project/move":
		return handle((*Server).projectMove), true
	case "project/delete":
		return handle((*Server).projectDelete), true
	}
	return entry{}, false
}

// projectChanged tells every connection of a project once the answer has left.
func (s *Server) projectChanged(r *call, id, change string) {
	r.then(func() {
		s.broadcast(note{method: "project/changed", all: true, experimental: true, params: list{"projectId": id, "changeType": change}}, nil)
	})
}

func (s *Server) projectCreate(ctx context.Context, r *call, p *protocol.ProjectCreateParams) (any, error) {
	return s.makeProject(ctx, r, &heddlev1.CreateProjectRequest{
		IdempotencyKey: p.IdempotencyKey, Name: p.Name, Roots: protocol.Paths(p.Roots), Metadata: p.Metadata,
	})
}

func (s *Server) projectImport(ctx context.Context, r *call, p *protocol.ProjectImportParams) (any, error) {
	return s.makeProject(ctx, r, &heddlev1.CreateProjectRequest{
		IdempotencyKey: p.IdempotencyKey, Name: p.Name, Roots: protocol.Paths(p.Roots), Metadata: p.Metadata, ThreadIds: p.Threads,
	})
}

func (s *Server) makeProject(ctx context.Context, r *call, req *heddlev1.CreateProjectRequest) (any, error) {
	if len(req.GetThreadIds()) > 0 {
		s.holdAll(r)
	}
	resp, err := organizing(ctx, s, func(ctx context.Context, c heddlev1.OrganizeServiceClient) (*heddlev1.CreateProjectResponse, error) {
		return c.CreateProject(ctx, req)
	})
	if err != nil {
		return nil, err
	}
	id := resp.GetProject().GetId()
	if resp.GetCreated() {
		s.projectChanged(r, id, "created")
	}
	s.tellUnloaded(r, resp.GetThreadIds(), func(thread string) note { return projectNote(thread, id, 0) })
	return list{"project": protocol.FromProject(resp.GetProject())}, nil
}

func (s *Server) projectRead(ctx context.Context, _ *call, p *protocol.ProjectParams) (any, error) {
	m, err := s.getProject(ctx, p.ProjectID)
	if err != nil {
		return nil, err
	}
	return list{"project": protocol.FromProject(m)}, nil
}

func (s *Server) getProject(ctx context.Context, id string) (*heddlev1.Project, error) {
	resp, err := organizing(ctx, s, func(ctx context.Context, c heddlev1.OrganizeServiceClient) (*heddlev1.GetProjectResponse, error) {
		return c.GetProject(ctx, &heddlev1.GetProjectRequest{ProjectId: id})
	})
	return resp.GetProject(), err
}

func (s *Server) projectList(ctx context.Context, _ *call, p *protocol.ProjectListParams) (any, error) {
	if p.SortDirection != nil && p.SortKey == nil {
		return nil, params("sortDirection requires sortKey")
	}
	if p.Cursor != nil && *p.Cursor == "" {
		return nil, params("invalid project cursor: malformed or mismatched sort anchor")
	}
	recency := p.SortKey != nil && *p.SortKey == "recencyAt"
	req := &heddlev1.ListProjectsRequest{PageSize: pageSize(p.Limit), PageToken: text(p.Cursor), ByRecency: recency, Descending: recency}
	if p.SortDirection != nil {
		req.Descending = *p.SortDirection == "desc"
	}
	resp, err := organizing(ctx, s, func(ctx context.Context, c heddlev1.OrganizeServiceClient) (*heddlev1.ListProjectsResponse, error) {
		return c.ListProjects(ctx, req)
	})
	if err != nil {
		return nil, err
	}
	data := []protocol.Project{}
	for _, m := range resp.GetProjects() {
		data = append(data, protocol.FromProject(m))
	}
	return list{"data": data, "nextCursor": cursorText(resp.GetNextPageToken())}, nil
}

func (s *Server) projectUpdate(ctx context.Context, r *call, p *protocol.ProjectUpdateParams) (any, error) {
	req := &heddlev1.UpdateProjectRequest{ProjectId: p.ProjectID, Name: p.Name}
	if p.Roots != nil {
		req.Roots, req.SetRoots = protocol.Paths(*p.Roots), true
	}
	if p.Metadata != nil {
		req.Metadata, req.SetMetadata = *p.Metadata, true
	}
	resp, err := organizing(ctx, s, func(ctx context.Context, c heddlev1.OrganizeServiceClient) (*heddlev1.UpdateProjectResponse, error) {
		return c.UpdateProject(ctx, req)
	})
	if err != nil {
		return nil, err
	}
	if resp.GetChanged() {
		s.projectChanged(r, p.ProjectID, "updated")
	}
	return list{"project": protocol.FromProject(resp.GetProject())}, nil
}

func (s *Server) projectMove(ctx context.Context, r *call, p *protocol.ProjectMoveParams) (any, error) {
	_, err := organizing(ctx, s, func(ctx context.Context, c heddlev1.OrganizeServiceClient) (*heddlev1.MoveProjectResponse, error) {
		return c.MoveProject(ctx, &heddlev1.MoveProjectRequest{ProjectId: p.ProjectID, BeforeProjectId: text(p.BeforeProjectID)})
	})
	if err != nil {
		return nil, err
	}
	s.projectChanged(r, p.ProjectID, "updated")
	return list{}, nil
}

func (s *Server) projectDelete(ctx context.Context, r *call, p *protocol.ProjectParams) (any, error) {
	s.holdAll(r)
	resp, err := organizing(ctx, s, func(ctx context.Context, c heddlev1.OrganizeServiceClient) (*heddlev1.DeleteProjectResponse, error) {
		return c.DeleteProject(ctx, &heddlev1.DeleteProjectRequest{ProjectId: p.ProjectID})
	})
	if err != nil {
		return nil, err
	}
	s.projectChanged(r, p.ProjectID, "deleted")
	s.tellUnloaded(r, resp.GetThreadIds(), func(thread string) note { return projectNote(thread, "", 0) })
	return list{}, nil
}

// assignProject makes a thread a member of a project, or of none.
func (s *Server) assignProject(ctx context.Context, r *call, thread, project string) (*heddlev1.Thread, error) {
	if l := s.thread(thread); l != nil {
		r.then(l.hold(r.client))
	}
	resp, err := organizing(ctx, s, func(ctx context.Context, c heddlev1.OrganizeServiceClient) (*heddlev1.SetProjectResponse, error) {
		return c.SetProject(ctx, &heddlev1.SetProjectRequest{ThreadId: thread, ProjectId: project})
	})
	if err != nil {
		return nil, lenient(named(err, textNotFound, thread))
	}
	if resp.GetChanged() {
		s.tellUnloaded(r, []string{thread}, func(id string) note { return projectNote(id, project, 0) })
	}
	return resp.GetThread(), nil
}
