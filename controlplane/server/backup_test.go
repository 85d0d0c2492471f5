package server

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// backupStream collects what is sent.
type backupStream struct {
	grpc.ServerStream
	ctx  context.Context
	data []byte
	most int
}

func (s *backupStream) Context() context.Context { return s.ctx }

func (s *backupStream) Send(m *heddlev1.BackupResponse) error {
	s.most = max(s.most, len(m.GetData()))
	s.data = append(s.data, m.GetData()...)
	return nil
}

func from(addr net.Addr) *backupStream {
	return &backupStream{ctx: peer.NewContext(context.Background(), &peer.Peer{Addr: addr})}
}

func TestBackup(t *testing.T) {
	want := bytes.Repeat([]byte("page"), 200_000)
	s := &catalogService{Server: &Server{cfg: Config{Logger: slog.New(slog.DiscardHandler), Backup: func(_ context.Context, w io.Writer) (int64, error) {
		n, err := w.Write(want)
		return int64(n), err
	}}}}
	here := from(&net.UnixAddr{Name: "@", Net: "unix"})
	if err := s.Backup(&heddlev1.BackupRequest{}, here); err != nil || !bytes.Equal(here.data, want) || here.most > backupChunk {
		t.Errorf("%d bytes in parts of up to %d, %v", len(here.data), here.most, err)
	}
	// I10: what all principals said does not leave over a network.
	away := from(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9})
	if err := s.Backup(&heddlev1.BackupRequest{}, away); !errdefs.Is(err, errdefs.PermissionDenied) || len(away.data) > 0 {
		t.Errorf("over TCP: %d bytes, %v", len(away.data), err)
	}
	s.cfg.Backup = nil
	if err := s.Backup(&heddlev1.BackupRequest{}, from(&net.UnixAddr{Net: "unix"})); !errdefs.Is(err, errdefs.NotSupported) {
		t.Errorf("a store in memory: %v", err)
	}
}
