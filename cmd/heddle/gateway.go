package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/heddle-dev/heddle/controlplane/config"
	"github.com/heddle-dev/heddle/gateway"
)

type gatewayFlags struct {
	session sessionFlags
	front   frontFlags
	tls     tlsFlags
	connect string
}

func newGatewayCommand() *cobra.Command {
	f := &gatewayFlags{}
	cmd := &cobra.Command{
		Use:   "gateway",
		Short: "Serve clients of the v2 protocol for a control plane elsewhere",
		Long: `Serve the v2 JSON-RPC protocol for a control plane that runs on its own, on this
machine or another. Between machines that takes mutual TLS. When the control
plane is lost, clients see a pause until it is back. The same address serves the HTTP
API under /v1/.`,
		Example: `  heddle gateway --connect 127.0.0.1:7443 --listen ws://127.0.0.1:4500
  heddle gateway --connect cp.example:7443 --tls-cert g.pem --tls-key g.key --tls-ca ca.pem`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return runGateway(cmd, f) },
	}
	fs := cmd.Flags()
	f.session.add(fs)
	f.front.add(fs, "ws://127.0.0.1:4500")
	f.tls.add(fs)
	fs.StringVar(&f.connect, "connect", "", "`address` of the control plane: HOST:PORT or unix:///PATH")
	return cmd
}

func runGateway(cmd *cobra.Command, f *gatewayFlags) error {
	if err := hideProcess(); err != nil {
		return err
	}
	if f.connect == "" {
		return usageError(errors.New("gateway needs --connect with the address of a control plane"))
	}
	dial, err := remote(f.connect, &f.tls)
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
	// The home's config is the control plane's to check.
	if err := f.session.checkStrict(config.Home{}, cwd, overrides); err != nil {
		return usageError(err)
	}
	home, err := config.ResolveHome(environ())
	if err != nil {
		return usageError(err)
	}
	front, err := f.front.check(filepath.Clean(home.Dir), cmd.ErrOrStderr())
	if err != nil {
		return usageError(err)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	g, err := gateway.New(gateway.Config{
		Dial: dial, Home: home.Dir, Version: buildVersion(), Env: environ(), Cwd: cwd, Overrides: plain(overrides),
		Profile: f.session.profile, OnDisconnect: front.onDisconnect, Remote: !strings.HasPrefix(f.connect, "unix://"), Logger: front.logger,
		Auth: front.auth, REST: true, WrapListener: guardWith(front.logger),
		Limits: front.limits, ClientVersions: front.clients,
	})
	if err != nil {
		return err
	}
	return front.serve(ctx, g, cmd)
}
