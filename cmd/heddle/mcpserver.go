package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/heddle-dev/heddle/cmd/heddle/internal/mcpserver"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

type mcpServerFlags struct {
	session   sessionFlags
	inProcess bool
	logLevel  string
}

func newMCPServerCommand() *cobra.Command {
	f := &mcpServerFlags{}
	cmd := &cobra.Command{
		Use:   "mcp-server",
		Short: "Serve heddle as a tool of other agents (Model Context Protocol, stdio)",
		Long: `Serve the Model Context Protocol on stdin and stdout, so that another agent can
give work to heddle. There are two tools:

  codex        start a thread: prompt, cwd, sandbox, approval-policy, model,
               profile, config, base-instructions, developer-instructions
  codex-reply  go on with it: threadId, prompt

The result holds the final answer and the threadId. Approvals are put to the
client as elicitations; one that has none gets the declared default, decline.
Cancelling a call interrupts its turn; so does closing stdin.

Settings come from the home ($HEDDLE_HOME, else ~/.heddle) and from -c. The
control plane of the home is started when none runs, and shared.`,
		Example: `  heddle mcp-server -c sandbox_mode=workspace-write
  npx @modelcontextprotocol/inspector --cli heddle mcp-server --method tools/list`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return runMCPServer(cmd, f) },
	}
	fs := cmd.Flags()
	f.session.add(fs)
	fs.BoolVar(&f.session.ignoreUserConfig, "ignore-user-config", false, "do not read the home's config.toml")
	fs.BoolVar(&f.inProcess, "in-process", false, "run the control plane inside this process (the home must not be in use)")
	fs.StringVar(&f.logLevel, "log-level", "warn", "log `level` on stderr: debug, info, warn or error")
	return cmd
}

func runMCPServer(cmd *cobra.Command, f *mcpServerFlags) error {
	if err := hideProcess(); err != nil {
		return err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return usageError(fmt.Errorf("--log-level %s: want debug, info, warn or error", f.logLevel))
	}
	attach, err := f.session.here()
	if err != nil {
		return err
	}
	attach.OnDisconnect = heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT
	// A client that is gone must not kill the process before its turns are
	// interrupted.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	place, err := openHome(ctx, f.inProcess)
	if err != nil {
		return err
	}
	defer place.end(cmd.ErrOrStderr())
	server := mcpserver.New(mcpserver.Config{
		Dial: place.dial, Attach: attach, Version: buildVersion(),
		Logger: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level})),
	})
	return server.Run(ctx, os.Stdin, os.Stdout)
}
