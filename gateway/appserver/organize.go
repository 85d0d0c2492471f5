package appserver

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
)

// organizeTable returns what is done for a method that sorts threads.
func organizeTable(method string) (entry, bool) {
	switch method {
	case "threadSection/create":
		return handle((*Server).sectionCreate), true
	case "threadSection/list":
		return handle((*Server).sectionList), true
	case "threadSection/update":
		return handle((*Server).sectionUpdate), true
	case "threadSection/delete":
		return handle((*Server).sectionDelete), true
	case "thread/section/move":
		return handle((*Server).sectionMove), true
	case "thread/attachment/add":
		return handle((*Server).attachmentAdd), true
	case "thread/attachment/list":
		return handle((*Server).attachmentList), true
	case "thread/attachment/remove":
		return handle((*Server).attachmentRemove), true
	case "thread/attachmentOwner/list":
		return handle((*Server).attachmentOwnerList), true
	case "thread/memoryMode/set":
		return handle((*Server).memoryModeSet), true
	}
	return projectTable(method)
}

// organizing runs a call of the organize service once. What was asked wrongly is
// refused with the code for bad parameters.
func organizing[T any](ctx context.Context, s *Server, call func(context.Context, heddlev1.OrganizeServiceClient) (T, error)) (out T, err error) {
	err = s.session.DoOnce(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		out, err = call(ctx, heddlev1.NewOrganizeServiceClient(cc))
		return err
	})
	if e := errdefs.From(err); e != nil && (e.Reason == errdefs.InvalidArgument || e.Reason == errdefs.InvalidCursor) {
		return out, params(e.Message)
	}
	return out, err
}

// lenient gives refusals of organizing the code for bad requests.
func lenient(err error) error {
	var e *jsonrpc.Error
	if errors.As(err, &e) && e.Code == jsonrpc.CodeInvalidParams {
		return invalid(e.Message)
	}
	return err
}

// holdAll keeps back what all loaded threads tell until the answer has left.
func (s *Server) holdAll(r *call) {
	for _, id := range s.loadedIDs() {
		if l := s.thread(id); l != nil {
			release := l.hold(r.client)
			r.then(func() { time.AfterFunc(answerGap, release) })
		}
	}
}

// tellUnloaded sends a note about each of the threads whose log nobody reads
// here, once the answer has left.
func (s *Server) tellUnloaded(r *call, ids []string, n func(id string) note) {
	r.then(func() {
		for _, id := range ids {
			if s.thread(id) == nil {
				s.broadcast(n(id), nil)
			}
		}
	})
}

func sectionNote(thread, section string, seq uint64) note {
	return note{method: "thread/section/changed", all: true, seq: seq, params: list{"threadId": thread, "sectionId": orNull(section)}}
}

