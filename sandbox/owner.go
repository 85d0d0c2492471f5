package sandbox

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// owner is this manager's place in the state directory. A held lock tells others that it lives; the directory
// of one whose lock is free is a leftover.
type owner struct {
	id, dir  string
	lock     *os.File
	cgroup   string // cgroup directory of all commands, or empty
	emptyDir string
	emptyFil string
	stamper  *stamper
	led      ledTo // where denied paths led first
}

func randomID() string {
	var b [6]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func newOwner(stateDir string) (*owner, error) {
	o := &owner{id: randomID(), stamper: newStamper()}
	o.dir = filepath.Join(stateDir, "owners", o.id)
	if err := mkdir(filepath.Dir(o.dir), 0o700); err != nil {
		return nil, fmt.Errorf("make sandbox state directory: %w", err)
	}
	if err := os.Mkdir(o.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make sandbox state directory: %w", err)
	}
	var err error
	if o.lock, err = os.OpenFile(o.dir+".lock", os.O_CREATE|os.O_RDWR, 0o600); err == nil {
		err = unix.Flock(int(o.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	o.emptyDir, o.emptyFil = filepath.Join(o.dir, "empty.d"), filepath.Join(o.dir, "empty")
	if err == nil {
		err = os.Mkdir(o.emptyDir, 0o555)
	}
	if err == nil {
		err = os.WriteFile(o.emptyFil, nil, 0o444)
	}
	if err != nil {
		return nil, fmt.Errorf("make sandbox state directory: %w", err)
	}
	return o, nil
}

// record remembers the cgroup for a later sweep.
func (o *owner) record() error {
	return os.WriteFile(filepath.Join(o.dir, "cgroup"), []byte(o.cgroup), 0o600)
}

func (o *owner) remove() error {
	var err error
	if o.cgroup != "" {
		err = guestproto.RemoveCgroup(o.cgroup)
	}
	guestproto.SweepBoxes(o.dir) // none is left but after the death of a keeper
	err = errors.Join(err, os.RemoveAll(o.dir), os.Remove(o.lock.Name()))
	o.lock.Close()
	o.stamper.close()
	return err
}

// sweep removes what dead owners left.
func sweep(stateDir string, log *slog.Logger) {
	base := filepath.Join(stateDir, "owners")
	locks, err := filepath.Glob(filepath.Join(base, "*.lock"))
	if err != nil {
		return
	}
	for _, name := range locks {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			sweepOwner(strings.TrimSuffix(name, ".lock"), log)
			os.Remove(name)
		}
		f.Close()
	}
}

func sweepOwner(dir string, log *slog.Logger) {
	if b, err := os.ReadFile(filepath.Join(dir, "cgroup")); err == nil {
		if cg := string(b); filepath.IsAbs(cg) && strings.HasPrefix(filepath.Base(cg), ownerPrefix) {
			if err := guestproto.RemoveCgroup(cg); err != nil {
				log.Warn("sweep: cgroup of a dead owner stays", "cgroup", cg, "err", err)
			}
		}
	}
	guestproto.SweepBoxes(dir)
	if err := os.RemoveAll(dir); err != nil {
		log.Warn("sweep: state of a dead owner stays", "dir", dir, "err", err)
	}
}
