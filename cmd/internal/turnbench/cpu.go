package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// tick is the unit of CPU times in /proc (USER_HZ, 100 on every Linux port).
const tick = 10 * time.Millisecond

// cpu adds up the CPU time that heddle's own processes took over the turns.
type cpu struct {
	gateway int
	pids    map[string][]int
	before  map[string]time.Duration
	total   map[string]time.Duration
	turns   int
}

func (c *cpu) start(s *heddlev1.GetStatusResponse) {
	c.pids = map[string][]int{"control plane": {int(s.GetPid())}, "gateway": {c.gateway}}
	for _, e := range s.GetExecutors() {
		c.pids["executor"] = append(c.pids["executor"], int(e.GetPid()))
	}
	c.before = c.read()
}

func (c *cpu) stop() {
	if c.total == nil {
		c.total = map[string]time.Duration{}
	}
	for role, now := range c.read() {
		c.total[role] += now - c.before[role]
	}
	c.turns++
}

func (c *cpu) read() map[string]time.Duration {
	out := map[string]time.Duration{}
	for role, pids := range c.pids {
		for _, pid := range pids {
			out[role] += cpuTime(pid)
		}
	}
	return out
}

func (c *cpu) report(out io.Writer) {
	for _, role := range []string{"control plane", "executor", "gateway"} {
		fmt.Fprintf(out, "CPU time of the %-13s per turn (mean) %5.1f ms\n", role, ms(c.total[role])/float64(max(c.turns, 1)))
	}
}

// cpuTime is the user and system time of a process so far, 0 when it is gone.
func cpuTime(pid int) time.Duration {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// The name in parentheses may hold spaces; the fields after it do not.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.ParseInt(string(fields[11]), 10, 64)
	system, _ := strconv.ParseInt(string(fields[12]), 10, 64)
	return time.Duration(user+system) * tick
}
