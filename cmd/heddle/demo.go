package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/heddle-dev/heddle/cmd/heddle/internal/demo"
)

func newDemoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Run a scripted turn in a sandbox and check it from outside",
		Long: `Run the main job with a scripted model: a failing test is run in the sandbox,
the program is fixed, and two attempts to leave the sandbox are refused. The
demo checks all of it from outside and exits 1 unless it saw everything.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			exe, err := os.Executable()
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			err = demo.Run(ctx, demo.Config{Exe: exe, Version: buildVersion(), Out: cmd.OutOrStdout()})
			if errors.Is(err, demo.ErrNotShown) {
				return &exitError{code: exitFailed, err: err}
			}
			return err
		},
	}
}