func projectNote(thread, project string, seq uint64) note {
	return note{method: "thread/project/updated", all: true, experimental: true, seq: seq, params: list{"threadId": thread, "projectId": orNull(project)}}
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (s *Server) sectionCreate(ctx context.Context, _ *call, p *protocol.SectionCreateParams) (any, error) {
	resp, err := organizing(ctx, s, func(ctx context.Context, c heddlev1.OrganizeServiceClient) (*heddlev1.CreateSectionResponse, error) {
		return c.CreateSection(ctx, &heddlev1.CreateSectionRequest{Name: p.Name, Appearance: p.Appearance.Value})
	})
	if err != nil {
		return nil, err
	}
	return list{"section": protocol.FromSection(resp.GetSection())}, nil
}

func (s *Server) listSections(ctx context.Context) ([]*heddlev1.Section, error) {
	resp, err := organizing(ctx, s, func(ctx context.Context, c heddlev1.OrganizeServiceClient) (*heddlev1.ListSectionsResponse, error) {
		return c.ListSections(ctx, &heddlev1.ListSectionsRequest{})
	})
	return resp.GetSections(), err
}

// sectionList pages by id, which is also the order of age.
func (s *Server) sectionList(ctx context.Context, _ *call, p *protocol.PageParams) (any, error) {
	all, err := s.listSections(ctx)
	if err != nil {
		return nil, err
	}
	limit := int(pageSize(p.Limit))
	if limit == 0 {
		limit = 25
	}
	data := []*protocol.Section{}
	var next *string
	for _, m := range all {
		switch {
		case m.GetId() <= text(p.Cursor):
			continue
		case len(data) == limit:
			next = &data[limit-1].ID
		default:
			data = append(data, protocol.FromSection(m))
			continue
		}
		break
	}
	return list{"data": data, "nextCursor": next}, nil
}

func (s *Server) sectionUpdate(ctx context.Context, _ *call, p *protocol.SectionUpdateParams) (any, error) {
	resp, err := organizing(ctx, s, func(ctx context.Context, c heddlev1.OrganizeServiceClient) (*heddlev1.UpdateSectionResponse, error) {
		return c.UpdateSection(ctx, &heddlev1.UpdateSectionRequest{
			SectionId: p.SectionID, Name: p.Name, Appearance: p.Appearance.Value, SetAppearance: p.Appearance.Given,
		})
	})
	if err != nil {
		return nil, err
	}
	return list{"section": protocol.FromSection(resp.GetSection())}, nil
}

func (s *Server) sectionDelete(ctx context.Context, r *call, p *protocol.SectionParams) (any, error) {
	s.holdAll(r)
	resp, err := organizing(ctx, s, func(ctx context.Context, c heddlev1.OrganizeServiceClient) (*heddlev1.DeleteSectionResponse, error) {
		return c.DeleteSection(ctx, &heddlev1.DeleteSectionRequest{SectionId: p.SectionID})
	})
	if err != nil {
		return nil, err
	}
	s.tellUnloaded(r, resp.GetThreadIds(), func(id string) note { return sectionNote(id, "", 0) })
	return list{}, nil
}

func (s *Server) sectionMove(ctx context.Context, r *call, p *protocol.SectionMoveParams) (any, error) {
	if l := s.thread(p.ThreadID); l != nil {
		r.then(l.hold(r.client))
	}
	_, err := organizing(ctx, s, func(ctx context.Context, c heddlev1.OrganizeServiceClient) (*heddlev1.MoveToSectionResponse, error) {
		return c.MoveToSection(ctx, &heddlev1.MoveToSectionRequest{ThreadId: p.ThreadID, SectionId: p.SectionID.Value, BeforeThreadId: text(p.BeforeThreadID)})
	})
	if err != nil {
		return nil, lenient(named(err, textNotFound, p.ThreadID))
	}
	s.tellUnloaded(r, []string{p.ThreadID}, func(id string) note { return sectionNote(id, p.SectionID.Value, 0) })
	return list{}, nil
}

// attachmentThread checks a thread's id, with the code that these methods have.
func attachmentThread(id string) error {
	if _, err := uuid.Parse(id); err != nil {
		return params("invalid thread id: " + err.Error())
	}
	return nil
}

func attachmentNote(thread string, a *heddlev1.Attachment, removed bool, seq uint64) note {
	operation := "created"
	if removed {
		operation = "deleted"
	}
	return note{method: "thread/attachment/updated", all: true, seq: seq, params: list{
		"threadId": thread, "attachmentId": a.GetId(), "attachmentType": a.GetType(), "identityKey": a.GetKey(), "operation": operation,
	}}
}

func attachmentMissing(err error, id string) error {
	if errdefs.Is(err, errdefs.ThreadNotFound) {
		return params(textNotFound + id)
	}
	return err
}

func (s *Server) attachmentAdd(ctx context.Context, r *call, p *protocol.AttachmentAddParams) (any, error) {
	if err := attachmentThread(p.Thread); err != nil {
		return nil, err
	}
	if l := s.thread(p.Thread); l != nil {
		r.then(l.hold(r.client))
	}
	resp, err := organizing(ctx, s, func(ctx context.Context, c heddlev1.OrganizeServiceClient) (*heddlev1.AddAttachmentResponse, error) {
		return c.AddAttachment(ctx, &heddlev1.AddAttachmentRequest{ThreadId: p.Thread, Type: p.AttachmentType, Key: p.IdentityKey, Payload: string(p.Payload)})
	})
	if err != nil {
		return nil, attachmentMissing(err, p.Thread)
	}
	outcome := "existing"
	if resp.GetCreated() {
		outcome = "created"
		s.tellUnloaded(r, []string{p.Thread}, func(id string) note { return attachmentNote(id, resp.GetAttachment(), false, 0) })
	}
	return list{"outcome": outcome, "attachment": protocol.FromAttachment(resp.GetAttachment())}, nil
}

func (s *Server) attachmentRemove(ctx context.Context, r *call, p *protocol.AttachmentRemoveParams) (any, error) {
	if err := attachmentThread(p.Thread); err != nil {
		return nil, err
	}
	if l := s.thread(p.Thread); l != nil {
		r.then(l.hold(r.client))
	}
	resp, err := organizing(ctx, s, func(ctx context.Context, c heddlev1.OrganizeServiceClient) (*heddlev1.RemoveAttachmentResponse, error) {
		return c.RemoveAttachment(ctx, &heddlev1.RemoveAttachmentRequest{ThreadId: p.Thread, Type: p.AttachmentType, Key: p.IdentityKey})
	})
	if err != nil {
		return nil, attachmentMissing(err, p.Thread)
	}
	if a := resp.GetAttachment(); a != nil {
		s.tellUnloaded(r, []string{p.Thread}, func(id string) note { return attachmentNote(id, a, true, 0) })
	}
	return list{}, nil
}

func (s *Server) attachmentList(ctx context.Context, _ *call, p *protocol.AttachmentListParams) (any, error) {
	if err := attachmentThread(p.Thread); err != nil {
		return nil, err
	}
	if err := idCursor(p.Cursor); err != nil {
		return nil, err
	}
	resp, err := organizing(ctx, s, func(ctx context.Context, c heddlev1.OrganizeServiceClient) (*heddlev1.ListAttachmentsResponse, error) {
		return c.ListAttachments(ctx, &heddlev1.ListAttachmentsRequest{ThreadId: p.Thread, PageSize: pageSize(p.Limit), PageToken: text(p.Cursor)})
	})
	// A thread that is not there has none.
	if err != nil && !errdefs.Is(err, errdefs.ThreadNotFound) {
		return nil, err
	}
	data := []any{}
	for _, a := range resp.GetAttachments() {
		data = append(data, protocol.FromAttachment(a))
	}
	return list{"data": data, "nextCursor": cursorText(resp.GetNextPageToken())}, nil
}

// idCursor refuses a cursor that was never given out, also where its thread is
// not there.
func idCursor(cursor *string) error {
	if cursor == nil {
		return nil
	}
	if _, err := uuid.Parse(*cursor); err != nil {
		return params("invalid pagination cursor")
	}
	return nil
}

func (s *Server) attachmentOwnerList(ctx context.Context, _ *call, p *protocol.AttachmentOwnerParams) (any, error) {
	if err := idCursor(p.Cursor); err != nil {
		return nil, err
	}
	resp, err := organizing(ctx, s, func(ctx context.Context, c heddlev1.OrganizeServiceClient) (*heddlev1.ListAttachmentOwnersResponse, error) {
		return c.ListAttachmentOwners(ctx, &heddlev1.ListAttachmentOwnersRequest{
			Type: p.AttachmentType, Key: p.IdentityKey, Archived: p.Archived, PageSize: pageSize(p.Limit), PageToken: text(p.Cursor),
		})
	})
	if err != nil {
		return nil, err
	}
	data := []any{}
	for _, o := range resp.GetOwners() {
		data = append(data, list{"threadId": o.GetThreadId(), "archived": o.GetArchived()})
	}
	return list{"data": data, "nextCursor": cursorText(resp.GetNextPageToken())}, nil
}

func (s *Server) memoryModeSet(ctx context.Context, _ *call, p *protocol.MemoryModeParams) (any, error) {
	_, err := organizing(ctx, s, func(ctx context.Context, c heddlev1.OrganizeServiceClient) (*heddlev1.SetMemoryModeResponse, error) {
		return c.SetMemoryMode(ctx, &heddlev1.SetMemoryModeRequest{ThreadId: p.ThreadID, Mode: string(p.Mode)})
	})
	if err != nil {
		return nil, lenient(named(err, textNoRollout, p.ThreadID))
	}
	return list{}, nil
}

// memoryStatus says that there are no memories here.
func (s *Server) memoryStatus(_ context.Context, _ *call, p *protocol.MemoryStatusParams) (any, error) {
	if n := p.MinThreads; n != nil && (*n < 1 || *n > 4096) {
		return nil, params("minConsolidatedThreads must be between 1 and 4096")
	}
	return list{"v2ConsolidatedThreads": 0, "v2Ready": false}, nil
}

// memoryRead says that a loaded thread has no memory.
func (s *Server) memoryRead(_ context.Context, _ *call, p *protocol.ThreadParams) (any, error) {
	if s.thread(p.ThreadID) == nil {
		return nil, invalid(textNotFound + p.ThreadID)
	}
	return list{"summary": nil}, nil
}
