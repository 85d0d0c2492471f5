package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/heddle-dev/heddle/cmd/heddle/internal/local"
	"github.com/heddle-dev/heddle/controlplane/config"
)

// place is a home with its control plane, as a client command uses it.
type place struct {
	dir     string
	logFile string
	// dial connects, and starts the control plane when none answers.
	dial  func(context.Context) (*grpc.ClientConn, error)
	close func() error
}

// end closes the place at the end of a command.
func (p *place) end(stderr io.Writer) {
	if err := p.close(); err != nil {
		fmt.Fprintf(stderr, "heddle: end the control plane: %v\n", err)
	}
}

// openHome finds the home. The control plane starts with the first dial; with
// inProcess it starts now, in this process.
func openHome(ctx context.Context, inProcess bool) (*place, error) {
	home, err := config.ResolveHome(environ())
	if err != nil {
		return nil, usageError(err)
	}
	if inProcess {
		return embedHome(ctx, home)
	}
	client, err := local.NewClient(local.Config{Home: home.Dir, Version: buildVersion()})
	if err != nil {
		return nil, err
	}
	return &place{dir: home.Dir, logFile: client.LogFile(), dial: client.Dial, close: func() error { return nil }}, nil
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
