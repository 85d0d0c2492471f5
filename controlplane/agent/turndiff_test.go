package agent

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func snap(path, content string) *executorv1.FileSnapshot {
	return &executorv1.FileSnapshot{Path: path, Exists: true, Content: []byte(content), Mode: 0o644}
}

func gone(path string) *executorv1.FileSnapshot { return &executorv1.FileSnapshot{Path: path} }

func TestTurnDiffFollowsFiles(t *testing.T) {
	var d turnDiff
	d.apply("/w", []*executorv1.FileSnapshot{snap("/w/a", "1\n"), gone("/w/new"), snap("/w/old", "x\n"), snap("/w/c", "c\n"), gone("/w/sub/d")},
		[]*executorv1.FileSnapshot{snap("/w/a", "2\n"), snap("/w/new", "n\n"), gone("/w/old"), gone("/w/c"), snap("/w/sub/d", "C\n")},
		[]*heddlev1.FileUpdate{{Path: "/w/a", Kind: "update"}, {Path: "/w/new", Kind: "add"}, {Path: "/w/old", Kind: "delete"}, {Path: "/w/c", Kind: "update", MovePath: "/w/sub/d"}})
	got := d.text()
	for _, want := range []string{
		"diff --git a/a b/a\nindex d00491fd7e5bb6fa28c517a0bb32b8b506539d4d..0cfbf08886fca9a91cb753ec8734c84fcbe52c9f\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+2\n",
		"diff --git a/new b/new\nnew file mode 100644\n", "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+n\n",
		"diff --git a/old b/old\ndeleted file mode 100644\n", "--- a/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
		"diff --git a/c b/sub/d\n", "--- a/c\n+++ b/sub/d\n@@ -1 +1 @@\n-c\n+C\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("diff lacks\n%s\ngot\n%s", want, got)
		}
	}
	// A change that is taken back is no change of the turn.
	d.apply("/w", []*executorv1.FileSnapshot{snap("/w/a", "2\n")}, []*executorv1.FileSnapshot{snap("/w/a", "1\n")}, []*heddlev1.FileUpdate{{Path: "/w/a", Kind: "update"}})
	if strings.Contains(d.text(), "b/a\n") {
		t.Errorf("still there:\n%s", d.text())
	}
	// A file that was added and deleted again never was.
	d.apply("/w", []*executorv1.FileSnapshot{snap("/w/new", "n\n")}, []*executorv1.FileSnapshot{gone("/w/new")}, []*heddlev1.FileUpdate{{Path: "/w/new", Kind: "delete"}})
	if strings.Contains(d.text(), "b/new") {
		t.Errorf("still there:\n%s", d.text())
	}
}

func TestTurnDiffOutsideAndBinary(t *testing.T) {
	var d turnDiff
	d.apply("/w", []*executorv1.FileSnapshot{gone("/etc/x"), snap("/w/b", "a\x00b")},
		[]*executorv1.FileSnapshot{snap("/etc/x", "no newline"), snap("/w/b", "c\x00d")}, nil)
	got := d.text()
	for _, want := range []string{"b/etc/x\n", "+no newline\n\\ No newline at end of file\n", "Binary files a/b and b/b differ\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("diff lacks %q\n%s", want, got)
		}
	}
}

// F4: a Latin-1 file, whose bytes no event can carry.
func TestTurnDiffOfOtherEncodings(t *testing.T) {
	var d turnDiff
	d.apply("/w", []*executorv1.FileSnapshot{snap("/w/latin", "caf\xe9\nx\n")}, []*executorv1.FileSnapshot{snap("/w/latin", "caf\xe9\nX\n")}, nil)
	if got, want := d.text(), "@@ -1,2 +1,2 @@\n caf\uFFFD\n-x\n+X\n"; !strings.Contains(got, want) {
		t.Errorf("diff lacks %q\n%q", want, got)
	}
	if _, err := proto.Marshal(diffUpdated("t", d.text(), "")); err != nil {
		t.Errorf("the diff cannot be recorded: %v", err)
	}
}

// TestUnifiedApplies turns random texts into each other with git apply.
func TestUnifiedApplies(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Fatal("this test needs git")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	text := func(base []string) []string {
		var out []string
		for _, l := range base {
			switch rng.IntN(8) {
			case 0:
			case 1:
				out = append(out, fmt.Sprintf("new %d\n", rng.IntN(5)))
			case 2:
				out = append(out, l, fmt.Sprintf("more %d\n", rng.IntN(5)))
			default:
				out = append(out, l)
			}
		}
		return out
	}
	for i := range 60 {
		var base []string
		for n := range rng.IntN(60) + 1 {
			base = append(base, fmt.Sprintf("line %d\n", n%(1+rng.IntN(40))))
		}
		a, b := text(base), text(base)
		if i%3 == 0 && len(b) > 0 {
			b[len(b)-1] = strings.TrimSuffix(b[len(b)-1], "\n")
		}
		from, to := strings.Join(a, ""), strings.Join(b, "")
		if from == to || from == "" || to == "" {
			continue
		}
		dir := t.TempDir()
		path := filepath.Join(dir, "f")
		if err := os.WriteFile(path, []byte(from), 0o600); err != nil {
			t.Fatal(err)
		}
		var d turnDiff
		d.apply(dir, []*executorv1.FileSnapshot{snap(path, from)}, []*executorv1.FileSnapshot{snap(path, to)}, nil)
		cmd := exec.Command("git", "apply", "--whitespace=nowarn", "-")
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(d.text())
		cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("round %d: %v %s\n%s", i, err, out, d.text())
		}
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, []byte(to)) {
			t.Fatalf("round %d: applied to another text, %v", i, err)
		}
	}
}

func TestHugeDifferenceIsBounded(t *testing.T) {
	var a, b []string
	for i := range 20000 {
		a, b = append(a, fmt.Sprintf("a%d\n", i)), append(b, fmt.Sprintf("b%d\n", i))
	}
	if got := strings.Count(unified(a, b), "\n"); got != 40001 {
		t.Fatalf("%d lines", got)
	}
}
