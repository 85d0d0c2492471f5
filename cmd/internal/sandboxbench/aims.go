package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/heddle-dev/heddle/sandbox"
)

const (
	setupRoot     = 40 * time.Millisecond
	setupRootless = 30 * time.Millisecond
	firstWait     = 5 * time.Millisecond
	liveAtOnce    = 16 // sandboxes that are made at the same time
	ordinaryUser  = 61357
)

// aim is a figure beside what it is to be.
type aim struct{ what, got, want, verdict string }

func (b *bench) aim(what, got string, ok bool, want string) {
	verdict := "MISS"
	if ok {
		verdict = "pass"
	}
	b.aims = append(b.aims, aim{what, got, want, verdict})
}

func (b *bench) verdicts() {
	b.line("\naim\tmeasured\twanted\t")
	for _, a := range b.aims {
		b.line("%s\t%s\t%s\t%s", a.what, a.got, a.want, a.verdict)
	}
	b.line("load average at the end %s", load())
}

// commandAim judges a ratio to the bare command of the same rounds.
func (b *bench) commandAim(command, variant string, r float64) {
	limits := map[string]float64{"/bin/true sandbox, cgroup": 1.6, "/bin/true sandbox, no cgroup": 1.4,
		"/bin/bash -lc echo hi sandbox, cgroup": 1.25, "/bin/bash -lc echo hi sandbox, no cgroup": 1.25}
	if limit, ok := limits[command+" "+variant]; ok {
		b.aim(command+" ("+variant+")", fmt.Sprintf("%.2fx bare", r), r <= limit, fmt.Sprintf("%.2fx", limit))
	}
}

// setupAims judges the making of a sandbox, and as root that of an ordinary user, by a process of one.
func (b *bench) setupAims(here time.Duration) error {
	if os.Geteuid() != 0 {
		b.aim("set-up, rootless", ms(here), here <= setupRootless, ms(setupRootless))
		return nil
	}
	b.aim("set-up, root", ms(here), here <= setupRoot, ms(setupRoot))
	dir := filepath.Join(b.dir, "ordinary")
	helper, self := filepath.Join(dir, "heddle-guest"), filepath.Join(dir, "sandboxbench")
	exe, err := os.Executable()
	if err == nil {
		err = errors.Join(os.Mkdir(dir, 0o755), os.Chmod(b.dir, 0o755), copyProgram(b.guest, helper), copyProgram(exe, self))
	}
	if err != nil {
		return err
	}
	c := exec.Command(self, "-only", "setup", "-guest", helper)
	c.Dir, c.Env = "/", environment
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinaryUser, Gid: ordinaryUser}}
	out, err := c.Output()
	if err != nil { // what an ordinary user cannot do here is said, not left out
		b.aims = append(b.aims, aim{"set-up, rootless", "an ordinary user cannot: " + err.Error(), ms(setupRootless), "?"})
		return nil
	}
	us, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return err
	}
	took := time.Duration(us) * time.Microsecond
	b.line("make a sandbox\trootless\t%s", ms(took))
	b.aim("set-up, rootless", ms(took), took <= setupRootless, ms(setupRootless))
	return nil
}

func copyProgram(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

// setupOnly prints the median time of making a sandbox.
func setupOnly(guest string, n int) error {
	dir, err := os.MkdirTemp("/var/tmp", "sandboxbench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	m, err := sandbox.NewManager(ctx, sandbox.Config{StateDir: filepath.Join(dir, "state"), GuestPath: guest})
	if err != nil {
		return err
	}
	defer m.Close(ctx)
	b := &bench{dir: dir, m: m}
	var took []time.Duration
	for i := range n {
		scope := strconv.Itoa(i)
		b.workspace("ws-" + scope)
		d, err := timed(func() error { _, err := b.acquire(ctx, m, scope); return err })
		if err != nil {
			return err
		}
		took = append(took, d)
		if err := m.Release(ctx, scope); err != nil {
			return err
		}
	}
	fmt.Println(median(took).Microseconds())
	return nil
}

// live makes n sandboxes that live at once, and runs a command in each while all of them do.
func (b *bench) live(ctx context.Context, n int) error {
	if n == 0 {
		return nil
	}
	boxes, errs := make([]*sandbox.Sandbox, n), make([]error, n)
	slots := make(chan struct{}, liveAtOnce)
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range n {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			boxes[i], errs[i] = b.acquire(ctx, b.m, "live"+strconv.Itoa(i))
		})
	}
	wg.Wait()
	made := time.Since(begin)
	err := errors.Join(errs...)
	if err == nil {
		for i, s := range boxes {
			if err = in(ctx, s)("/bin/true"); err != nil {
				err = fmt.Errorf("sandbox %d of %d: %w", i, n, err)
				break
			}
		}
	}
	got := "all ran a command, made in " + made.Round(time.Millisecond).String()
	if err != nil {
		got = err.Error()
	}
	b.aim(fmt.Sprintf("%d live sandboxes", n), got, err == nil, "all work")
	for i := range n {
		if rerr := b.m.Release(ctx, "live"+strconv.Itoa(i)); rerr != nil {
			return rerr
		}
	}
	return nil
}

// load is the machine's load average of the last minute.
func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(data), " ")
	return first
}
