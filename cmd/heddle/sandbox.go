package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/controlplane/config"
	"github.com/heddle-dev/heddle/sandbox"
	"github.com/heddle-dev/heddle/sandbox/netproxy"
)

// Exit codes of `heddle sandbox` beside those of the command itself.
const (
	exitTimeout      = 124 // the time limit passed
	exitNotRun       = 125 // the sandbox could not be set up; nothing was run
	sandboxEndLimit  = 10 * time.Second
	sandboxStateName = "sandbox"
	sandboxScope     = "command-line"
	maxRefusals      = 100
)

type sandboxFlags struct {
	level    string
	dir      string
	writable []string
	denyRead []string
	network  bool
	allow    []string
	deny     []string
	hostTmp  bool
	git      string
	keepEnv  bool
	fallback string
	timeout  time.Duration
}

func newSandboxCommand() *cobra.Command {
	var f sandboxFlags
	cmd := &cobra.Command{
		Use:   "sandbox [flags] -- COMMAND [ARG...]",
		Short: "Run one command in a sandbox",
		Long: `sandbox runs one command as an executor would and exits with its exit code: 124
when --timeout passed, 125 when the sandbox could not be set up and nothing was
run, 126 or 127 when the program could not be executed, 128 plus the number of a
signal that ended it. Everything the command started has ended by then.

The network is off but for the sandbox's own loopback. With --allow the command
reaches the named hosts through a proxy, which HTTP_PROXY and the like name, on
ports 80 and 443 where no other is given; every refusal is told on standard error.

Variables that look like secrets (KEY, SECRET, TOKEN, PASS, CRED in the name) and
heddle's own are not passed on, unless --keep-env is given.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(errors.New("no command given; see heddle sandbox --help"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), args, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fs := cmd.Flags()
	fs.SetInterspersed(false)
	fs.StringVar(&f.level, "level", sandbox.WorkspaceWrite.String(), "`level`: read-only, workspace-write or danger-full-access")
	fs.StringVarP(&f.dir, "cd", "C", "", "workspace and working `directory` (default: the current one)")
	fs.StringArrayVar(&f.writable, "writable", nil, "another writable `directory` (repeatable)")
	fs.StringArrayVar(&f.denyRead, "deny-read", nil, "`path` or pattern that the command must not read, below --cd, ~ or / (repeatable)")
	fs.BoolVar(&f.network, "network", false, "give the command the host's network")
	fs.StringArrayVar(&f.allow, "allow", nil, "`host[:port]` that the command may reach through a proxy: a name, *.NAME or an address (repeatable)")
	fs.StringArrayVar(&f.deny, "deny", nil, "`host[:port]` that it may not reach, whatever --allow says (repeatable)")
	fs.BoolVar(&f.hostTmp, "host-tmp", false, "share the host's /tmp instead of a private one")
	fs.StringVar(&f.git, "git", "protected", "`mode` of the repository: protected keeps it read-only; commit lets git add, commit, branch, stash and rebase")
	fs.StringVar(&f.fallback, "fallback", "none", "`mechanism` where namespaces do not work: none fails, landlock contains with less (see heddle doctor)")
	fs.BoolVar(&f.keepEnv, "keep-env", false, "pass the whole environment, secrets too")
	fs.DurationVar(&f.timeout, "timeout", 0, "end the command after this time")
	return cmd
}

func (f sandboxFlags) policy() (sandbox.Policy, error) {
	level, err := sandbox.ParseLevel(f.level)
	if err != nil {
		return sandbox.Policy{}, err
	}
	p := sandbox.Policy{Level: level}
	if p.Workspace, err = filepath.Abs(f.dir); err != nil {
		return p, err
	}
	absolute := func(list []string) (out []string) {
		for _, d := range list {
			a, aerr := filepath.Abs(d)
			err = errors.Join(err, aerr)
			out = append(out, a)
		}
		return out
	}
	p.WritableRoots, p.DenyRead = absolute(f.writable), f.denyRead
	if len(f.denyRead) > 0 && !level.Contained() {
		return p, fmt.Errorf("--deny-read cannot be enforced at level %s", level)
	}
	if f.network {
		p.Net = sandbox.NetFull
	}
	if len(f.allow) > 0 || len(f.deny) > 0 {
		if f.network {
			return p, errors.New("--network gives the whole network: --allow and --deny have no place beside it")
		}
		p.Net, p.Proxy = sandbox.NetProxied, netproxy.Lists{Allow: f.allow, Deny: f.deny}
		if _, err := netproxy.NewRules(p.Proxy); err != nil {
			return p, err
		}
	}
	switch f.git {
	case "protected", "":
	case "commit":
		p.Git = sandbox.GitCommit
	default:
		return p, fmt.Errorf("--git %q is neither protected nor commit", f.git)
	}
	switch f.fallback {
	case "none", "":
	case "landlock":
		p.Fallback = sandbox.FallbackLandlock
	default:
		return p, fmt.Errorf("--fallback %q is neither none nor landlock", f.fallback)
	}
	if f.hostTmp {
		p.Tmp = sandbox.TmpHost
	}
	return p, err
}

func (f sandboxFlags) run(ctx context.Context, argv []string, stdin io.Reader, stdout, stderr io.Writer) error {
	policy, err := f.policy()
	if err != nil {
		return usageError(err)
	}
	if ctx == nil {
		ctx = context.Background()
	}
	notRun := func(err error) error { return &exitError{code: exitNotRun, err: err} }
	cfg, err := sandboxConfig()
	if err != nil {
		return notRun(err)
	}
	m, err := sandbox.NewManager(ctx, cfg)
	if err != nil {
		return notRun(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), sandboxEndLimit)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			fmt.Fprintf(stderr, "heddle: end sandbox: %v\n", err)
		}
	}()
	s, err := m.Acquire(ctx, sandboxScope, policy)
	if err != nil {
		return notRun(err)
	}
	env := os.Environ()
	if !f.keepEnv {
		env = sandbox.FilterEnv(env)
	}
	p, err := s.Start(ctx, sandbox.Cmd{Argv: argv, Env: env, Stdin: sandbox.StdinPipe, Timeout: f.timeout,
		Network: sandbox.Network{Decided: refusals(stderr)}})
	if err != nil {
		return notRun(err)
	}
	r := stream(ctx, p, stdin, stdout, stderr)
	for _, v := range r.Violations {
		fmt.Fprintf(stderr, "heddle: %s: %s", v.Path, v.What)
		if v.Quarantine != "" {
			fmt.Fprintf(stderr, "; moved to %s", v.Quarantine)
		}
		fmt.Fprintln(stderr)
	}
	return sandboxResult(r)
}

// refusals tells of each destination that is refused, once.
func refusals(stderr io.Writer) func(netproxy.Decision) {
	var mu sync.Mutex
	told := map[netproxy.Request]bool{}
	return func(d netproxy.Decision) {
		mu.Lock()
		defer mu.Unlock()
		if d.Allowed || told[d.Request] || len(told) >= maxRefusals {
			return
		}
		told[d.Request] = true
		fmt.Fprintf(stderr, "heddle: network access to %s port %d was refused (%s)\n", d.Host, d.Port, d.By)
	}
}

func sandboxResult(r sandbox.Result) error {
	switch {
	case r.TimedOut:
		return &exitError{code: exitTimeout, err: errors.New("the time limit passed; the command was ended")}
	case r.SandboxLost:
		return &exitError{code: r.ExitCode, err: sandbox.ErrLost}
	case r.ExitCode != 0:
		return &exitError{code: r.ExitCode}
	}
	return nil
}

// stream connects a command with our own streams until it has ended. A first interrupt goes to the command, a
// second one or a request to terminate ends it.
func stream(ctx context.Context, p *sandbox.Proc, stdin io.Reader, stdout, stderr io.Writer) sandbox.Result {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer signal.Stop(signals)
	go func() {
		_, _ = io.Copy(p.Stdin(), stdin)
		p.Stdin().Close()
	}()
	var out sync.WaitGroup
	out.Go(func() { _, _ = io.Copy(stdout, p.Stdout()); p.Stdout().Close() })
	out.Go(func() { _, _ = io.Copy(stderr, p.Stderr()); p.Stderr().Close() })
	interrupted := false
	for {
		select {
		case sig := <-signals:
			if interrupted || sig != unix.SIGINT {
				_ = p.Kill()
				continue
			}
			interrupted = true
			_ = p.Signal(unix.SIGINT)
		case <-ctx.Done():
			_ = p.Kill()
			<-p.Done()
		case <-p.Done():
			out.Wait()
			r, _ := p.Wait(context.Background()) // it has ended: this cannot fail
			return r
		}
	}
}

// sandboxConfig keeps the sandbox's state in the home.
func sandboxConfig() (sandbox.Config, error) {
	home, err := config.ResolveHome(environ())
	if err != nil {
		return sandbox.Config{}, err
	}
	return sandbox.Config{
		StateDir: filepath.Join(home.Dir, sandboxStateName),
		Hide:     config.Private(home.Dir), Keep: home.Folders(),
	}, nil
}
