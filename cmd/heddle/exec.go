package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/heddle-dev/heddle/cmd/heddle/internal/execmode"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const execHelp = `Run one turn without asking anything back.

The final answer alone goes to stdout, everything else to stderr. With --json
every line of stdout is one event. Nobody is asked for approvals: an action that
would need one is refused. Commands run in the sandbox that --sandbox or the
config names; processes still running at the end are ended.

Exit codes:
    0  the turn completed
    1  the turn failed, was refused, or could not start
    2  bad usage: flags, prompt, config, input files
    3  the sandbox asked for cannot be enforced on this machine
  130  interrupted`

// notTrusted is the reference's text, which callers look for.
const notTrusted = "Not inside a trusted directory and --skip-git-repo-check was not specified."

// execFlags are the flags of exec and its subcommands.
type execFlags struct {
	session      sessionFlags
	sandbox      string
	cd           string
	addDirs      []string
	model        string
	images       []string
	schema       string
	lastMessage  string
	color        string
	threadSource string
	json         bool
	legacyJSON   bool
	ephemeral    bool
	skipGit      bool
	fullAuto     bool
	bypass       bool
	inProcess    bool
	connect      string
	tls          tlsFlags
	approveForMe bool
	trust        bool
	oss          bool
	// localProviderID is of use with oss only, as in the reference.
	localProviderID string
	refused         refusedFlags
	// review is set where a reviewer is asked instead of the prompt.
	review *heddlev1.StartReviewRequest
}

func newExecCommand() *cobra.Command {
	f := &execFlags{}
	cmd := &cobra.Command{
		Use:     "exec [PROMPT]",
		Aliases: []string{"e"},
		Short:   "Run one turn and print its final answer",
		Long:    execHelp,
		Version: buildVersion(),
		Example: `  heddle exec -s workspace-write "make the tests pass"
  git diff | heddle exec -s read-only "review this change"
  heddle exec resume --last "and now the docs"`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runExec(cmd, f, nil, first(args))
		},
	}
	f.add(cmd.PersistentFlags())
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		execmode.Drain(os.Stdin)
		return usageError(fmt.Errorf("%w; see %s --help", err, cmd.CommandPath()))
	})
	cmd.Flags().BoolP("version", "V", false, "print the version")
	cmd.AddCommand(newExecResumeCommand(f), newExecForkCommand(f), newExecReviewCommand(f))
	return cmd
}

func newExecForkCommand(f *execFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "fork THREAD_ID [PROMPT]",
		Short: "Copy an earlier thread, and run a turn on the copy if there is a prompt",
		Args:  usageArgs(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			fork := &execmode.Resume{ID: args[0], Fork: true, ForkOnly: len(args) == 1}
			if fork.ForkOnly && (f.ephemeral || f.schema != "" || f.lastMessage != "" || len(f.images) > 0) {
				execmode.Drain(os.Stdin)
				return usageError(errors.New("--ephemeral, --image, --output-schema and --output-last-message need a prompt for the copy; - reads it from stdin"))
			}
			return runExec(cmd, f, fork, first(args[1:]))
		},
	}
}

func newExecResumeCommand(f *execFlags) *cobra.Command {
	var last, all bool
	cmd := &cobra.Command{
		Use:   "resume [THREAD_ID] [PROMPT]",
		Short: "Run a turn on an earlier thread",
		Args:  usageArgs(cobra.MaximumNArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			resume := &execmode.Resume{}
			if !last {
				if len(args) == 0 {
					execmode.Drain(os.Stdin)
					return usageError(errors.New("resume needs a thread id or --last"))
				}
				resume.ID, args = args[0], args[1:]
			} else if len(args) > 1 {
				execmode.Drain(os.Stdin)
				return usageError(errors.New("resume --last takes a prompt only"))
			}
			if all {
				resume.Cwd = "*"
			}
			return runExec(cmd, f, resume, first(args))
		},
	}
	cmd.Flags().BoolVar(&last, "last", false, "the thread that was used last in this folder")
	cmd.Flags().BoolVar(&all, "all", false, "with --last: in any folder")
	return cmd
}

func (f *execFlags) add(fs *pflag.FlagSet) {
	f.session.add(fs)
	fs.BoolVar(&f.session.ignoreUserConfig, "ignore-user-config", false, "do not read the home's config.toml")
	fs.BoolVar(&f.session.ignoreRules, "ignore-rules", false, "do not read command rules")
	fs.StringVarP(&f.sandbox, "sandbox", "s", "", "sandbox `level`: read-only, workspace-write or danger-full-access")
	fs.StringVarP(&f.cd, "cd", "C", "", "work in this `folder`")
	fs.StringArrayVar(&f.addDirs, "add-dir", nil, "another `folder` that may be written")
	fs.StringVarP(&f.model, "model", "m", "", "`name` of the model to use")
	fs.StringSliceVarP(&f.images, "image", "i", nil, "image `file` to send with the prompt")
	fs.StringVar(&f.schema, "output-schema", "", "JSON schema `file` that the final answer must follow")
	fs.StringVarP(&f.lastMessage, "output-last-message", "o", "", "write the final answer to this `file` too")
	fs.StringVar(&f.color, "color", "auto", "`when` to color stderr: always, never or auto")
	fs.StringVar(&f.threadSource, "thread-source", "", "`kind` of source recorded for a new thread")
	fs.BoolVar(&f.json, "json", false, "print events to stdout, one JSON object per line")
	fs.BoolVar(&f.legacyJSON, "experimental-json", false, "same as --json")
	fs.BoolVar(&f.ephemeral, "ephemeral", false, "leave nothing in the home's store")
	fs.BoolVar(&f.skipGit, "skip-git-repo-check", false, "allow a folder outside of git")
	fs.BoolVar(&f.fullAuto, "full-auto", false, "same as --sandbox workspace-write")
	fs.BoolVar(&f.bypass, "dangerously-bypass-approvals-and-sandbox", false, "no sandbox at all; only for machines that are contained from outside")
	fs.BoolVar(&f.approveForMe, "approve-for-me", false, "have a reviewer model decide on approvals, with the sandbox level workspace-write")
	fs.BoolVar(&f.trust, "trust", false, "save in the home's config that this project is trusted, now and later; one that is marked untrusted stays so")
	fs.BoolVar(&f.oss, "oss", false, "use a model server of this machine")
	fs.StringVar(&f.localProviderID, "local-provider", "", "with --oss: `provider` to use, ollama or lmstudio (default: oss_provider of the config)")
	f.refused.add(fs)
	fs.BoolVar(&f.inProcess, "in-process", false, "run the control plane inside this process (the home must not be in use)")
	fs.StringVar(&f.connect, "connect", "", "run on the control plane at this `address`, HOST:PORT or unix:///PATH, instead of this home's; --cd is a folder of its executors")
	f.tls.add(fs)
	for _, name := range []string{"experimental-json", "full-auto"} {
		_ = fs.MarkHidden(name)
	}
}

func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error { return usageError(check(cmd, args)) }
}

func runExec(cmd *cobra.Command, f *execFlags, resume *execmode.Resume, prompt string) error {
	if err := hideProcess(); err != nil {
		return err
	}
	// stdin is read before anything can fail: a host that writes the prompt at
	// once must see the error and not a broken pipe.
	text, err := f.readPrompt(prompt, resume, cmd.ErrOrStderr())
	if err != nil {
		return usageError(err)
	}
	if err := f.refused.check(cmd.Flags()); err != nil {
		return usageError(err)
	}
	opts, err := f.options(text, resume)
	if err != nil {
		if _, ok := errors.AsType[*exitError](err); ok {
			return err
		}
		return usageError(err)
	}
	opts.Stdout, opts.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
	opts.Color = f.color == "always" || f.color == "auto" && os.Getenv("NO_COLOR") == "" && isTerminal(os.Stderr)

	interrupts := make(chan os.Signal, 2)
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(sig) { // nohup and background jobs mean it
			signal.Notify(interrupts, sig)
		}
	}
	defer signal.Stop(interrupts)
	asked := make(chan struct{}, 2)
	go func() {
		for range interrupts {
			asked <- struct{}{}
		}
	}()
	opts.Interrupt = asked

	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	place, err := f.place(ctx)
	if err != nil {
		return err
	}
	opts.Dial, opts.LogFile = place.dial, place.logFile
	out := execmode.Run(ctx, opts)
	place.end(cmd.ErrOrStderr())
	if out.Code != execmode.ExitCompleted {
		return &exitError{code: out.Code}
	}
	return nil
}

// place is where the turn runs.
func (f *execFlags) place(ctx context.Context) (*place, error) {
	if f.connect == "" {
		return openHome(ctx, f.inProcess)
	}
	if f.inProcess {
		return nil, usageError(errors.New("--connect and --in-process exclude each other"))
	}
	dial, err := remote(f.connect, &f.tls)
	if err != nil {
		return nil, usageError(err)
	}
	return &place{dial: dial, close: func() error { return nil }}, nil
}
