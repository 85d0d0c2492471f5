package errdefs

import (
	"context"

	"google.golang.org/grpc"
)

// UnaryServer is the interceptor that gives handlers' errors their wire form.
func UnaryServer(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	return resp, ToStatus(err)
}

// StreamServer is UnaryServer for streams.
func StreamServer(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	return ToStatus(handler(srv, ss))
}
