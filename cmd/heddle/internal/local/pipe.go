package local

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// pipe is a listener whose connections never leave the process.
type pipe struct{ *bufconn.Listener }

func newPipe() pipe { return pipe{bufconn.Listen(1 << 20)} }

func (p pipe) dial(context.Context) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///heddle",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return p.DialContext(ctx) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)))
}
