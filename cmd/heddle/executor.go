package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"

	"github.com/heddle-dev/heddle/executor"
	"github.com/heddle-dev/heddle/executor/runner"
	"github.com/heddle-dev/heddle/sandbox"
)

// executorCleanup bounds ending what is left of sandboxes at the end.
const executorCleanup = 3 * time.Second

// executorFlags are the settings of an executor process.
type executorFlags struct {
	hide          []string
	keep          []string
	connect       []string
	stateDir      string
	id            string
	labels        []string
	capacity      int
	tls           tlsFlags
	joinTokenFile string
	parentPID     int
	parentStdin   bool
	logLevel      string
}

func newExecutorCommand() *cobra.Command {
	var f executorFlags
	cmd := &cobra.Command{
		Use:   "executor --connect ADDRESS",
		Short: "Run commands and edits for a control plane, in sandboxes",
		Long: `executor dials a control plane, holds its leases and runs its actions in sandboxes.

It goes on with its work while the control plane is away, until the fence of the
lease, and comes back by itself. SIGTERM ends its sandboxes, then the process.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runExecutor(cmd.Context(), f, cmd.InOrStdin(), cmd.ErrOrStderr())
		},
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&f.connect, "connect", nil, "`address` of the control plane: HOST:PORT or unix:///PATH (repeatable, tried in turn)")
	fl.StringVar(&f.stateDir, "state-dir", "", "`folder` for journal and output; one executor at a time")
	fl.StringArrayVar(&f.hide, "hide", nil, "`path` or pattern that contained commands never see, beside the state folder (repeatable)")
	fl.StringArrayVar(&f.keep, "keep", nil, "folder that contained commands never change, wherever they may write (repeatable)")
	fl.StringVar(&f.id, "id", "", "`id` of the executor (default: kept in the state folder)")
	fl.StringArrayVar(&f.labels, "label", nil, "label for matching, `key=value` (repeatable)")
	fl.IntVar(&f.capacity, "capacity", 0, fmt.Sprintf("`number` of actions at a time (default %d)", runner.DefaultCapacity))
	f.tls.add(fl)
	fl.StringVar(&f.joinTokenFile, "join-token-file", "", "`file` with the token that the control plane asks for")
	fl.IntVar(&f.parentPID, "parent-pid", 0, "`pid` of a process; once it is gone, end as soon as no lease is held")
	fl.BoolVar(&f.parentStdin, "parent-stdin", false, "once standard input ends, end as soon as no lease is held")
	fl.StringVar(&f.logLevel, "log-level", envOr("HEDDLE_LOG", "info"), "log `level` on stderr: debug, info, warn or error; $HEDDLE_LOG when not given")
	return cmd
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func runExecutor(ctx context.Context, f executorFlags, stdin io.Reader, stderr io.Writer) error {
	cfg, err := f.config(stderr)
	if err != nil {
		return usageError(err)
	}
	if err := hideProcess(); err != nil {
		return err
	}
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, stop := signal.NotifyContext(ctx, unix.SIGTERM, unix.SIGINT)
	defer stop()
	if cfg.Orphaned, err = f.orphaned(stdin); err != nil {
		return err
	}
	hide := f.hide
	if !slices.Contains(hide, cfg.StateDir) {
		hide = append(hide, cfg.StateDir) // the journal and the spool are of all threads
	}
	boxes := sandbox.Config{StateDir: filepath.Join(cfg.StateDir, "sandbox"), Hide: hide, Keep: f.keep, Logger: cfg.Logger}
	manager, err := sandbox.NewManager(ctx, boxes)
	if err != nil {
		return err
	}
	closeManager := func() error {
		ctx, cancel := context.WithTimeout(context.Background(), executorCleanup)
		defer cancel()
		return manager.Close(ctx)
	}
	cfg.Boxes = runner.Sandboxes{Manager: manager}
	report, kept := keptReport(cfg.StateDir)
	if !kept {
		report = probeReport(ctx, boxes)
	}
	cfg.Report = report
	ex, err := executor.New(cfg)
	if err != nil {
		return errors.Join(err, closeManager())
	}
	var refresh sync.WaitGroup
	if !kept {
		keepReport(cfg.StateDir, report, cfg.Logger)
	} else {
		refresh.Go(func() { refreshReport(ctx, ex, boxes, cfg.StateDir, cfg.Logger) })
	}
	err = ex.Run(ctx)
	stop() // also when Run ended by itself
	refresh.Wait()
	if errors.Is(err, executor.ErrOrphaned) {
		cfg.Logger.Info("executor ends", "cause", err)
		err = nil
	}
	return errors.Join(err, closeManager())
}

// config checks the flags.
func (f executorFlags) config(stderr io.Writer) (executor.Config, error) {
	cfg := executor.Config{Addrs: f.connect, ID: f.id, Capacity: f.capacity, Version: buildVersion()}
	if len(f.connect) == 0 {
		return cfg, errors.New("--connect is missing")
	}
	if f.stateDir == "" {
		return cfg, errors.New("--state-dir is missing")
	}
	if f.capacity < 0 {
		return cfg, errors.New("--capacity must not be negative")
	}
	var err error
	if cfg.StateDir, err = filepath.Abs(f.stateDir); err != nil {
		return cfg, fmt.Errorf("--state-dir: %w", err)
	}
	cfg.Labels = map[string]string{}
	for _, l := range f.labels {
		key, value, ok := strings.Cut(l, "=")
		if !ok || key == "" {
			return cfg, fmt.Errorf("--label %q is not key=value", l)
		}
		cfg.Labels[key] = value
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return cfg, fmt.Errorf("--log-level: %w", err)
	}
	cfg.Logger = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})).With("role", "executor")
	if f.joinTokenFile != "" {
		token, err := os.ReadFile(f.joinTokenFile)
		if err != nil {
			return cfg, fmt.Errorf("--join-token-file: %w", err)
		}
		cfg.JoinToken = strings.TrimSpace(string(token))
	}
	cfg.TLS, err = f.credentials()
	return cfg, err
}

// credentials returns nil when no TLS flag is given.
func (f *executorFlags) credentials() (credentials.TransportCredentials, error) {
	given, err := f.tls.given()
	if !given || err != nil {
		return nil, err
	}
	cfg, err := f.tls.load()
	if err != nil {
		return nil, err
	}
	return credentials.NewTLS(cfg), nil
}

// orphaned returns a channel that is closed when the parent is gone; nil when
// there is no parent to watch.
func (f executorFlags) orphaned(stdin io.Reader) (<-chan struct{}, error) {
	if f.parentPID == 0 && !f.parentStdin {
		return nil, nil
	}
	gone := make(chan struct{})
	seen := make(chan struct{}, 2)
	if f.parentPID != 0 {
		fd, err := unix.PidfdOpen(f.parentPID, 0)
		switch {
		case errors.Is(err, unix.ESRCH):
			seen <- struct{}{}
		case err != nil:
			return nil, fmt.Errorf("watch parent process %d: %w", f.parentPID, err)
		default:
			go func() {
				defer unix.Close(fd)
				for {
					n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
					if n > 0 || (err != nil && !errors.Is(err, unix.EINTR)) {
						seen <- struct{}{}
						return
					}
				}
			}()
		}
	}
	if f.parentStdin {
		go func() {
			_, _ = io.Copy(io.Discard, stdin)
			seen <- struct{}{}
		}()
	}
	go func() { <-seen; close(gone) }()
	return gone, nil
}
