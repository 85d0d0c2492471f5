package server

import (
	"context"
	"encoding/json"

	"github.com/google/uuid"

	"github.com/heddle-dev/heddle/controlplane/session"
	"github.com/heddle-dev/heddle/controlplane/store"
	"github.com/heddle-dev/heddle/controlplane/thread"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	maxAttachmentName = 256
	maxPayload        = 64 << 10
	// copyBytes bounds the attachments that are copied in one commit.
	copyBytes = 1 << 20
)

func checkAttachment(typ, key string) error {
	for _, f := range []struct{ name, value string }{{"attachmentType", typ}, {"identityKey", key}} {
		switch {
		case f.value == "":
			return errdefs.New(errdefs.InvalidArgument, "%s must not be empty", f.name)
		case len(f.value) > maxAttachmentName:
			return errdefs.New(errdefs.InvalidArgument, "%s must not exceed %d bytes", f.name, maxAttachmentName)
		}
	}
	return nil
}

// owner is the row of a thread that can have attachments.
func (s *Server) owner(ctx context.Context, id string) (*heddlev1.Thread, error) {
	row, err := s.thread(ctx, id)
	if err == nil && row.GetEphemeral() {
		err = store.NotFound(id)
	}
	return row, err
}

func attachmentChanged(a *heddlev1.Attachment, removed bool) *heddlev1.Event {
	return &heddlev1.Event{Payload: &heddlev1.Event_AttachmentChanged{AttachmentChanged: &heddlev1.AttachmentChanged{Attachment: a, Removed: removed}}}
}

func (s *organizeService) AddAttachment(ctx context.Context, r *heddlev1.AddAttachmentRequest) (*heddlev1.AddAttachmentResponse, error) {
	if err := checkAttachment(r.GetType(), r.GetKey()); err != nil {
		return nil, err
	}
	switch {
	case len(r.GetPayload()) > maxPayload:
		return nil, errdefs.New(errdefs.InvalidArgument, "attachment payload must not exceed %d bytes", maxPayload)
	case !json.Valid([]byte(r.GetPayload())):
		return nil, errdefs.New(errdefs.InvalidArgument, "attachment payload must be JSON")
	}
	s.organizing.Lock()
	defer s.organizing.Unlock()
	row, err := s.owner(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	a, err := s.store.Attachment(ctx, row.GetId(), thread.AttachmentKey{Type: r.GetType(), Key: r.GetKey()})
	switch {
	case err != nil:
		return nil, err
	case a != nil:
		return &heddlev1.AddAttachmentResponse{Attachment: a}, nil
	case row.GetAttachmentCount() >= thread.MaxAttachments:
		return nil, errdefs.New(errdefs.InvalidArgument, "a thread has at most %d attachments", thread.MaxAttachments)
	}
	if a, err = s.newAttachment(r.GetType(), r.GetKey(), r.GetPayload()); err != nil {
		return nil, err
	}
	if err := s.record(ctx, row.GetId(), attachmentChanged(a, false)); err != nil {
		return nil, err
	}
	return &heddlev1.AddAttachmentResponse{Attachment: a, Created: true}, nil
}

func (s *Server) newAttachment(typ, key, payload string) (*heddlev1.Attachment, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "make an attachment id: %w", err)
	}
	return &heddlev1.Attachment{Id: id.String(), Type: typ, Key: key, Payload: payload, CreatedAtMs: s.cfg.Clock().UnixMilli()}, nil
}

