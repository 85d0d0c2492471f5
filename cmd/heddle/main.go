// Command heddle runs coding agents: a control plane that owns threads, leased
// executors that run their commands in sandboxes, and gateways for clients. Each
// role is a subcommand; app-server and exec start what they need by themselves.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// Exit codes that all subcommands share; exec and sandbox document more.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

// gcPercent lets the small heaps of the roles (a few MiB) grow to a few times
// their size between collections: at the default they were collected several
// times a second during a turn, a fifth of its CPU time.
const gcPercent = 400

// exitError ends the program with a code of its own. A nil err is silent: the
// command has said what there is to say.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError marks a mistake in how the program was called.
func usageError(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code: exitUsage, err: err}
}

func main() {
	sealDescriptors()
	debug.SetGCPercent(gcPercent)
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	if err == nil {
		return exitOK
	}
	exit, ok := errors.AsType[*exitError](err)
	if !ok {
		exit = &exitError{code: exitFailed, err: err}
	}
	if exit.err != nil {
		fmt.Fprintf(stderr, "heddle: %v\n", exit.err)
	}
	return exit.code
}

func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "heddle",
		Short: "Control plane, sandboxed executors and gateways for coding agents",
		Long: `heddle runs coding agents. The control plane owns threads and calls the model,
executors run commands and edits in sandboxes, gateways speak to clients.

On one machine nothing needs to be configured: exec and app-server start the
control plane of the home ($HEDDLE_HOME, else ~/.heddle) and share it.`,
		Version:       buildVersion(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError(fmt.Errorf("unknown command %q; see heddle help", args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("heddle {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError(fmt.Errorf("%w; see %s --help", err, cmd.CommandPath()))
	})
	root.AddCommand(
		newAppServerCommand(),
		newArtifactCommand(),
		newBackupCommand(), newLoginCommand(), newLogoutCommand(),
		newControlPlaneCommand(),
		newDemoCommand(),
		newDoctorCommand(),
		newExecCommand(),
		newExecutorCommand(),
		newGatewayCommand(),
		newMCPCommand(),
		newMCPServerCommand(),
		newSandboxCommand(),
		newServeCommand(),
	)
	return root
}

// sealDescriptors keeps what this process inherited from its own children:
// descriptors are passed on by name only.
func sealDescriptors() {
	_ = unix.CloseRange(3, ^uint(0)>>1, unix.CLOSE_RANGE_CLOEXEC)
}

// hideProcess keeps other processes of this user, those in sandboxes among
// them, from reading this one's memory, environment and descriptors.
func hideProcess() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make the process unreadable to others: %w", err)
	}
	return nil
}
