package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/heddle-dev/heddle/controlplane/config"
)

// controlSocket is where an app-server with --listen unix:// listens.
func controlSocket(home string) string {
	return filepath.Join(home, "app-server-control", "app-server-control.sock")
}

// notHere are the reference's subcommands of app-server that heddle does
// without.
var notHere = map[string]string{
	"daemon":               "heddle needs no daemon: its control plane starts by itself; for a server that stays, run heddle serve under the machine's service manager",
	"generate-json-schema": "heddle does not write the schema of the v2 protocol: it is the one of codex app-server generate-json-schema; docs/protocol.md lists what heddle serves",
	"generate-ts":          "heddle does not write types of the v2 protocol: they are those of codex app-server generate-ts; docs/protocol.md lists what heddle serves",
}

// refusedCommand says why there is no such command, whatever its flags are.
func refusedCommand(name, why string) *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true, DisableFlagParsing: true, Short: "Not here: says what to use instead",
		RunE: func(*cobra.Command, []string) error { return usageError(errors.New(why)) },
	}
}

func newProxyCommand() *cobra.Command {
	var sock string
	var session sessionFlags
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Pass bytes between stdin, stdout and a running app-server's socket",
		Long: `Connect to the socket of an app-server that listens on unix:// and pass every byte
on, both ways: what is spoken is WebSocket, as over the socket itself. It ends
when the server closes the connection.`,
		Example: `  heddle app-server --listen unix:// &
  ssh host heddle app-server proxy`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if sock == "" {
				home, err := config.ResolveHome(environ())
				if err != nil {
					return usageError(err)
				}
				sock = controlSocket(home.Dir)
			}
			return proxy(cmd, strings.TrimPrefix(sock, "unix://"))
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&sock, "sock", "", "`path` of the socket (default: where --listen unix:// puts it)")
	// A client passes the flags of app-server on; a server that runs has its own.
	session.add(fs)
	for _, name := range []string{"config", "enable", "disable", "profile", "dangerously-bypass-hook-trust", "strict-config"} {
		fs.Lookup(name).Usage = "accepted, of no effect: the server that runs has its own `settings`"
	}
	return cmd
}

// proxy ends with the server's side: what the client sent is passed on to its
// last byte, and the server may still answer it.
func proxy(cmd *cobra.Command, path string) error {
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	signal.Ignore(syscall.SIGPIPE)
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("no app-server answers; start one with heddle app-server --listen unix:// : %w", err)
	}
	conn := c.(*net.UnixConn)
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	go func() {
		_, _ = io.Copy(conn, cmd.InOrStdin())
		_ = conn.CloseWrite()
	}()
	_, err = io.Copy(cmd.OutOrStdout(), conn)
	if ctx.Err() != nil || errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