func (s *organizeService) ListAttachments(ctx context.Context, r *heddlev1.ListAttachmentsRequest) (*heddlev1.ListAttachmentsResponse, error) {
	row, err := s.owner(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	if err := checkIDToken(r.GetPageToken()); err != nil {
		return nil, err
	}
	size := store.PageSize(r.GetPageSize())
	rows, err := s.store.Attachments(ctx, row.GetId(), r.GetPageToken(), size)
	if err != nil {
		return nil, err
	}
	resp := &heddlev1.ListAttachmentsResponse{Attachments: rows}
	if len(rows) > 0 {
		more, err := s.store.Attachments(ctx, row.GetId(), rows[len(rows)-1].GetId(), 1)
		if err != nil {
			return nil, err
		}
		if len(more) > 0 {
			resp.NextPageToken = rows[len(rows)-1].GetId()
		}
	}
	return resp, nil
}

// checkIDToken checks a page token that is the id of the row before the page.
func checkIDToken(token string) error {
	if token == "" {
		return nil
	}
	if _, err := uuid.Parse(token); err != nil || len(token) != len(uuid.Nil.String()) {
		return errdefs.New(errdefs.InvalidCursor, "invalid pagination cursor")
	}
	return nil
}

func (s *organizeService) RemoveAttachment(ctx context.Context, r *heddlev1.RemoveAttachmentRequest) (*heddlev1.RemoveAttachmentResponse, error) {
	if err := checkAttachment(r.GetType(), r.GetKey()); err != nil {
		return nil, err
	}
	s.organizing.Lock()
	defer s.organizing.Unlock()
	row, err := s.owner(ctx, r.GetThreadId())
	if err != nil {
		return nil, err
	}
	a, err := s.store.Attachment(ctx, row.GetId(), thread.AttachmentKey{Type: r.GetType(), Key: r.GetKey()})
	if err != nil || a == nil {
		return &heddlev1.RemoveAttachmentResponse{}, err
	}
	// What is gone needs no payload in the log.
	left := &heddlev1.Attachment{Id: a.GetId(), Type: a.GetType(), Key: a.GetKey(), CreatedAtMs: a.GetCreatedAtMs()}
	if err := s.record(ctx, row.GetId(), attachmentChanged(left, true)); err != nil {
		return nil, err
	}
	return &heddlev1.RemoveAttachmentResponse{Attachment: left}, nil
}

func (s *organizeService) ListAttachmentOwners(ctx context.Context, r *heddlev1.ListAttachmentOwnersRequest) (*heddlev1.ListAttachmentOwnersResponse, error) {
	if err := checkAttachment(r.GetType(), r.GetKey()); err != nil {
		return nil, err
	}
	if err := checkIDToken(r.GetPageToken()); err != nil {
		return nil, err
	}
	size := store.PageSize(r.GetPageSize())
	rows, err := s.store.AttachmentOwners(ctx, store.AttachmentOwners{
		Principal: session.Local, AttachmentKey: thread.AttachmentKey{Type: r.GetType(), Key: r.GetKey()}, Archived: r.Archived, After: r.GetPageToken(), Limit: size + 1,
	})
	if err != nil {
		return nil, err
	}
	resp := &heddlev1.ListAttachmentOwnersResponse{}
	for i, o := range rows {
		if i == size {
			resp.NextPageToken = rows[size-1].ThreadID
			break
		}
		resp.Owners = append(resp.Owners, &heddlev1.AttachmentOwner{ThreadId: o.ThreadID, Archived: o.Archived})
	}
	return resp, nil
}

// copyAttachments gives a fork attachments like those of its source.
func (s *Server) copyAttachments(ctx context.Context, source *heddlev1.Thread, fork string) error {
	if source.GetAttachmentCount() == 0 {
		return nil
	}
	after, size := "", 0
	var events []*heddlev1.Event
	flush := func() error {
		if len(events) == 0 {
			return nil
		}
		err := s.cfg.Agent.Record(ctx, fork, events...)
		events, size = nil, 0
		return err
	}
	for {
		rows, err := s.store.Attachments(ctx, source.GetId(), after, store.MaxPage)
		if err != nil {
			return err
		}
		for _, a := range rows {
			c, err := s.newAttachment(a.GetType(), a.GetKey(), a.GetPayload())
			if err != nil {
				return err
			}
			events, size, after = append(events, attachmentChanged(c, false)), size+len(c.GetPayload()), a.GetId()
			if size > copyBytes {
				if err := flush(); err != nil {
					return err
				}
			}
		}
		if len(rows) == 0 {
			return flush()
		}
	}
}

func (s *organizeService) SetMemoryMode(ctx context.Context, r *heddlev1.SetMemoryModeRequest) (*heddlev1.SetMemoryModeResponse, error) {
	if m := r.GetMode(); m != "enabled" && m != "disabled" {
		return nil, errdefs.New(errdefs.InvalidArgument, "unknown memory mode %q; use enabled or disabled", m)
	}
	row, err := s.thread(ctx, r.GetThreadId())
	switch {
	case err != nil:
		return nil, err
	case row.GetEphemeral():
		return nil, noMetadata(row.GetId())
	case row.GetMemoryMode() == r.GetMode():
		return &heddlev1.SetMemoryModeResponse{}, nil
	}
	ev := &heddlev1.Event{Payload: &heddlev1.Event_MemoryModeChanged{MemoryModeChanged: &heddlev1.MemoryModeChanged{Mode: r.GetMode()}}}
	return &heddlev1.SetMemoryModeResponse{}, s.record(ctx, row.GetId(), ev)
}
