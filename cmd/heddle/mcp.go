package main

import (
	"context"
	"errors"
	"fmt"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/heddle-dev/heddle/gateway/upstream"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// mcpFlags are the flags of the commands about MCP servers.
type mcpFlags struct {
	session sessionFlags
	scopes  []string
	timeout time.Duration
}

func newMCPCommand() *cobra.Command {
	f := &mcpFlags{}
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "List the MCP servers of the config, log in at them and out",
		Long: `The tables mcp_servers.NAME of config.toml name servers whose tools the model is
offered. A server that is reached over HTTP may want a login: it is kept in the
home, readable for this user alone, and refreshed by itself.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	f.session.add(cmd.PersistentFlags())
	login := &cobra.Command{
		Use: "login NAME", Short: "Log in at a server with a browser", Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0], f.login) },
	}
	login.Flags().StringSliceVar(&f.scopes, "scopes", nil, "`scopes` to ask for (default: those of the config, or of the server)")
	login.Flags().DurationVar(&f.timeout, "timeout", 5*time.Minute, "`duration` of the wait for the browser")
	cmd.AddCommand(login, &cobra.Command{
		Use: "logout NAME", Short: "Forget the login at a server", Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0], f.logout) },
	}, &cobra.Command{
		Use: "list", Short: "Start the servers and list them", Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, "", f.list) },
	})
	return cmd
}

// run opens a session with the home's control plane for one of the commands.
func (f *mcpFlags) run(cmd *cobra.Command, name string, do func(context.Context, *cobra.Command, *upstream.Session, string) error) error {
	if err := hideProcess(); err != nil {
		return err
	}
	attach, err := f.session.here()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	place, err := openHome(ctx, false)
	if err != nil {
		return err
	}
	session := upstream.New(upstream.Config{Dial: place.dial, Attach: attach})
	defer func() {
		bye, cancel := context.WithTimeout(context.Background(), farewell)
		defer cancel()
		session.Close(bye)
	}()
	if err := do(ctx, cmd, session, name); err != nil {
		return words(err)
	}
	return nil
}

func (f *mcpFlags) login(ctx context.Context, cmd *cobra.Command, session *upstream.Session, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stream grpc.ServerStreamingClient[heddlev1.LoginMcpServerResponse]
	err := session.Stream(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		stream, err = heddlev1.NewMcpServiceClient(cc).LoginMcpServer(ctx, &heddlev1.LoginMcpServerRequest{
			Name: name, Scopes: f.scopes, TimeoutSecs: int64(f.timeout / time.Second),
		})
		return err
	})
	if err != nil {
		return err
	}
	for {
		step, err := stream.Recv()
		switch {
		case err != nil:
			return err
		case step.GetPage() != nil:
			fmt.Fprintf(cmd.OutOrStdout(), "Open this page in a browser of this machine:\n\n%s\n\n", step.GetPage().GetAuthorizationUrl())
		case step.GetEnd().GetError() != "":
			return errors.New(step.GetEnd().GetError())
		default:
			fmt.Fprintf(cmd.OutOrStdout(), "Logged in at %s.\n", name)
			return nil
		}
	}
}

func (f *mcpFlags) logout(ctx context.Context, cmd *cobra.Command, session *upstream.Session, name string) error {
	var resp *heddlev1.LogoutMcpServerResponse
	err := session.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		resp, err = heddlev1.NewMcpServiceClient(cc).LogoutMcpServer(ctx, &heddlev1.LogoutMcpServerRequest{Name: name})
		return err
	})
	if err != nil {
		return err
	}
	if resp.GetWasLoggedIn() {
		fmt.Fprintf(cmd.OutOrStdout(), "The login at %s is forgotten.\n", name)
	} else {
		fmt.Fprintf(cmd.OutOrStdout(), "There was no login at %s.\n", name)
	}
	return nil
}

func (f *mcpFlags) list(ctx context.Context, cmd *cobra.Command, session *upstream.Session, _ string) error {
	var resp *heddlev1.ListMcpServersResponse
	err := session.Do(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		resp, err = heddlev1.NewMcpServiceClient(cc).ListMcpServers(ctx, &heddlev1.ListMcpServersRequest{ToolsOnly: true})
		return err
	})
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if len(resp.GetServers()) == 0 {
		fmt.Fprintln(out, "The config names no MCP servers.")
	}
	for _, s := range resp.GetServers() {
		state := fmt.Sprintf("%d tools", len(s.GetTools()))
		if s.GetError() != "" {
			state = s.GetError()
		}
		switch s.GetAuthStatus() {
		case "oAuth":
			state = "logged in, " + state
		case "bearerToken":
			state = "token of the config, " + state
		}
		fmt.Fprintf(out, "%-20s %s\n", s.GetName(), strings.ReplaceAll(state, "\n", " "))
	}
	return nil
}

// words is an error of the control plane without what the transport adds.
func words(err error) error {
	if e := errdefs.From(err); e != nil {
		return e
	}
	return err
}
