package server

import (
	"context"
	"path"

	"github.com/heddle-dev/heddle/controlplane/hook"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// maxHookFolders bounds the folders of one listing.
const maxHookFolders = 64

// ListHooks returns the hooks of folders; see the proto. Those of a project that
// is not trusted are not read.
func (s *catalogService) ListHooks(ctx context.Context, r *heddlev1.ListHooksRequest) (*heddlev1.ListHooksResponse, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	cwds, err := s.folders(caller, r.GetCwds(), maxHookFolders)
	if err != nil {
		return nil, err
	}
	resp := &heddlev1.ListHooksResponse{}
	for _, cwd := range cwds {
		if !path.IsAbs(cwd) {
			return nil, errdefs.New(errdefs.InvalidArgument, "cwd %q is not an absolute path", cwd)
		}
		c, err := s.cfg.Settings.LoadFor(ctx, caller, cwd, nil)
		if err != nil {
			return nil, err
		}
		hooks, warnings := hook.Of(c)
		folder := &heddlev1.HooksOfFolder{Cwd: cwd, Warnings: warnings}
		for _, h := range hooks {
			folder.Hooks = append(folder.Hooks, &heddlev1.Hook{
				Key: h.Key, EventName: h.Event, Command: h.Command, Matcher: h.Matcher, TimeoutSec: int64(h.Timeout.Seconds()), StatusMessage: h.StatusMessage,
				SourcePath: h.SourcePath, Source: h.Source, DisplayOrder: h.Order, Enabled: h.Enabled, Hash: h.Hash, Trust: h.Trust,
			})
		}
		resp.Folders = append(resp.Folders, folder)
	}
	return resp, nil
}
