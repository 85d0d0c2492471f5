package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/heddle-dev/heddle/cmd/heddle/internal/peer"
	"github.com/heddle-dev/heddle/controlplane/config"
	"github.com/heddle-dev/heddle/gateway"
	"github.com/heddle-dev/heddle/gateway/appserver"
	"github.com/heddle-dev/heddle/gateway/auth"
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
	wsAuth       string
	tokenFile    string
	tokenSHA256  string
	onDisconnect string
	logLevel     string
	limits       limitFlags
}

func (f *frontFlags) add(fs *pflag.FlagSet, listen string) {
	fs.StringVar(&f.listen, "listen", listen, "`address` for clients: stdio://, ws://IP:PORT or unix://PATH")
	fs.StringVar(&f.wsAuth, "ws-auth", "", "`mode` of authentication for ws clients: capability-token")
	fs.StringVar(&f.tokenFile, "ws-token-file", "", "`file` that holds the capability token")
	fs.StringVar(&f.tokenSHA256, "ws-token-sha256", "", "SHA-256 of the capability token, in `hex`")
	fs.StringVar(&f.onDisconnect, "on-disconnect", "", "what becomes of turns when this process is gone: interrupt or continue (default: interrupt for stdio, else continue)")
	fs.StringVar(&f.logLevel, "log-level", "warn", "log `level` on stderr: debug, info, warn or error")
	f.limits.add(fs)
}

// front is a checked set of frontFlags.
type front struct {
	address      transport.Address
	token        auth.Token
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
	address, err := transport.ParseAddress(listen, filepath.Join(home, "app-server-control", "app-server-control.sock"))
	if err != nil {
		return nil, err
	}
	out := &front{address: address}
	if out.limits, out.clients, err = f.limits.check(); err != nil {
		return nil, err
	}
	if out.token, err = f.token(); err != nil {
		return nil, err
	}
	if !address.Loopback() && !out.token.Set() {
		return nil, fmt.Errorf("listen address %s can be reached from other hosts: give --ws-auth capability-token with --ws-token-file, or listen on 127.0.0.1", listen)
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

func (f *frontFlags) token() (auth.Token, error) {
	switch {
	case f.wsAuth == "" && f.tokenFile == "" && f.tokenSHA256 == "":
		return auth.Token{}, nil
	case f.wsAuth != "capability-token":
		return auth.Token{}, fmt.Errorf("--ws-auth %q: the only mode is capability-token", f.wsAuth)
	case f.tokenFile != "" && f.tokenSHA256 != "":
		return auth.Token{}, errors.New("give --ws-token-file or --ws-token-sha256, not both")
	case f.tokenFile != "":
		return auth.TokenFromFile(f.tokenFile)
	case f.tokenSHA256 != "":
		return auth.TokenFromSHA256(f.tokenSHA256)
	}
	return auth.Token{}, errors.New("--ws-auth capability-token needs --ws-token-file or --ws-token-sha256")
}

type appServerFlags struct {
	session   sessionFlags
	front     frontFlags
	home      string
	inProcess bool
	source    string
	// Flags of the reference that have nothing to switch here.
	ignored []string
}

func newAppServerCommand() *cobra.Command {
	f := &appServerFlags{}
	cmd := &cobra.Command{
		Use:   "app-server",
		Short: "Serve a client of the v2 protocol: terminal UI, IDE, SDK",
		Long: `Serve the v2 JSON-RPC protocol. Over stdio it serves one client and ends when
its input does; over ws:// and unix:// (a WebSocket over the socket, for this
user alone) it serves any number.

It starts the control plane of the home when none runs, and shares it.`,
		Example: `  heddle app-server
  heddle app-server --listen unix:///run/user/1000/heddle.sock
  heddle app-server --listen ws://127.0.0.1:4500 --ws-auth capability-token --ws-token-file token`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return runAppServer(cmd, f) },
	}
	fs := cmd.Flags()
	f.session.add(fs)
	f.front.add(fs, "stdio://")
	fs.BoolVar(&f.front.stdio, "stdio", false, "same as --listen stdio://")
	fs.BoolVar(&f.session.ignoreUserConfig, "ignore-user-config", false, "do not read the home's config.toml")
	fs.StringVar(&f.home, "home", "", "home `folder` (default $HEDDLE_HOME, else ~/.heddle)")
	fs.BoolVar(&f.inProcess, "in-process", false, "run the control plane inside this process (the home must not be in use)")
	fs.StringVar(&f.source, "session-source", "vscode", "`kind` of client that threads are recorded under: cli, vscode, exec or appServer")
	fs.StringArrayVar(&f.ignored, "analytics-default-enabled", nil, "accepted, there is no analytics")
	fs.Lookup("analytics-default-enabled").NoOptDefVal = "true"
	_ = fs.MarkHidden("analytics-default-enabled")
	return cmd
}

func runAppServer(cmd *cobra.Command, f *appServerFlags) error {
	if err := hideProcess(); err != nil {
		return err
	}
	if f.home != "" {
		dir, err := filepath.Abs(f.home)
		if err != nil {
			return usageError(err)
		}
		if err := os.Setenv("HEDDLE_HOME", dir); err != nil {
			return err
		}
	}
	overrides, err := f.session.overrides()
	if err != nil {
		return usageError(err)
	}
	cwd, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working folder: %w", err)
	}
	home, err := config.ResolveHome(environ())
	if err != nil {
		return usageError(err)
	}
	if err := f.session.checkStrict(home, cwd, overrides); err != nil {
		return usageError(err)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	place, err := openHome(ctx, f.inProcess)
	if err != nil {
		return err
	}
	defer place.end(cmd.ErrOrStderr())
	front, err := f.front.check(place.dir, cmd.ErrOrStderr())
	if err != nil {
		return usageError(err)
	}
	g, err := gateway.New(gateway.Config{
		Dial: place.dial, Home: place.dir, Version: buildVersion(), Env: environ(), Cwd: cwd, Overrides: plain(overrides),
		Profile: f.session.profile, IgnoreUserConfig: f.session.ignoreUserConfig, Source: f.source,
		OnDisconnect: front.onDisconnect, Logger: front.logger, Token: front.token, WrapListener: guardWith(front.logger),
		Limits: front.limits, ClientVersions: front.clients,
	})
	if err != nil {
		return err
	}
	return front.serve(ctx, g, cmd)
}

func guardWith(log *slog.Logger) func(net.Listener) net.Listener {
	return func(l net.Listener) net.Listener { return peer.Guard(l, log) }
}

// serve runs the gateway until its input ends or a signal comes.
func (f *front) serve(ctx context.Context, g *gateway.Gateway, cmd *cobra.Command) error {
	defer func() {
		bye, cancel := context.WithTimeout(context.Background(), farewell)
		defer cancel()
		g.Close(bye)
	}()
	if f.address.Network == "stdio" {
		return f.serveStdio(ctx, g)
	}
	addr, done, err := g.Listen(ctx, f.address)
	if err != nil {
		return err
	}
	scheme := "ws"
	if f.address.Network == "unix" {
		fmt.Fprintf(cmd.ErrOrStderr(), "heddle app-server listening on unix://%s\n", f.address.Target)
	} else {
		fmt.Fprintf(cmd.ErrOrStderr(), "heddle app-server listening on %s://%s\n", scheme, addr)
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
