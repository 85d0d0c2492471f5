package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLimits(t *testing.T) {
	home := Home{Dir: t.TempDir()}
	load := func(over map[string]any) *Config {
		t.Helper()
		c, err := Load(Options{Home: home, Cwd: "/", Overrides: over})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if l := load(nil).Limits(); l != nil {
		t.Errorf("nothing configured: %v", l)
	}
	l := load(map[string]any{"sandbox": map[string]any{"memory_bytes": int64(5), "pids": int64(7), "cpu_millis": int64(1500)}}).Limits()
	if l.GetMemoryBytes() != 5 || l.GetPids() != 7 || l.GetCpuMillis() != 1500 || l.GetTmpBytes() != 0 {
		t.Errorf("%v", l)
	}
}

// TestDenyRead: every layer adds, and none lifts what another one denies.
func TestDenyRead(t *testing.T) {
	home := Home{Dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(home.Dir, ConfigFile), []byte("[sandbox]\ndeny_read = [\"~/.ssh\", \"**/.env\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(Options{Home: home, Cwd: "/", Overrides: map[string]any{"sandbox": map[string]any{"deny_read": []any{"secrets", "~/.ssh"}}},
		Thread: map[string]any{"sandbox": map[string]any{"deny_read": []any{}}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.DenyRead(), " "); got != "**/.env secrets ~/.ssh" || len(c.Warnings()) > 0 {
		t.Errorf("denied %q, warnings %v", got, c.Warnings())
	}
}
