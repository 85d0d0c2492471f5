package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/heddle-dev/heddle/cmd/heddle/internal/peer"
	"github.com/heddle-dev/heddle/controlplane/config"
	"github.com/heddle-dev/heddle/gateway"
)

type appServerFlags struct {
	session   sessionFlags
	front     frontFlags
	startup   startupFlags
	home      string
	inProcess bool
	source    string
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
	f.startup.add(fs)
	cmd.AddCommand(newProxyCommand())
	for name, why := range notHere {
		cmd.AddCommand(refusedCommand(name, why))
	}
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
	if err := f.startup.check(cmd.Flags()); err != nil {
		return usageError(err)
	}
	overrides, err := f.session.overrides()
	if err != nil {
		return usageError(err)
	}
	if f.startup.printConfig {
		return f.startup.print(cmd, &f.session, overrides)
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
	f.front.onDisconnect = cmp.Or(f.front.onDisconnect, f.session.onDisconnect(home, cwd, overrides))
	front, err := f.front.check(place.dir, cmd.ErrOrStderr())
	if err != nil {
		return usageError(err)
	}
	g, err := gateway.New(gateway.Config{
		Dial: place.dial, Home: place.dir, Version: buildVersion(), Env: environ(), Cwd: cwd, Overrides: plain(overrides),
		Profile: f.session.profile, IgnoreUserConfig: f.session.ignoreUserConfig, Source: f.source,
		OnDisconnect: front.onDisconnect, Logger: front.logger, Auth: front.auth, WrapListener: guardWith(front.logger),
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
