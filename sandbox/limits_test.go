package sandbox

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// fakeGroup is a directory with the files of a cgroup that the code under test writes or reads.
func fakeGroup(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func content(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestLimitsOfCgroup2(t *testing.T) {
	files := map[string]string{"memory.max": "", "memory.swap.max": "", "pids.max": "", "cpu.max": "",
		"memory.events": "low 0\noom 3\noom_kill 2\noom_group_kill 0\n", "pids.events": "max 7\n"}
	dir := fakeGroup(t, files)
	l := Limits{MemoryBytes: 1 << 20, Pids: 5, CPU: 1500}
	g, err := limitV2(dir, l, []string{"memory", "pids", "cpu"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"memory.max": "1048576", "memory.swap.max": "0", "pids.max": "5", "cpu.max": "150000 100000"} {
		if got := content(t, dir, name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	g.open()
	defer g.close()
	if c := g.count(); c.oom != 2 || c.pids != 7 {
		t.Errorf("counters: %+v", c)
	}
	if oom, pids := g.hits(limitCounts{oom: 2, pids: 6}); oom || !pids {
		t.Errorf("hits: %v %v", oom, pids)
	}
	if _, err := limitV2(fakeGroup(t, nil), l, []string{"memory"}); err == nil {
		t.Error("a limit that could not be set is no error")
	}
	if g, err := limitV2(fakeGroup(t, nil), l, nil); err != nil || g.v2 {
		t.Errorf("without controllers: %+v, %v", g, err)
	}
	if _, err := limitV2(fakeGroup(t, nil), Limits{Pids: -1}, []string{"memory", "pids", "cpu"}); err != nil {
		t.Errorf("no limits: %v", err)
	}
}

func TestDelegate(t *testing.T) {
	base := fakeGroup(t, map[string]string{"cgroup.controllers": "cpu io memory\n", "cgroup.subtree_control": "cpu memory\n"})
	dir := fakeGroup(t, map[string]string{"cgroup.subtree_control": ""})
	if got := strings.Join(delegate(base, dir), " "); got != "memory cpu" {
		t.Errorf("controllers: %q", got)
	}
	if got := delegate(t.TempDir(), dir); len(got) > 0 {
		t.Errorf("controllers of a hierarchy without any: %q", got)
	}
}

func TestGroupNames(t *testing.T) {
	mine := groupName(ownerPrefix, "abc")
	if ofDead(mine) {
		t.Errorf("%s of this process counts as left", mine)
	}
	dead := strings.Replace(mine, strconv.FormatUint(startTime(os.Getpid()), 10), "1", 1)
	if !ofDead(dead) {
		t.Errorf("%s of a process before this one does not count as left", dead)
	}
	f := strings.Split(dead, "-")
	f[2] = "1" // another pid namespace
	for _, name := range []string{strings.Join(f, "-"), "heddle-owner-abc", "other", ownerPrefix + "1-2-3"} {
		if ofDead(name) {
			t.Errorf("%s counts as left", name)
		}
	}
}

// TestSweepOfDeadOwners: cgroups of an owner that was killed together with its keeper are removed by any later
// manager, whatever its state directory.
func TestSweepOfDeadOwners(t *testing.T) {
	base, err := ownCgroup()
	if err != nil {
		t.Skipf("GAP: %v", err)
	}
	name := func(prefix string) string {
		return strings.Replace(groupName(prefix, randomID()), "-"+strconv.FormatUint(startTime(os.Getpid()), 10)+"-", "-1-", 1)
	}
	dirs := []string{filepath.Join(base, name(ownerPrefix))}
	leaf := filepath.Join(dirs[0], "box", "c1")
	if err := os.MkdirAll(leaf, 0o755); err != nil {
		t.Skipf("GAP: this host gives no cgroup: %v", err)
	}
	left := exec.Command("sleep", "600")
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan error, 1)
	go func() { gone <- left.Wait() }()
	if err := os.WriteFile(filepath.Join(leaf, "cgroup.procs"), []byte(strconv.Itoa(left.Process.Pid)), 0); err != nil {
		t.Fatal(err)
	}
	if pids := v1Groups()["pids"]; pids != "" {
		dirs = append(dirs, filepath.Join(pids, name(boxPrefix)))
		if err := os.Mkdir(dirs[1], 0o755); err != nil {
			dirs = dirs[:1]
		}
	}
	keep := filepath.Join(base, groupName(ownerPrefix, "alive"))
	if err := os.Mkdir(keep, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(keep)
	sweepGroups(slog.New(slog.DiscardHandler))
	<-gone
	for _, d := range dirs {
		if _, err := os.Stat(d); err == nil {
			t.Errorf("%s is still there", d)
		}
	}
	if _, err := os.Stat(keep); err != nil {
		t.Errorf("the cgroup of a live owner: %v", err)
	}
}
