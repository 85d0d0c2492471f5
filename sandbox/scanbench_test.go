package sandbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/heddle-dev/heddle/sandbox"
)

// BenchmarkTrueInTree is `true` in workspaces of different sizes: what the look for repositories adds.
func BenchmarkTrueInTree(b *testing.B) {
	for _, dirs := range []int{0, 100, 2000, 30000} {
		b.Run(fmt.Sprint(dirs), func(b *testing.B) {
			ws := b.TempDir()
			for i := range dirs {
				if err := os.MkdirAll(filepath.Join(ws, fmt.Sprint("d", i%40), fmt.Sprint("e", i)), 0o755); err != nil {
					b.Fatal(err)
				}
			}
			s := acquire(b, manager(b), sandbox.Policy{Level: sandbox.WorkspaceWrite, Workspace: ws})
			run(b, s, sandbox.Cmd{Argv: []string{"true"}})
			b.ResetTimer()
			for b.Loop() {
				run(b, s, sandbox.Cmd{Argv: []string{"true"}})
			}
		})
	}
}
