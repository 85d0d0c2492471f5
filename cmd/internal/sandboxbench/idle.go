package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	idleLimit   = 2 << 20
	kernelStack = 16 << 10 // of one thread
	settle      = 2 * time.Second
)

// cost is what processes take, in bytes. What they share with others is counted by shares, so that the program of
// the helper, which all guests run from the same pages, is not counted anew for each.
type cost struct {
	processes, threads int
	pss, private       int64
	kernel             int64 // page tables and the stacks of threads
}

func (c cost) total() int64 { return c.pss + c.kernel }

// idle measures what the processes of n sandboxes that ran a command and do nothing take: their guests, and what the
// helper that keeps them grew by.
func (b *bench) idle(ctx context.Context, n int) error {
	if n == 0 {
		return nil
	}
	before, err := descendants()
	if err != nil {
		return b.unmeasured(err)
	}
	begin := time.Now()
	for i := range n {
		s, err := b.acquire(ctx, b.m, "idle"+strconv.Itoa(i))
		if err == nil {
			err = in(ctx, s)("/bin/true")
		}
		if err != nil {
			return err
		}
	}
	made := time.Since(begin)
	time.Sleep(settle) // not waited for anything: what is measured is that nothing happens
	after, err := descendants()
	if err != nil {
		return b.unmeasured(err)
	}
	per := func(after, before int64) float64 { return float64(after-before) / float64(n) / (1 << 20) }
	each := per(after.total(), before.total())
	b.line("%d idle sandboxes\t\t%.2f MiB each\tmade in %s; private %.2f, with shares %.2f, kernel %.2f MiB, %.1f threads in %.1f processes", n, each,
		made.Round(time.Millisecond), per(after.private, before.private), per(after.pss, before.pss), per(after.kernel, before.kernel),
		float64(after.threads-before.threads)/float64(n), float64(after.processes-before.processes)/float64(n))
	b.aim("an idle sandbox", fmt.Sprintf("%.2f MiB", each), each > 0 && each*(1<<20) <= idleLimit, "2 MiB")
	for i := range n {
		if err := b.m.Release(ctx, "idle"+strconv.Itoa(i)); err != nil {
			return err
		}
	}
	return nil
}

// unmeasured says why there is no figure: an ordinary user may not look into the guests.
func (b *bench) unmeasured(err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	b.aims = append(b.aims, aim{"an idle sandbox", "only root may see it: " + err.Error(), "2 MiB", "?"})
	return nil
}

// descendants sums the cost of all processes below this one.
func descendants() (cost, error) {
	children, err := childrenOf()
	if err != nil {
		return cost{}, err
	}
	var c cost
	queue := children[os.Getpid()]
	for len(queue) > 0 {
		pid := queue[0]
		queue = append(queue[1:], children[pid]...)
		if err := c.add(pid); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may have ended
			return c, err
		}
	}
	return c, nil
}

// childrenOf maps each process to those that it is the parent of.
func childrenOf() (map[int][]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	out := map[int][]int{}
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		_, rest, _ := strings.Cut(string(data), ") ") // after the name: state, parent
		if f := strings.Fields(rest); len(f) > 1 {
			parent, _ := strconv.Atoi(f[1])
			out[parent] = append(out[parent], pid)
		}
	}
	return out, nil
}

func (c *cost) add(pid int) error {
	dir := "/proc/" + strconv.Itoa(pid)
	maps, err := kilobytes(dir + "/smaps_rollup")
	if err != nil {
		return fmt.Errorf("read the memory of a process: %w", err)
	}
	status, err := kilobytes(dir + "/status")
	if err != nil {
		return fmt.Errorf("read the state of a process: %w", err)
	}
	c.processes++
	c.threads += int(status["Threads"] >> 10)
	c.pss += maps["Pss"]
	c.private += maps["Private_Clean"] + maps["Private_Dirty"]
	c.kernel += status["VmPTE"] + status["Threads"]>>10*kernelStack
	return nil
}

// kilobytes reads a table of /proc with one number in KiB on each line, as bytes.
func kilobytes(path string) (map[string]int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	for line := range strings.Lines(string(data)) {
		name, rest, _ := strings.Cut(line, ":")
		if f := strings.Fields(rest); len(f) > 0 {
			if n, err := strconv.ParseInt(f[0], 10, 64); err == nil {
				out[name] = n << 10
			}
		}
	}
	return out, nil
}
