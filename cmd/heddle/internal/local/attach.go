package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/heddle-dev/heddle/cmd/heddle/internal/peer"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Config says which control plane is wanted.
type Config struct {
	// Home is the absolute home folder; it is made when missing.
	Home string
	// Version of this program. A control plane of another version is replaced
	// when it is idle.
	Version string
	// Exe is the program to start. Default: this one.
	Exe string
	// StartTimeout bounds the start of a control plane. Default 30 s, since it
	// may have to recover a large store.
	StartTimeout time.Duration
}

// Client attaches to the control plane of one home.
type Client struct {
	cfg   Config
	paths paths
}

// NewClient prepares the home's folders. It starts nothing.
func NewClient(cfg Config) (*Client, error) {
	p, err := pathsOf(cfg.Home)
	if err != nil {
		return nil, err
	}
	if cfg.Exe == "" {
		cfg.Exe = executable()
	}
	if cfg.StartTimeout == 0 {
		cfg.StartTimeout = 30 * time.Second
	}
	return &Client{cfg: cfg, paths: p}, nil
}

// LogFile is where the home's control plane writes its log.
func (c *Client) LogFile() string { return c.paths.log }

// Socket is the path of the home's socket.
func (c *Client) Socket() string { return c.paths.socket }

// Dial returns a connection to a running control plane of this version, and
// starts or replaces it where that is needed. Each call makes a connection; the
// caller closes it. A connection that is lost later starts the control plane
// again by itself with the next call on it.
func (c *Client) Dial(ctx context.Context) (*grpc.ClientConn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.StartTimeout, errors.New("the control plane did not become ready in time; see "+c.paths.log))
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///heddle",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return c.connect(ctx) }),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: c.cfg.StartTimeout,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to the control plane: %w", err)
	}
	if err := c.settle(ctx, conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// settle waits until a control plane of the right version answers.
func (c *Client) settle(ctx context.Context, conn *grpc.ClientConn) error {
	catalog := heddlev1.NewCatalogServiceClient(conn)
	for {
		// A start that fails is told here with its own words; a call would
		// only say that the connection could not be made.
		probe, err := c.connect(ctx)
		if err != nil {
			return err
		}
		_ = probe.Close()
		status, err := catalog.GetStatus(ctx, &heddlev1.GetStatusRequest{}, grpc.WaitForReady(true))
		switch {
		case err != nil && ctx.Err() != nil:
			return fmt.Errorf("ask the control plane of %s for its status: %w", c.paths.home, context.Cause(ctx))
		case err != nil:
			// It ended between the connection and the answer.
		case status.GetVersion() == c.cfg.Version:
			return nil
		default:
			if err := c.replace(ctx, catalog, status); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lockPoll):
		}
	}
}

// replace asks a control plane of another version to stop.
func (c *Client) replace(ctx context.Context, catalog heddlev1.CatalogServiceClient, status *heddlev1.GetStatusResponse) error {
	resp, err := catalog.Shutdown(ctx, &heddlev1.ShutdownRequest{})
	if err != nil || resp.GetAccepted() {
		return nil // it is going, or gone; the caller looks again
	}
	return errdefs.New(errdefs.Busy,
		"the control plane of %s (pid %d) is version %s and busy (%s); this is version %s: let it finish, or stop it with `kill %d`",
		c.paths.home, status.GetPid(), status.GetVersion(), resp.GetReason(), c.cfg.Version, status.GetPid()).
		With("version", status.GetVersion())
}

// connect returns a connection to the home's socket, whose other end is a
// process of this user, and starts the control plane when nothing listens.
func (c *Client) connect(ctx context.Context) (net.Conn, error) {
	if conn, err := c.connectOnce(ctx); err == nil || !nothingListens(err) {
		return conn, err
	}
	lock, err := acquireLock(ctx, c.paths.startLock)
	if err != nil {
		return nil, fmt.Errorf("wait for another client to start the control plane: %w", err)
	}
	defer lock.release()
	if conn, err := c.connectOnce(ctx); err == nil || !nothingListens(err) {
		return conn, err
	}
	if err := c.spawn(ctx); err != nil {
		return nil, err
	}
	return c.connectOnce(ctx)
}

func (c *Client) connectOnce(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.paths.socket)
	if err != nil {
		return nil, err
	}
	if unixConn, ok := conn.(*net.UnixConn); ok {
		if _, err := peer.SameUser(unixConn); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("control socket %s: %w", c.paths.socket, err)
		}
	}
	return conn, nil
}
