package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/heddle-dev/heddle/cmd/heddle/internal/local"
	"github.com/heddle-dev/heddle/controlplane"
	"github.com/heddle-dev/heddle/controlplane/store/boltstore"
	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func newBackupCommand() *cobra.Command {
	var home string
	var force bool
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the home's store to FILE, also while work goes on",
		Long: `backup writes a copy of the home's store, with all threads, as it is at one
commit. A control plane that runs makes the copy and goes on with its work; where
none runs, the file is copied directly. The copy is checked before FILE appears,
and takes the place of state.db in a home to restore it.

The whole output of commands is not in the store but in the folder streams of the
home; copy that folder too where it matters.`,
		Example: "  heddle backup /backups/heddle-$(date +%F).db",
		Args:    usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := storeHome(home)
			if err != nil {
				return usageError(err)
			}
			return runBackup(cmd.Context(), cmd.OutOrStdout(), dir, args[0], force)
		},
	}
	cmd.Flags().StringVar(&home, "home", "", "home `folder` (default $HEDDLE_HOME, else ~/.heddle)")
	cmd.Flags().BoolVar(&force, "force", false, "replace FILE when it exists")
	return cmd
}

// storeHome is the folder of a home that exists; it is never made here.
func storeHome(dir string) (string, error) {
	f := controlPlaneFlags{home: dir}
	home, err := f.resolveHome()
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(controlplane.StoreFile(home.Dir)); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("home %s has no store yet", home.Dir)
	} else if err != nil {
		return "", err
	}
	return home.Dir, nil
}

func runBackup(ctx context.Context, out io.Writer, home, file string, force bool) error {
	if _, err := os.Lstat(file); err == nil && !force {
		return usageError(fmt.Errorf("%s exists: name another file, or give --force", file))
	}
	temp, err := os.CreateTemp(filepath.Dir(file), ".heddle-backup-*")
	if err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	defer os.Remove(temp.Name()) // does nothing once it has its name
	defer temp.Close()
	sum := sha256.New()
	if err := copyStore(ctx, home, io.MultiWriter(temp, sum)); err != nil {
		return err
	}
	if err := errors.Join(temp.Sync(), temp.Close()); err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	report, err := boltstore.Check(ctx, temp.Name())
	if err != nil {
		return fmt.Errorf("the copy cannot be read: %w", err)
	}
	if err := os.Rename(temp.Name(), file); err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	fmt.Fprintf(out, "%s: %d threads, %d bytes\nsha256 %s\n", file, report.Threads, report.Bytes, hex.EncodeToString(sum.Sum(nil)))
	if !report.Sound() {
		fmt.Fprintf(out, "the store has damage, and so has the copy: see heddle doctor --store\n")
	}
	return nil
}

// copyTries bounds how often a copy begins anew because a control plane started
// or ended meanwhile.
const copyTries = 5

// copyStore writes a copy of the home's store: from the control plane where one
// runs, else from the file.
func copyStore(ctx context.Context, home string, w io.Writer) error {
	for try := 1; ; try++ {
		counted := &counter{w: w}
		err := copyRunning(ctx, home, counted)
		if errors.Is(err, errNotRunning) {
			_, err = boltstore.Copy(ctx, controlplane.StoreFile(home), counted)
		}
		if err == nil || counted.n > 0 || try == copyTries || !errdefs.Is(err, errdefs.Busy) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

var errNotRunning = errors.New("no control plane runs")

// copyRunning asks the home's control plane. It starts none.
func copyRunning(ctx context.Context, home string, w io.Writer) error {
	socket, err := local.SocketOf(home)
	if err != nil {
		return err
	}
	probe, err := net.Dial("unix", socket)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return errNotRunning
	}
	if err != nil {
		return fmt.Errorf("connect to the control plane: %w", err)
	}
	_ = probe.Close()
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to the control plane: %w", err)
	}
	defer conn.Close()
	stream, err := heddlev1.NewCatalogServiceClient(conn).Backup(ctx, &heddlev1.BackupRequest{})
	if err != nil {
		return fmt.Errorf("ask for a backup: %w", err)
	}
	for {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive the backup: %w", err)
		}
		if _, err := w.Write(part.GetData()); err != nil {
			return fmt.Errorf("write the backup: %w", err)
		}
	}
}
