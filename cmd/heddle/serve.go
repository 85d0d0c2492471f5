package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/cmd/heddle/internal/local"
	"github.com/heddle-dev/heddle/gateway"
)

type serveFlags struct {
	control controlPlaneFlags
	session sessionFlags
	front   frontFlags
}

func newServeCommand() *cobra.Command {
	f := &serveFlags{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run all roles on this machine: control plane, executor, gateway",
		Long: `Run control plane, executor and gateway of a home on this machine until SIGTERM.

Clients of the v2 protocol connect to --listen. Turns go on when their client is
gone; --listen off leaves them out. With --control-listen, executors and gateways of other machines can join;
between machines that takes mutual TLS.`,
		Example: `  heddle serve
  heddle serve --listen ws://127.0.0.1:4500 --control-listen 127.0.0.1:7443`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return runServe(cmd, f) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.control.home, "home", "", "home `folder` (default $HEDDLE_HOME, else ~/.heddle)")
	f.session.add(fs)
	f.front.add(fs, "ws://127.0.0.1:4500")
	f.front.aloneIsUseful = true
	fs.StringArrayVar(&f.control.listen, "control-listen", nil, "`address` for executors and gateways: unix:///PATH or HOST:PORT")
	f.control.tls.add(fs)
	f.control.addFleet(fs)
	return cmd
}

func runServe(cmd *cobra.Command, f *serveFlags) (err error) {
	if err := hideProcess(); err != nil {
		return err
	}
	unix.Umask(0o077)
	home, err := f.control.resolveHome()
	if err != nil {
		return usageError(err)
	}
	overrides, err := f.session.overrides()
	if err != nil {
		return usageError(err)
	}
	cwd, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working folder: %w", err)
	}
	if err := f.session.checkStrict(home, cwd, overrides); err != nil {
		return usageError(err)
	}
	f.front.onDisconnect = cmp.Or(f.front.onDisconnect, f.session.onDisconnect(home, cwd, overrides))
	front, err := f.front.check(home.Dir, cmd.ErrOrStderr())
	if err != nil {
		return usageError(err)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	f.control.executor = true
	cfg, err := f.control.server(home)
	if err != nil {
		return err
	}
	// The gateway says goodbye before the control plane stops.
	dial, stopControl, err := local.Embedded(context.WithoutCancel(ctx), cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopControl()) }()
	g, err := gateway.New(gateway.Config{
		Dial: dial, Home: home.Dir, Version: buildVersion(), Env: environ(), Cwd: cwd, Overrides: plain(overrides),
		Profile: f.session.profile, OnDisconnect: front.onDisconnect, Logger: front.logger, Auth: front.auth,
		WrapListener: guardWith(front.logger),
		Limits:       front.limits, ClientVersions: front.clients,
	})
	if err != nil {
		return err
	}
	return front.serve(ctx, g, cmd)
}
