package server

import (
	"context"
	"errors"
	"reflect"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/heddle-dev/heddle/controlplane/config"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// maxEdits bounds one write.
	maxEdits = 1000
	// writeErrorKey is the fact of an error that says why a write was refused.
	writeErrorKey = "config_write_error_code"
)

// WriteConfig changes the home's config file; see the proto.
func (s *catalogService) WriteConfig(ctx context.Context, r *heddlev1.WriteConfigRequest) (*heddlev1.WriteConfigResponse, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	if len(r.GetEdits()) > maxEdits {
		return nil, errdefs.New(errdefs.InvalidArgument, "%d edits are more than the %d that one write may have", len(r.GetEdits()), maxEdits)
	}
	edits := make([]config.Edit, len(r.GetEdits()))
	for i, e := range r.GetEdits() {
		edits[i] = config.Edit{Key: e.GetKey(), Value: e.GetValue().AsInterface(), Upsert: e.GetUpsert()}
	}
	done, err := s.cfg.ConfigFile.Write(r.GetFile(), r.GetExpectedVersion(), edits)
	var refused *config.WriteError
	if errors.As(err, &refused) {
		return nil, errdefs.New(errdefs.InvalidConfig, "%s", refused.Message).With(writeErrorKey, refused.Code)
	}
	if err != nil {
		return nil, errdefs.New(errdefs.Internal, "%w", err)
	}
	return &heddlev1.WriteConfigResponse{Version: done.Version, File: done.Path, Overridden: s.overridden(caller, edits)}, nil
}

// overridden finds the first key whose value another layer decides, nil for none.
func (s *catalogService) overridden(caller string, edits []config.Edit) *heddlev1.ConfigOverridden {
	c, err := s.cfg.Settings.Load(caller, "", nil)
	if err != nil {
		return nil // what was written is not in force, which turns will say
	}
	for _, e := range edits {
		effective := c.Value(e.Key)
		if reflect.DeepEqual(effective, e.Value) || effective == nil {
			continue
		}
		i, known := c.Origins()[e.Key]
		if !known || c.Layers()[i].File == s.cfg.ConfigFile.Path() {
			continue
		}
		l := c.Layers()[i]
		value, err := structpb.NewValue(effective)
		if err != nil {
			continue // a date, which the client protocol has no form for
		}
		return &heddlev1.ConfigOverridden{Key: e.Key, Layer: &heddlev1.ConfigLayer{Kind: l.Kind, File: l.File, Version: l.Version}, Effective: value}
	}
	return nil
}
