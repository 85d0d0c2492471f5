// Package archtest fails on an import that crosses a boundary of the design:
// proto and sandbox import nothing of ours, controlplane and gateway only proto,
// executor only proto and sandbox, and nothing imports cmd.
package archtest

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/heddle-dev/heddle/"

// rooms maps each top-level folder to the other ones it may import.
var rooms = map[string][]string{
	"proto":        nil,
	"sandbox":      nil,
	"controlplane": {"proto"},
	"gateway":      {"proto"},
	"executor":     {"proto", "sandbox"},
	"cmd":          {"proto", "sandbox", "controlplane", "gateway", "executor"},
}

// confined maps a third-party import prefix to the folders that may use it.
var confined = map[string][]string{
	"go.etcd.io/bbolt":                        {"controlplane/store/boltstore", "executor/journal"},
	"github.com/opencontainers/runc":          {"sandbox/runc", "cmd/heddle-guest"},
	"github.com/opencontainers/cgroups":       {"sandbox/runc", "cmd/heddle-guest"},
	"github.com/grpc-ecosystem/grpc-gateway/": {"gateway/httpapi", "proto"},
	"github.com/coder/websocket":              {"gateway", "cmd/heddle/internal/e2e", "cmd/heddle/internal/robust"},
	"github.com/openai/openai-go/":            {"controlplane/agent/model"},
}

// private maps a package of ours to the only folders that may import it.
var private = map[string][]string{
	"sandbox/runc": {"cmd/heddle-guest"},
}

type imported struct{ file, path string }

func TestImportBoundaries(t *testing.T) {
	all := imports(t)
	if len(all) < 50 {
		t.Fatalf("found %d imports in the tree; the walk is broken", len(all))
	}
	for _, im := range all {
		for _, problem := range check(im) {
			t.Error(problem)
		}
	}
}

func TestCheckCatchesViolations(t *testing.T) {
	bad := []imported{
		{"gateway/x.go", module + "controlplane/store"},
		{"proto/errdefs/x.go", module + "sandbox"},
		{"executor/x.go", module + "cmd/heddle"},
		{"controlplane/eventlog/x.go", "go.etcd.io/bbolt"},
		{"executor/runner/x.go", module + "sandbox/runc"},
	}
	for _, im := range bad {
		if len(check(im)) == 0 {
			t.Errorf("%s importing %s was let through", im.file, im.path)
		}
	}
	good := []imported{
		{"executor/x.go", module + "sandbox"},
		{"executor/x.go", module + "executor/runner"},
		{"controlplane/store/boltstore/x.go", "go.etcd.io/bbolt"},
	}
	for _, im := range good {
		if p := check(im); len(p) != 0 {
			t.Errorf("%s importing %s was refused: %v", im.file, im.path, p)
		}
	}
}

func check(im imported) []string {
	var out []string
	room, _, _ := strings.Cut(im.file, "/")
	if rest, ours := strings.CutPrefix(im.path, module); ours {
		target, _, _ := strings.Cut(rest, "/")
		if target != room && !contains(rooms[room], target) {
			out = append(out, im.file+": "+room+" must not import "+target+" ("+im.path+")")
		}
		for pkg, users := range private {
			if under(rest, pkg) && !under(im.file, pkg) && !anyUnder(im.file, users) {
				out = append(out, im.file+": only "+strings.Join(users, ", ")+" may import "+pkg)
			}
		}
	}
	for prefix, users := range confined {
		if strings.HasPrefix(im.path, prefix) && !anyUnder(im.file, users) {
			out = append(out, im.file+": only "+strings.Join(users, ", ")+" may import "+prefix)
		}
	}
	return out
}

func imports(t *testing.T) []imported {
	t.Helper()
	root := moduleRoot(t)
	var all []imported
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != root && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			all = append(all, imported{filepath.ToSlash(rel), p})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = parent
	}
}

func under(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

func anyUnder(path string, folders []string) bool {
	for _, f := range folders {
		if under(path, f) {
			return true
		}
	}
	return false
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}
