package upstream

import (
	"context"

	"google.golang.org/grpc"
)

// maxMessage bounds one message of the control plane. A page of items is the
// largest.
const maxMessage = 64 << 20

// roomy is a connection whose calls take messages up to maxMessage.
type roomy struct{ *grpc.ClientConn }

func (r roomy) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return r.ClientConn.Invoke(ctx, method, args, reply, append(opts, grpc.MaxCallRecvMsgSize(maxMessage))...)
}

func (r roomy) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return r.ClientConn.NewStream(ctx, desc, method, append(opts, grpc.MaxCallRecvMsgSize(maxMessage))...)
}

// Conn returns a connection that follows the session: each call goes over the
// connection of the moment, after waiting for one. Calls are not repeated.
func (s *Session) Conn() grpc.ClientConnInterface { return follower{s} }

type follower struct{ s *Session }

func (f follower) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return f.s.DoOnce(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) error {
		return cc.Invoke(ctx, method, args, reply, opts...)
	})
}

func (f follower) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (stream grpc.ClientStream, err error) {
	err = f.s.Stream(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		stream, err = cc.NewStream(ctx, desc, method, opts...)
		return err
	})
	return stream, err
}
