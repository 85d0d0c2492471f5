package executor

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// maxMessage is the largest message taken: an action with its patch or
// environment.
const maxMessage = 16 << 20

// target is one address of a control plane.
type target struct {
	addr  string // as given
	dest  string // for grpc
	local bool
	creds credentials.TransportCredentials
}

func parseTarget(addr string, tls credentials.TransportCredentials) (target, error) {
	t := target{addr: addr, creds: tls}
	if path, ok := strings.CutPrefix(addr, "unix://"); ok {
		if !filepath.IsAbs(path) {
			return t, fmt.Errorf("address %q: the path of the socket is not absolute", addr)
		}
		t.dest, t.local, t.creds = addr, true, insecure.NewCredentials()
		return t, nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || port == "" {
		return t, fmt.Errorf("address %q is neither unix:///path nor host:port", addr)
	}
	t.dest = "dns:///" + addr
	if tls == nil {
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return t, fmt.Errorf("address %q: a control plane on another machine needs TLS (--tls-ca, --tls-cert, --tls-key)", addr)
		}
		t.creds = insecure.NewCredentials()
	}
	return t, nil
}

// dial makes a connection for one session. Proxies of the environment are for
// commands, not for this.
func (t target) dial(more []grpc.DialOption) (*grpc.ClientConn, error) {
	opts := append([]grpc.DialOption{
		grpc.WithTransportCredentials(t.creds), grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
	}, more...)
	return grpc.NewClient(t.dest, opts...)
}
