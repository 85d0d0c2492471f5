package sandboxtest_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/heddle-dev/heddle/sandbox"
	"github.com/heddle-dev/heddle/sandbox/sandboxtest"
)

func TestMain(m *testing.M) {
	sandboxtest.Attack()
	sandboxtest.Owner()
	os.Exit(m.Run())
}

// base makes a directory that contained sandboxes show at its own place.
func base(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "heddle-rows-") //nolint:usetesting // /tmp is private in a sandbox
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestRows(t *testing.T) {
	for i, level := range []sandbox.Level{sandbox.ReadOnly, sandbox.WorkspaceWrite, sandbox.FullAccess} {
		files := true // rows that do not depend on the kind run once
		for _, kind := range []string{"cgroup", "subreaper"} {
			t.Run(level.String()+"/"+kind, func(t *testing.T) { rows(t, i, level, sandboxtest.Host{NoCgroup: kind == "subreaper"}, &files) })
		}
	}
}

// TestRowsLandlock runs the table on a host without namespaces, with the fallback. What that cannot hold is in
// sandboxtest.LandlockGap with the reason, and reported by name.
func TestRowsLandlock(t *testing.T) {
	for i, level := range []sandbox.Level{sandbox.ReadOnly, sandbox.WorkspaceWrite} {
		files := true
		for _, kind := range []string{"cgroup", "subreaper"} {
			t.Run(level.String()+"/"+kind, func(t *testing.T) {
				rows(t, i, level, sandboxtest.Host{NoCgroup: kind == "subreaper", Landlock: true}, &files)
			})
		}
	}
}

func rows(t *testing.T, column int, level sandbox.Level, host sandboxtest.Host, files *bool) {
	t.Helper()
	dir := base(t)
	tool := filepath.Join(dir, "tool")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	copyFile(t, exe, tool)
	report := sandbox.Probe(context.Background(), sandbox.Config{StateDir: filepath.Join(dir, "probe"), GuestPath: sandboxtest.Helper(t), NoCgroup: host.NoCgroup})
	if !host.NoCgroup && !report.CgroupKill {
		gap(t, "this host gives no cgroup to "+who()+"; the subreaper rows cover it")
	}
	if host.Landlock {
		if abi := report.Landlock; abi < 6 {
			gap(t, fmt.Sprintf("the kernel has no Landlock ABI 6, with which the fallback is tested (it has %d)", abi))
		}
	} else if !report.Supports(level) {
		gap(t, fmt.Sprintf("level %s cannot be enforced: %s", level, report.Cause))
	}
	env := sandboxtest.NewEnv(t, dir, level, tool, host)
	env.Report = report
	for _, row := range sandboxtest.Rows() {
		want := sandboxtest.Verdict(row.Want[column])
		if want == sandboxtest.Skipped || !*files && sandboxtest.ByFiles(row.ID) {
			continue
		}
		t.Run(row.ID, func(t *testing.T) {
			e := *env
			e.T = t
			if host.Landlock {
				if why := sandboxtest.LandlockGap(row, level); why != "" {
					t.Skipf("GAP of the fallback: %s", why)
				}
			}
			if row.Gap != nil {
				if why := row.Gap(&e); why != "" {
					gap(t, why)
				}
			}
			if got := row.Do(&e); got != want {
				t.Errorf("%s (%s): %c, want %c", row.ID, row.What, got, want)
			}
		})
	}
	*files = false
}

// gap reports a row that this host cannot hold. With REQUIRE_SANDBOX=1 only what is beyond this kind of machine
// may be missing: a feature of a newer kernel, and cgroups for a user to whom none are delegated.
func gap(t *testing.T, why string) {
	t.Helper()
	beyond := strings.Contains(why, "kernel has no") || os.Geteuid() != 0 && strings.Contains(why, "cgroup")
	if os.Getenv("REQUIRE_SANDBOX") == "1" && !beyond {
		t.Fatalf("GAP: %s", why)
	}
	t.Skipf("GAP: %s", why)
}

func who() string {
	if os.Geteuid() == 0 {
		return "root"
	}
	return "an ordinary user"
}

// TestRowsAsUser runs the table again as an ordinary user, who has no entry in any user database and no
// delegated ids or cgroups.
func TestRowsAsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		return // TestRows already does
	}
	const uid = 61357
	dir := base(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin, helper := filepath.Join(dir, "sandboxtest.test"), filepath.Join(dir, "heddle-guest")
	copyFile(t, exe, bin)
	copyFile(t, sandboxtest.Helper(t), helper)
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(home, uid, uid); err != nil {
		t.Fatal(err)
	}
	disk := filepath.Join(dir, "disk")
	unmount, err := sandboxtest.SmallDisk(disk, uid)
	if err != nil {
		t.Fatal(err)
	}
	defer unmount()
	setuid := filepath.Join(dir, "setuid")
	copyFile(t, exe, setuid)
	if err := os.Chmod(setuid, 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(bin, "-test.run=^TestRows$", "-test.v")
	c.Dir = home
	c.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + home, "HEDDLE_GUEST=" + helper, sandboxtest.DiskEnv + "=" + disk, sandboxtest.SetuidEnv + "=" + setuid, "REQUIRE_SANDBOX=" + os.Getenv("REQUIRE_SANDBOX")}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err = c.Run()
	if err != nil || testing.Verbose() {
		os.Stderr.Write(out.Bytes())
	}
	if err != nil {
		t.Fatalf("rows as an ordinary user: %v", err)
	}
	if strings.Count(out.String(), "--- PASS") < 50 {
		t.Fatalf("rows did not run:\n%s", out.String())
	}
}
