package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/heddle-dev/heddle/controlplane/dispatch"
	"github.com/heddle-dev/heddle/controlplane/session"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
)

// ExecutorService serves the sessions of executors.
type ExecutorService struct {
	executorv1.UnimplementedExecutorServiceServer
	dispatcher *dispatch.Dispatcher
}

// NewExecutorService returns the service over a dispatcher.
func NewExecutorService(d *dispatch.Dispatcher) *ExecutorService {
	return &ExecutorService{dispatcher: d}
}

// Connect is one session; it ends with the stream.
func (s *ExecutorService) Connect(stream grpc.BidiStreamingServer[executorv1.ConnectRequest, executorv1.ConnectResponse]) error {
	return s.dispatcher.Serve(stream.Context(), peerOf(stream.Context()), stream)
}

// peerOf describes the other end. On a unix socket it is a process of this
// machine (the listener refuses any that it cannot see), whose death can be told.
func peerOf(ctx context.Context) dispatch.Peer {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return dispatch.Peer{Address: "unknown"}
	}
	out := dispatch.Peer{Address: p.Addr.String()}
	if p.Addr.Network() == "unix" {
		out.Address = "local"
		out.Probe = func(pid int64) func() bool { return session.PeerOf(pid).Dead }
	}
	return out
}
