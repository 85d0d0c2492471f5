package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"

	"github.com/heddle-dev/heddle/cmd/heddle/internal/local"
	"github.com/heddle-dev/heddle/controlplane/config"
)

// idleExit is how long a home's control plane stays when nothing needs it.
const idleExit = 2 * time.Second

type controlPlaneFlags struct {
	tls        tlsFlags
	home       string
	listen     []string
	insecure   bool
	local      bool
	executor   bool
	idleExit   time.Duration
	joinToken  string
	fenceAfter time.Duration
	grace      time.Duration
	readyFD    int
}

func newControlPlaneCommand() *cobra.Command {
	f := &controlPlaneFlags{}
	cmd := &cobra.Command{
		Use:   "controlplane",
		Short: "Run the control plane: threads, turns, approvals, leases",
		Long: `Run the control plane of a home. Executors and gateways connect to it.

exec and app-server start one with --local by themselves. For a fleet, run it
with --listen and let executors and gateways on other machines dial it; between
machines that takes mutual TLS. SIGTERM ends it: open turns are suspended in the
log and go on when it is started again.`,
		Example: `  heddle controlplane --listen 127.0.0.1:7443
  heddle controlplane --listen 0.0.0.0:7443 --tls-cert c.pem --tls-key k.pem --tls-ca ca.pem --join-token-file token`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return runControlPlane(cmd.Context(), f) },
	}
	fs := cmd.Flags()
	fs.StringVar(&f.home, "home", "", "home `folder` (default $HEDDLE_HOME, else ~/.heddle)")
	fs.StringArrayVar(&f.listen, "listen", nil, "`address` to listen on besides the home's socket: unix:///PATH or HOST:PORT")
	f.tls.add(fs)
	f.addFleet(fs)
	fs.BoolVar(&f.local, "local", false, "serve one machine: keep an executor and end when idle")
	fs.BoolVar(&f.executor, "executor", false, "keep an executor on this machine")
	fs.DurationVar(&f.idleExit, "idle-exit", 0, "end after being idle for so long (default with --local: $HEDDLE_IDLE_EXIT, else 2s; 0 never)")
	fs.IntVar(&f.readyFD, "ready-fd", -1, "descriptor to report the start on")
	_ = fs.MarkHidden("ready-fd")
	return cmd
}

// addFleet adds what concerns executors and gateways of other machines.
func (f *controlPlaneFlags) addFleet(fs *pflag.FlagSet) {
	fs.BoolVar(&f.insecure, "insecure", false, "allow a listener without TLS that other hosts can reach")
	fs.StringVar(&f.joinToken, "join-token-file", "", "`file` with a token that executors must show")
	fs.DurationVar(&f.fenceAfter, "fence-after", 0, "time after which a silent executor's work has ended (default 30s)")
	fs.DurationVar(&f.grace, "grace", 0, "time that a lost client session has to come back (default 5s)")
}

func runControlPlane(ctx context.Context, f *controlPlaneFlags) (err error) {
	ready := local.NewReady(f.readyFD)
	defer func() { ready.Tell(err) }()
	if err := hideProcess(); err != nil {
		return err
	}
	unix.Umask(0o077)
	home, err := f.resolveHome()
	if err != nil {
		return usageError(err)
	}
	cfg, err := f.server(home)
	if err != nil {
		return err
	}
	cfg.Ready = ready.Tell
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	return local.Serve(ctx, cfg)
}

func (f *controlPlaneFlags) resolveHome() (config.Home, error) {
	env := environ()
	if f.home == "" {
		return config.ResolveHome(env)
	}
	// The config under the home is found the same way as by the client that
	// named the home.
	abs, err := filepath.Abs(f.home)
	if err != nil {
		return config.Home{}, err
	}
	if h, err := config.ResolveHome(env); err == nil && h.Dir == abs {
		return h, nil
	}
	return config.Home{Dir: abs}, nil
}

func (f *controlPlaneFlags) server(home config.Home) (local.ServerConfig, error) {
	var none local.ServerConfig
	secured, err := f.tls.given()
	if err != nil {
		return none, usageError(err)
	}
	var token string
	if f.joinToken != "" {
		if f.joinToken, err = filepath.Abs(f.joinToken); err != nil {
			return none, usageError(err)
		}
		data, err := os.ReadFile(f.joinToken)
		if err != nil {
			return none, usageError(fmt.Errorf("join token: %w", err))
		}
		if token = strings.TrimSpace(string(data)); token == "" {
			return none, usageError(fmt.Errorf("join token file %s is empty", f.joinToken))
		}
	}
	cfg := local.ServerConfig{Home: home.Dir, Socket: true, Logger: newLogger(os.Stderr), IdleAfter: f.idleExit}
	if f.local && f.idleExit == 0 {
		if cfg.IdleAfter, err = idleFromEnv(); err != nil {
			return none, usageError(err)
		}
	}
	if secured {
		conf, err := f.tls.load()
		if err != nil {
			return none, usageError(err)
		}
		cfg.Credentials = credentials.NewTLS(conf)
	}
	for _, address := range f.listen {
		l, err := listen(address, secured, f.insecure)
		if err != nil {
			closeAll(cfg.Listeners)
			return none, err
		}
		cfg.Listeners = append(cfg.Listeners, l)
	}
	if f.local || f.executor {
		var more []string
		if f.joinToken != "" {
			more = []string{"--join-token-file", f.joinToken}
		}
		cfg.Executor = &local.ExecutorConfig{Args: executorArgs(home, more...), Output: os.Stderr}
	}
	cfg.Open = opener(backendConfig{
		home: home, logger: cfg.Logger, fenceAfter: f.fenceAfter, grace: f.grace, joinToken: token,
	})
	return cfg, nil
}

func idleFromEnv() (time.Duration, error) {
	text := os.Getenv("HEDDLE_IDLE_EXIT")
	if text == "" {
		return idleExit, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("HEDDLE_IDLE_EXIT: %w", err)
	}
	return d, nil
}

func closeAll(ls []net.Listener) {
	for _, l := range ls {
		_ = l.Close()
	}
}

// newLogger writes at the level that HEDDLE_LOG names (debug, info, warn, error).
func newLogger(w io.Writer) *slog.Logger {
	level := slog.LevelInfo
	if err := level.UnmarshalText([]byte(os.Getenv("HEDDLE_LOG"))); err != nil {
		level = slog.LevelInfo
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// embedHome runs the control plane of a home inside this process.
func embedHome(ctx context.Context, home config.Home) (*place, error) {
	logFile := filepath.Join(home.Dir, "log", "controlplane.log")
	if err := os.MkdirAll(filepath.Dir(logFile), 0o700); err != nil {
		return nil, fmt.Errorf("make the log folder: %w", err)
	}
	log, err := os.OpenFile(logFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	logger := newLogger(log)
	dial, stop, err := local.Embedded(ctx, local.ServerConfig{
		Home: home.Dir, Socket: true, Logger: logger,
		Executor: &local.ExecutorConfig{Args: executorArgs(home), Output: log, Tied: true},
		Open:     opener(backendConfig{home: home, logger: logger}),
	})
	if err != nil {
		_ = log.Close()
		return nil, err
	}
	return &place{dir: home.Dir, logFile: logFile, dial: dial, close: func() error {
		defer log.Close()
		return stop()
	}}, nil
}
