package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guest/early"
	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// namespaced reports whether the guest is PID 1 of namespaces of its own.
func (b *box) namespaced() bool { return b.policy.Level.Contained() && !b.landlock }

// startLandlock starts the guest on the host itself under Landlock rules. why is what kept it from namespaces.
func (b *box) startLandlock(theirs int, why *UnenforceableError) error {
	fail := func(cause string) error {
		return &UnenforceableError{Level: b.policy.Level, Cause: fmt.Sprintf("%s; and the fallback to Landlock: %s", why.Cause, cause), Fix: why.Fix}
	}
	switch abi := b.m.landlock; {
	case abi < minLandlock:
		return fail(fmt.Sprintf("the kernel has Landlock ABI %d, %d (kernel 6.2) is needed", abi, minLandlock))
	case b.policy.Net != NetOff:
		return fail("without a network namespace there is only no network at all, because commands could not be told from processes that may use heddle's own listeners")
	case b.policy.Git == GitCommit && b.policy.Level == WorkspaceWrite:
		return fail("it cannot keep the parts of .git that git runs later (hooks, configuration) read-only; use git = \"protected\"")
	}
	b.scratch = filepath.Join(b.m.owner.dir, "tmp-"+b.id)
	if err := os.Mkdir(b.scratch, 0o700); err != nil {
		return fmt.Errorf("make private tmp: %w", err)
	}
	denied, err := b.plan.deniedPaths(b.m.hiding(b.policy), b.m.cfg)
	if err != nil {
		return err
	}
	rules, err := landlockRules(b.policy, b.plan, denied, b.scratch, b.m.landlock)
	if err != nil {
		return fail(err.Error())
	}
	defer rules.Close()
	b.landlock = true
	b.plan.unmount()
	return b.startPlain(theirs, rules)
}

// unmount says that nothing of the plan is mounted: protected names are only looked at afterwards.
func (pl *plan) unmount() {
	pl.mounts, pl.expect, pl.unmounted = nil, nil, true
}

// deniedPaths are what must not be read, with what lies in places that namespaces would hide.
func (pl *plan) deniedPaths(p Policy, cfg Config) ([]string, error) {
	out := []string{cfg.StateDir}
	plain, _, err := denials(p, pl.places(p), pl.home)
	if err != nil {
		return nil, err
	}
	for _, d := range plain {
		if real, err := filepath.EvalSymlinks(d); err == nil {
			out = append(out, real)
		}
	}
	return append(out, slices.Collect(maps.Keys(pl.matched))...), nil
}

// guardedPaths are the protected names, which file actions leave alone.
func (pl *plan) guardedPaths() []string {
	out := slices.Clone(pl.absent)
	for _, id := range append(slices.Clone(pl.links), pl.guarded...) {
		out = append(out, id.path)
	}
	return out
}

// verifyLandlock asks the guest to write where it must not be able to.
func (b *box) verifyLandlock(ctx context.Context) error {
	path := filepath.Join(b.m.owner.dir, "probe-"+b.id)
	_, err := b.call(ctx, guestproto.KFile, guestproto.File{Op: guestproto.OpMkdir, Path: path, Mode: 0o700}.Encode())
	if errors.Is(err, unix.EACCES) {
		return nil
	}
	_ = os.Remove(path)
	return &UnenforceableError{Level: b.policy.Level, Cause: fmt.Sprintf("the guest could write outside of its Landlock rules (%v)", err)}
}

// openTTY makes the terminal of a command on the host, where the guest may open none. The result goes in the place
// of standard input.
func (b *box) openTTY(c Cmd, req *guestproto.Start, p *Proc, pipes *pipeSet) error {
	master, tty, err := guestproto.OpenTerminal(c.Rows, c.Cols)
	if err != nil {
		return err
	}
	_ = unix.SetNonblock(master, true)
	p.master = os.NewFile(uintptr(master), "terminal")
	p.stdout, p.stdin = &masterReader{p.master}, &masterWriter{f: p.master}
	pipes.theirs, pipes.ours = append(pipes.theirs, tty), append(pipes.ours, p.master)
	req.HasStdin, req.GivenTTY = true, true
	return nil
}

// landlockEnv makes a guest enter its rules.
func landlockEnv() string { return early.LandlockEnv + "=1" }
