package appserver

import (
	"context"
	"encoding/json"
	"fmt"
	"path"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

// writeErrorKey is the member of an error's data that says why a config write
// was refused.
const writeErrorKey = "config_write_error_code"

func (s *Server) configValueWrite(ctx context.Context, r *call, p *protocol.ConfigValueWriteParams) (any, error) {
	return s.configBatchWrite(ctx, r, &protocol.ConfigBatchWriteParams{
		Edits:    []protocol.ConfigEdit{{KeyPath: p.KeyPath, Value: p.Value, MergeStrategy: p.MergeStrategy}},
		FilePath: p.FilePath, ExpectedVersion: p.ExpectedVersion,
	})
}

// configBatchWrite writes all edits or none. Threads read the file for each
// turn, so that there is nothing to reload.
func (s *Server) configBatchWrite(ctx context.Context, _ *call, p *protocol.ConfigBatchWriteParams) (any, error) {
	switch {
	case p.FilePath != nil && *p.FilePath == "":
		return nil, writeRefused("configLayerReadonly", "filePath is empty; leave it out to write the home's config file")
	case p.ExpectedVersion != nil && *p.ExpectedVersion == "":
		return nil, writeRefused("configVersionConflict", "expectedVersion is empty, which is no version of the file; read it again and retry")
	}
	req := &heddlev1.WriteConfigRequest{File: text(p.FilePath), ExpectedVersion: text(p.ExpectedVersion)}
	for _, e := range p.Edits {
		value, err := valueOf(e.Value)
		if err != nil {
			return nil, writeRefused("configValidationError", fmt.Sprintf("Invalid configuration: key %q: %v", e.KeyPath, err))
		}
		req.Edits = append(req.Edits, &heddlev1.ConfigEdit{Key: e.KeyPath, Value: value, Upsert: e.MergeStrategy == protocol.MergeUpsert})
	}
	return s.writeConfig(ctx, req)
}

// writeConfig changes the home's config file and tells how it went.
func (s *Server) writeConfig(ctx context.Context, req *heddlev1.WriteConfigRequest) (any, error) {
	var resp *heddlev1.WriteConfigResponse
	err := s.session.DoOnce(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		resp, err = heddlev1.NewCatalogServiceClient(cc).WriteConfig(ctx, req)
		return err
	})
	if e := errdefs.From(err); e != nil && e.Meta[writeErrorKey] != "" {
		return nil, writeRefused(e.Meta[writeErrorKey], e.Message)
	}
	if err != nil {
		return nil, err
	}
	out := list{"status": "ok", "version": resp.GetVersion(), "filePath": resp.GetFile(), "overriddenMetadata": nil}
	if o := resp.GetOverridden(); o != nil {
		out["status"] = "okOverridden"
		out["overriddenMetadata"] = list{
			"message":         fmt.Sprintf("%s is overridden by a higher layer (%s)", o.GetKey(), o.GetLayer().GetKind()),
			"overridingLayer": list{"name": layerName(o.GetLayer()), "version": o.GetLayer().GetVersion()},
			"effectiveValue":  o.GetEffective().AsInterface(),
		}
	}
	return out, nil
}

func writeRefused(code, message string) error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: message, Data: list{writeErrorKey: code}}
}

func valueOf(raw json.RawMessage) (*structpb.Value, error) {
	v := &structpb.Value{}
	if err := protojson.Unmarshal(raw, v); err != nil {
		return nil, err
	}
	return v, nil
}

// projectFolder is the folder of a project's config file.
func projectFolder(file string) string { return path.Dir(file) }
