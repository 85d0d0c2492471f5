package server

import (
	"context"
	"os"

	"google.golang.org/grpc"

	"github.com/heddle-dev/heddle/controlplane/session"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

type sessionService struct {
	heddlev1.UnimplementedSessionServiceServer
	*Server
}

func (s *sessionService) Attach(r *heddlev1.AttachRequest, stream grpc.ServerStreamingServer[heddlev1.AttachResponse]) error {
	a, err := s.cfg.Sessions.Attach(r)
	if err != nil {
		return err
	}
	defer s.cfg.Sessions.Ended(a)
	attached := &heddlev1.Attached{ServerVersion: s.cfg.Version, Home: s.cfg.Home, Pid: int64(os.Getpid())}
	// A config that is wrong does not keep the client out: it is told, and turns
	// say so again.
	if c, err := s.cfg.Settings.Load(r.GetSessionId(), r.GetCwd(), nil); err != nil {
		attached.ConfigWarnings = []*heddlev1.ConfigWarning{{Summary: err.Error()}}
	} else {
		attached.ConfigWarnings = c.Warnings()
	}
	if err := stream.Send(&heddlev1.AttachResponse{Message: &heddlev1.AttachResponse_Attached{Attached: attached}}); err != nil {
		return err
	}
	for draining := false; !draining; {
		select {
		case <-stream.Context().Done():
			return nil
		case <-a.Superseded():
			return nil
		case n := <-a.Notices():
			if err := stream.Send(&heddlev1.AttachResponse{Message: &heddlev1.AttachResponse_Notice{Notice: n}}); err != nil {
				return err
			}
		case <-a.Draining():
			draining = true
		}
	}
	if err := stream.Send(&heddlev1.AttachResponse{Message: &heddlev1.AttachResponse_Draining{
		Draining: &heddlev1.Draining{Reason: "the control plane stops"}}}); err != nil {
		return err
	}
	select {
	case <-stream.Context().Done():
	case <-a.Superseded():
	}
	return nil
}

// maxOverrides bounds the keys of one update.
const maxOverrides = 256

// UpdateSession changes the config of the calling session; see the proto.
func (s *sessionService) UpdateSession(ctx context.Context, r *heddlev1.UpdateSessionRequest) (*heddlev1.UpdateSessionResponse, error) {
	if n := len(r.GetConfig().GetFields()); n > maxOverrides {
		return nil, errdefs.New(errdefs.InvalidArgument, "%d keys are more than the %d that one update may have", n, maxOverrides)
	}
	if err := s.cfg.Sessions.Update(sessionID(ctx), r.GetConfig().GetFields()); err != nil {
		return nil, err
	}
	return &heddlev1.UpdateSessionResponse{}, nil
}

func (s *sessionService) Detach(_ context.Context, r *heddlev1.DetachRequest) (*heddlev1.DetachResponse, error) {
	s.cfg.Sessions.Detach(r.GetSessionId())
	return &heddlev1.DetachResponse{}, nil
}

// notePeer keeps the session's process where a restarted control plane finds it,
// so that turns of a client that died meanwhile end at once.
func (s *Server) notePeer(ctx context.Context, sess *session.Session) {
	if sess.Peer.PID == 0 {
		return
	}
	if err := s.cfg.Sessions.NotePeer(sess, func(key string, value []byte) error { return s.cfg.Log.SetMeta(ctx, key, value) }); err != nil {
		s.cfg.Logger.Warn("note the client's process", "session", sess.ID, "error", err)
	}
}
