// Command sandboxbench measures sandboxes beside bare processes and, where it is
// installed, bubblewrap: the time of small commands with their output read to
// its end, the making and ending of a sandbox, the first command after a warm
// start, many sandboxes at once, and what an idle one costs in memory. The
// variants of a round run in a random order, so that a change of the machine's
// load meets all of them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/heddle-dev/heddle/sandbox"
)

func main() {
	guest := flag.String("guest", "sandbox/guestbin/heddle-guest", "the sandbox helper")
	rounds := flag.Int("rounds", 60, "rounds of small commands")
	starts := flag.Int("starts", 15, "sandboxes to make one after another")
	width := flag.Int("parallel", 40, "sandboxes that run commands at once")
	idle := flag.Int("idle", 60, "idle sandboxes for the memory figure; 0 leaves it out")
	live := flag.Int("live", 400, "sandboxes that live at once, each with a command; 0 leaves it out")
	only := flag.String("only", "", "setup: print the median time of making a sandbox, in microseconds")
	flag.Parse()
	if *only == "setup" {
		if err := setupOnly(*guest, *starts); err != nil {
			fmt.Fprintln(os.Stderr, "sandboxbench:", err)
			os.Exit(1)
		}
		return
	}
	if err := run(*guest, *rounds, *starts, *width, *idle, *live); err != nil {
		fmt.Fprintln(os.Stderr, "sandboxbench:", err)
		os.Exit(1)
	}
}

type bench struct {
	dir string
	m   *sandbox.Manager // with a cgroup per command, where there are any
	out *tabwriter.Writer

	guest string
	aims  []aim
	usual time.Duration // of a command in a warm sandbox
}

func run(guest string, rounds, starts, width, idle, live int) error {
	guest, err := filepath.Abs(guest)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("/var/tmp", "sandboxbench-") // commands have a /tmp of their own
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	open := func(name string, noCgroup bool) (*sandbox.Manager, error) {
		return sandbox.NewManager(ctx, sandbox.Config{StateDir: filepath.Join(dir, name), GuestPath: guest, NoCgroup: noCgroup})
	}
	m, err := open("state", false)
	if err != nil {
		return err
	}
	defer m.Close(ctx)
	plain, err := open("plain", true)
	if err != nil {
		return err
	}
	defer plain.Close(ctx)
	b := &bench{dir: dir, m: m, guest: guest, out: tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)}
	b.line("sandbox figures, medians; user %d, %s; load average %s", os.Getuid(), mechanisms(ctx, dir, guest), load())
	err = errors.Join(b.commands(ctx, plain, rounds), b.starts(ctx, starts), b.parallel(ctx, width), b.idle(ctx, idle), b.live(ctx, live))
	b.verdicts()
	return errors.Join(err, b.out.Flush())
}

func mechanisms(ctx context.Context, dir, guest string) string {
	r := sandbox.Probe(ctx, sandbox.Config{StateDir: filepath.Join(dir, "probe"), GuestPath: guest})
	s := fmt.Sprintf("%s, Landlock %d", r.Backend, r.Landlock)
	if r.CgroupKill {
		return s + ", a cgroup per command"
	}
	return s + ", subreapers"
}

func (b *bench) line(format string, args ...any) { fmt.Fprintf(b.out, format+"\n", args...) }

func (b *bench) workspace(name string) string {
	ws := filepath.Join(b.dir, name)
	_ = os.MkdirAll(filepath.Join(ws, ".git"), 0o755)
	return ws
}

func (b *bench) acquire(ctx context.Context, m *sandbox.Manager, scope string) (*sandbox.Sandbox, error) {
	return m.Acquire(ctx, scope, sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: b.workspace("ws-" + scope)})
}

// environment is that of every command: a login shell reads no profile of a person.
var environment = []string{"PATH=/usr/bin:/bin", "HOME=/", "LC_ALL=C"}

// runner runs one command to its end.
type runner func(argv ...string) error

func bare(argv ...string) error {
	c := exec.Command(argv[0], argv[1:]...)
	c.Env = environment
	_, err := c.Output()
	return err
}

func in(ctx context.Context, s *sandbox.Sandbox) runner {
	return func(argv ...string) error {
		p, err := s.Start(ctx, sandbox.Cmd{Argv: argv, Env: environment, MergeStderr: true})
		if err != nil {
			return err
		}
		defer p.Stdout().Close()
		if _, err := io.Copy(io.Discard, p.Stdout()); err != nil {
			return err
		}
		r, err := p.Wait(ctx)
		if err == nil && r.ExitCode != 0 {
			err = fmt.Errorf("%s: exit %d", argv[0], r.ExitCode)
		}
		return err
	}
}

func bwrap(ws string) runner {
	path, err := exec.LookPath("bwrap")
	if err != nil {
		return nil
	}
	flags := []string{"--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
		"--bind", ws, ws, "--ro-bind", filepath.Join(ws, ".git"), filepath.Join(ws, ".git"), "--"}
	return func(argv ...string) error { return bare(append(append([]string{path}, flags...), argv...)...) }
}

