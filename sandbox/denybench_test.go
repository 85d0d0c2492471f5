package sandbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/heddle-dev/heddle/sandbox"
)

// BenchmarkStartDenied is the start of a sandbox in a workspace of ten thousand files, with and without a pattern that
// denies all of them.
func BenchmarkStartDenied(b *testing.B) {
	ws := b.TempDir()
	for i := range 10000 {
		path := filepath.Join(ws, fmt.Sprint("d", i/100), fmt.Sprint(i%100, ".key"))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	m := manager(b)
	for _, deny := range [][]string{nil, {"**/*.key"}} {
		b.Run(fmt.Sprint(len(deny)), func(b *testing.B) {
			for b.Loop() {
				acquire(b, m, sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: ws, DenyRead: deny})
				b.StopTimer()
				if err := m.Release(b.Context(), b.Name()); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
