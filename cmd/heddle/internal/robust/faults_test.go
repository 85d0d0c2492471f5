//go:build robust

package robust

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// tally counts things by name. Names that begin with ~ are no faults.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func newTally() *tally { return &tally{n: map[string]int{}} }

func (t *tally) add(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n[name]++
}

// faults is the number of faults that were injected.
func (t *tally) faults() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := 0
	for name, n := range t.n {
		if !strings.HasPrefix(name, "~") {
			sum += n
		}
	}
	return sum
}

func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(t.n)) {
		fmt.Fprintf(&b, "  %5d %s\n", t.n[name], strings.TrimPrefix(name, "~"))
	}
	return b.String()
}

// injector breaks things at random.
type injector struct {
	run  *run
	rng  *rand.Rand
	held sync.WaitGroup
}

// work injects faults until ctx ends.
func (in *injector) work(ctx context.Context) {
	for {
		pause := time.Duration(100+in.rng.IntN(500)) * time.Millisecond
		select {
		case <-ctx.Done():
			in.held.Wait()
			return
		case <-time.After(pause):
		}
		in.one()
	}
}

func (in *injector) one() {
	switch n := in.rng.IntN(100); {
	case n < 6:
		in.signal("controlplane", syscall.SIGKILL, "kill -9 control plane")
	case n < 9:
		in.signal("controlplane", syscall.SIGTERM, "SIGTERM control plane")
	case n < 15:
		in.signal("executor", syscall.SIGKILL, "kill -9 executor")
	case n < 23:
		in.signal("guest", syscall.SIGKILL, "kill -9 guest")
	case n < 29:
		in.signal("app-server", syscall.SIGKILL, "kill -9 app-server")
	case n < 34:
		in.freeze("controlplane", 1500)
	case n < 39:
		in.freeze("executor", 2500)
	case n < 42:
		in.freeze("executor", 2*int(shortFence.Milliseconds()))
	case n < 47:
		in.freeze("guest", 2000)
	case n < 52:
		in.freeze("app-server", 2000)
	case n < 66:
		in.arm(in.point(), "")
	case n < 71:
		in.arm("", fmt.Sprintf("%d:%d:%s", 10+in.rng.IntN(30), in.rng.Uint32(), in.run.home.faults()))
	case n < 75:
		in.fill()
	case n < 78:
		in.all()
	case n < 90:
		in.drop()
	default:
		in.slow()
	}
}

// all kills every process of the home at once, sandboxes among them.
func (in *injector) all() {
	for _, p := range in.run.home.processes() {
		_ = syscall.Kill(p.pid, syscall.SIGKILL)
	}
	in.run.tally.add("kill -9 everything at once")
}

// shortFence is the fence of control planes that the injector starts.
const shortFence = 3 * time.Second

// points are where a program that was built with the tag failpoint ends itself.
var points = []string{
	"log/before-commit", "log/after-commit", "agent/turn-accepted", "agent/step-committed", "agent/process-ended", "agent/sealed",
	"agent/before-turn-end", "agent/patch-planned", "agent/patch-intended", "agent/patch-written", "approval/decided",
	"dispatch/lease-grant", "dispatch/renewed", "controlplane/stopping", "controlplane/suspended",
	"executor/accepted", "executor/started", "executor/finished", "executor/journalled", "executor/delivered",
	"executor/lease-granted", "executor/renewed", "executor/patch-partly-written", "executor/stopping",
}

// point draws one of them, and at which of its passes it ends the program.
func (in *injector) point() string {
	name := points[in.rng.IntN(len(points))]
	if strings.HasSuffix(name, "stopping") || strings.HasSuffix(name, "suspended") {
		return name
	}
	return fmt.Sprintf("%s:%d", name, 1+in.rng.IntN(3))
}

