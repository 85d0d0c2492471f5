package server

import (
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// backupChunk bounds one message of a backup.
const backupChunk = 256 << 10

// Backup implements heddlev1.CatalogServiceServer. A copy holds what all
// principals have said, so it never leaves over a network.
func (s *catalogService) Backup(_ *heddlev1.BackupRequest, stream grpc.ServerStreamingServer[heddlev1.BackupResponse]) error {
	if p, ok := peer.FromContext(stream.Context()); !ok || p.Addr == nil || p.Addr.Network() == "tcp" {
		return errdefs.New(errdefs.PermissionDenied, "a backup is given to the home's own machine only: run heddle backup there")
	}
	if s.cfg.Backup == nil {
		return errdefs.New(errdefs.NotSupported, "this control plane keeps its store in memory")
	}
	n, err := s.cfg.Backup(stream.Context(), chunks{stream})
	if err != nil {
		return err
	}
	s.cfg.Logger.Info("store backed up", "bytes", n)
	return nil
}

// chunks sends what is written.
type chunks struct {
	stream grpc.ServerStreamingServer[heddlev1.BackupResponse]
}

func (c chunks) Write(p []byte) (int, error) {
	sent := 0
	for sent < len(p) {
		part := p[sent:min(len(p), sent+backupChunk)]
		if err := c.stream.Send(&heddlev1.BackupResponse{Data: part}); err != nil {
			return sent, err
		}
		sent += len(part)
	}
	return sent, nil
}