func (b *bench) commands(ctx context.Context, plain *sandbox.Manager, rounds int) error {
	with, err := b.acquire(ctx, b.m, "with")
	if err != nil {
		return err
	}
	without, err := b.acquire(ctx, plain, "without")
	if err != nil {
		return err
	}
	variants := []struct {
		name string
		run  runner
	}{{"bare", bare}, {"sandbox, cgroup", in(ctx, with)}, {"sandbox, no cgroup", in(ctx, without)}, {"bwrap", bwrap(b.workspace("ws-with"))}}
	for _, argv := range [][]string{{"/bin/true"}, {"/bin/bash", "-lc", "echo hi"}} {
		times := make([][]time.Duration, len(variants))
		for range rounds {
			for _, i := range rand.Perm(len(variants)) {
				if variants[i].run == nil {
					continue
				}
				d, err := timed(func() error { return variants[i].run(argv...) })
				if err != nil && variants[i].name == "bwrap" {
					variants[i].run, times[i] = nil, nil // installed, but not usable here
					continue
				}
				if err != nil {
					return err
				}
				times[i] = append(times[i], d)
			}
		}
		for i, v := range variants {
			if len(times[i]) > 0 {
				r := ratio(median(times[i]), median(times[0]))
				b.line("%s\t%s\t%s\t%.2fx", strings.Join(argv, " "), v.name, ms(median(times[i])), r)
				if v.name == "sandbox, cgroup" && argv[0] == "/bin/true" {
					b.usual = median(times[i])
				}
				b.commandAim(strings.Join(argv, " "), v.name, r)
			}
		}
	}
	return nil
}

func (b *bench) starts(ctx context.Context, n int) error {
	var start, first, stop []time.Duration
	for i := range n {
		scope := "start" + strconv.Itoa(i)
		var s *sandbox.Sandbox
		b.workspace("ws-" + scope)
		d, err := timed(func() (err error) { s, err = b.acquire(ctx, b.m, scope); return err })
		if err != nil {
			return err
		}
		start = append(start, d)
		if d, err = timed(func() error { return in(ctx, s)("/bin/true") }); err != nil {
			return err
		}
		first = append(first, d)
		if d, err = timed(func() error { return b.m.Release(ctx, scope) }); err != nil {
			return err
		}
		stop = append(stop, d)
	}
	b.line("make a sandbox\t\t%s", ms(median(start)))
	if err := b.setupAims(median(start)); err != nil {
		return err
	}
	b.aim("the first command after a model call waits for its sandbox", ms(max(0, median(first)-b.usual)), median(first)-b.usual <= firstWait, "5 ms")
	b.line("first command in it\t/bin/true\t%s", ms(median(first)))
	b.line("end it\t\t%s", ms(median(stop)))
	return nil
}

func (b *bench) parallel(ctx context.Context, width int) error {
	var boxes []runner
	for i := range width {
		s, err := b.acquire(ctx, b.m, "parallel"+strconv.Itoa(i))
		if err != nil {
			return err
		}
		boxes = append(boxes, in(ctx, s))
	}
	// In turns: the machine's load changes.
	var bareRate, boxRate []float64
	for range 3 {
		r, err := rate(width, func(int) error { return bare("/bin/true") })
		if err != nil {
			return err
		}
		bareRate = append(bareRate, r)
		if r, err = rate(width, func(i int) error { return boxes[i]("/bin/true") }); err != nil {
			return err
		}
		boxRate = append(boxRate, r)
	}
	slices.Sort(bareRate)
	slices.Sort(boxRate)
	b.line("%d at once\tbare\t%.0f commands/s", width, bareRate[1])
	share := 100 * boxRate[1] / bareRate[1]
	b.line("%d at once\tsandboxes\t%.0f commands/s\t%.0f %%", width, boxRate[1], share)
	b.aim(fmt.Sprintf("%d sandboxes in parallel", width), fmt.Sprintf("%.0f %% of bare", share), share >= 85, "85 %")
	for i := range width {
		if err := b.m.Release(ctx, "parallel"+strconv.Itoa(i)); err != nil {
			return err
		}
	}
	return nil
}

// rate counts how often f can be done in a second by width callers.
func rate(width int, f func(i int) error) (float64, error) {
	const span = 1500 * time.Millisecond
	var done atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, width)
	begin := time.Now()
	for i := range width {
		wg.Go(func() {
			for time.Since(begin) < span && errs[i] == nil {
				errs[i] = f(i)
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(done.Load()) / time.Since(begin).Seconds(), errors.Join(errs...)
}

func timed(f func() error) (time.Duration, error) {
	begin := time.Now()
	err := f()
	return time.Since(begin), err
}

func median(d []time.Duration) time.Duration {
	d = slices.Clone(d)
	slices.Sort(d)
	return d[len(d)/2]
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

func ms(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d.Microseconds())/1000) }