// arm has the control planes and executors that start from now on end themselves
// at a point, once, or meet faults of the store, and replaces the present ones by
// such with a short fence; clients may be faster and start their own. What is
// counted as a fault is what such a process writes down before it happens.
func (in *injector) arm(point, storeFaults string) {
	if err := in.run.home.arm(point, storeFaults); err != nil {
		in.run.violate(Violation{What: "arm: " + err.Error()})
	}
	for _, role := range []string{"controlplane", "executor"} {
		if pid := in.pick(role); pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	cmd := in.run.home.command("controlplane", "--local", "--idle-exit", "500ms", "--fence-after", shortFence.String(), "--grace", "2s")
	if err := cmd.Start(); err != nil {
		in.run.violate(Violation{What: "start a control plane: " + err.Error()})
		return
	}
	in.run.tally.add("kill -9 control plane and executor")
	go func() { _ = cmd.Wait() }()
	if strings.Contains(point, "stopping") || strings.Contains(point, "suspended") {
		in.held.Go(func() {
			time.Sleep(2 * time.Second)
			for _, p := range in.run.home.processes() {
				if p.role == "controlplane" {
					_ = syscall.Kill(p.pid, syscall.SIGTERM)
				}
			}
		})
	}
}

// fill leaves no space in the home for a while. Where the home is not a file
// system of its own (mounting one needs root), store faults stand for it.
func (in *injector) fill() {
	wait := time.Duration(200+in.rng.IntN(1500)) * time.Millisecond
	free, err := in.run.home.fill()
	if err != nil {
		in.run.violate(Violation{What: "fill the disk: " + err.Error()})
	}
	if free == nil {
		return
	}
	in.run.tally.add("disk full")
	in.held.Go(func() {
		time.Sleep(wait)
		free()
	})
}

// countFaults adds the faults that processes wrote down since the last time.
func (r *run) countFaults() {
	data, err := os.ReadFile(r.home.faults())
	if err != nil {
		return
	}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	for ; r.counted < len(lines) && lines[r.counted] != ""; r.counted++ {
		r.tally.add(lines[r.counted])
		if strings.HasPrefix(lines[r.counted], "ended at") {
			// Else whoever starts next would end there too.
			_ = os.WriteFile(r.home.points(), nil, 0o600)
		}
	}
}

// pick chooses a process of a role.
func (in *injector) pick(role string) int {
	var pids []int
	for _, p := range in.run.home.processes() {
		if p.role == role {
			pids = append(pids, p.pid)
		}
	}
	if len(pids) == 0 {
		return 0
	}
	return pids[in.rng.IntN(len(pids))]
}

func (in *injector) signal(role string, sig syscall.Signal, name string) {
	if pid := in.pick(role); pid != 0 && syscall.Kill(pid, sig) == nil {
		in.run.tally.add(name)
	}
}

func (in *injector) freeze(role string, most int) {
	pid := in.pick(role)
	if pid == 0 || syscall.Kill(pid, syscall.SIGSTOP) != nil {
		return
	}
	in.run.tally.add("freeze " + role)
	wait := time.Duration(50+in.rng.IntN(most)) * time.Millisecond
	in.held.Go(func() {
		time.Sleep(wait)
		_ = syscall.Kill(pid, syscall.SIGCONT)
	})
}

// client chooses a connection, of a socket only when drop is set.
func (in *injector) client(drop bool) *client {
	var open []*client
	for _, s := range in.run.seats {
		if c := s.current(); c != nil && !c.closed() && (!drop || s.kind != "stdio") {
			open = append(open, c)
		}
	}
	if len(open) == 0 {
		return nil
	}
	return open[in.rng.IntN(len(open))]
}

func (in *injector) drop() {
	if c := in.client(true); c != nil {
		c.link.close()
		in.run.tally.add("connection dropped")
	}
}

func (in *injector) slow() {
	if c := in.client(false); c != nil {
		c.slow.Store(int64(500 + in.rng.IntN(3000)))
		in.run.tally.add("client stops reading")
	}
}
