package config

import "testing"

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
