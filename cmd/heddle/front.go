package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/heddle-dev/heddle/gateway"
	"github.com/heddle-dev/heddle/gateway/appserver"
	"github.com/heddle-dev/heddle/gateway/transport"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// farewell bounds how long a gateway that ends waits for the control plane to
// take note.
const farewell = 2 * time.Second

// frontFlags say how clients reach a gateway.
type frontFlags struct {
	listen       string
	stdio        bool
	auth         authFlags
	onDisconnect string
	logLevel     string
	limits       limitFlags
	// aloneIsUseful is true where the command has work without clients.
	aloneIsUseful bool
}

func (f *frontFlags) add(fs *pflag.FlagSet, listen string) {
	fs.StringVar(&f.listen, "listen", listen, "`address` for clients: stdio://, ws://IP:PORT, unix://PATH, unix:// (a socket in the home) or off")
	f.auth.add(fs)
	fs.StringVar(&f.onDisconnect, "on-disconnect", "", "`rule` for turns when this process is gone: interrupt or continue (default: on_disconnect of the config, else interrupt for stdio and continue for other clients)")
	fs.StringVar(&f.logLevel, "log-level", "warn", "log `level` on stderr: debug, info, warn or error")
	f.limits.add(fs)
}

// front is a checked set of frontFlags.
type front struct {
	address      transport.Address
	auth         transport.Authenticator
	onDisconnect heddlev1.OnDisconnect
	logger       *slog.Logger
	limits       appserver.Limits
	clients      appserver.ClientRange
}

func (f *frontFlags) check(home string, stderr io.Writer) (*front, error) {
	listen := f.listen
	if f.stdio {
		listen = "stdio://"
	}
	address, err := transport.ParseAddress(listen, controlSocket(home))
	if err != nil {
		return nil, err
	}
	if address.Network == "off" && !f.aloneIsUseful {
		return nil, errors.New("--listen off leaves nobody to serve: give an address, or run heddle serve --listen off for a control plane without clients of its own")
	}
	out := &front{address: address}
	if out.limits, out.clients, err = f.limits.check(); err != nil {
		return nil, err
	}
	if out.auth, err = f.auth.check(); err != nil {
		return nil, err
	}
	if !address.Loopback() && out.auth == nil {
		return nil, fmt.Errorf("listen address %s can be reached from other hosts: give --ws-auth capability-token or signed-bearer-token, or listen on 127.0.0.1", listen)
	}
	switch f.onDisconnect {
	case "interrupt":
		out.onDisconnect = heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT
	case "continue":
		out.onDisconnect = heddlev1.OnDisconnect_ON_DISCONNECT_CONTINUE
	case "":
		out.onDisconnect = heddlev1.OnDisconnect_ON_DISCONNECT_CONTINUE
		if address.Network == "stdio" {
			out.onDisconnect = heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT
		}
	default:
		return nil, fmt.Errorf("--on-disconnect %s: want interrupt or continue", f.onDisconnect)
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level %s: want debug, info, warn or error", f.logLevel)
	}
	out.logger = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	return out, nil
}

// serve runs the gateway until its input ends or a signal comes.
func (f *front) serve(ctx context.Context, g *gateway.Gateway, cmd *cobra.Command) error {
	defer func() {
		bye, cancel := context.WithTimeout(context.Background(), farewell)
		defer cancel()
		g.Close(bye)
	}()
	if f.address.Network == "off" {
		<-ctx.Done()
		return nil
	}
	if f.address.Network == "stdio" {
		return f.serveStdio(ctx, g)
	}
	addr, done, err := g.Listen(ctx, f.address)
	if err != nil {
		return err
	}
	if f.address.Network == "unix" {
		fmt.Fprintf(cmd.ErrOrStderr(), "heddle app-server listening on unix://%s\n", f.address.Target)
	} else {
		fmt.Fprintf(cmd.ErrOrStderr(), "heddle app-server listening on ws://%s\n", addr)
	}
	g.Start()
	if err := <-done; err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

func (f *front) serveStdio(ctx context.Context, g *gateway.Gateway) error {
	// A client that is gone must not kill the process before it has said so to
	// the control plane.
	signal.Ignore(syscall.SIGPIPE)
	done := make(chan error, 1)
	go func() { done <- g.ServeStdio(ctx, os.Stdin, os.Stdout) }()
	select {
	case err := <-done:
		if errors.Is(err, os.ErrClosed) || errors.Is(err, syscall.EPIPE) || ctx.Err() != nil {
			return nil
		}
		return err
	case <-ctx.Done():
		return nil
	}
}
