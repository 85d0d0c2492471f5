package agent

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// tree is a folder as a turn sees it.
type tree map[string]string

func (tr tree) snap(dir, name string) *executorv1.FileSnapshot {
	content, ok := tr[name]
	if !ok {
		return gone(filepath.Join(dir, name))
	}
	return snap(filepath.Join(dir, name), content)
}

// change writes one patch of random changes and tells the diff of it.
func (tr tree) change(rng *rand.Rand, d *turnDiff, dir string, text func() string) {
	names := []string{"a", "b", "sub/c", "with space", "sub/two words.txt", "ünï", `quo"te`, "tab\there"}
	name, other := names[rng.IntN(len(names))], names[rng.IntN(len(names))]
	before := []*executorv1.FileSnapshot{tr.snap(dir, name)}
	update := &heddlev1.FileUpdate{Path: filepath.Join(dir, name), Kind: "update"}
	_, there := tr[name]
	switch {
	case !there:
		update.Kind = "add"
		tr[name] = text()
	case rng.IntN(4) == 0:
		update.Kind = "delete"
		delete(tr, name)
	case rng.IntN(3) == 0 && other != name:
		before = append(before, tr.snap(dir, other))
		update.MovePath = filepath.Join(dir, other)
		moved := tr[name]
		if rng.IntN(2) == 0 {
			moved = text()
		}
		delete(tr, name)
		tr[other] = moved
	default:
		tr[name] = text()
	}
	after := []*executorv1.FileSnapshot{tr.snap(dir, name)}
	if update.GetMovePath() != "" {
		after = append(after, tr.snap(dir, other))
	}
	d.apply(dir, before, after, []*heddlev1.FileUpdate{update})
}

func (tr tree) write(t *testing.T, dir string) {
	t.Helper()
	for name, content := range tr {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func readTree(t *testing.T, dir string) tree {
	t.Helper()
	out := tree{}
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		out[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The patch of a turn turns the files of its beginning into those of its end,
// whatever it added, moved, deleted or edited, text and binary, and also when
// others edited between its patches.
func TestTurnPatchApplies(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Fatal("this test needs git")
	}
	rng := rand.New(rand.NewPCG(7, 8))
	text := func() string {
		var b strings.Builder
		for range rng.IntN(40) {
			fmt.Fprintf(&b, "line %d\n", rng.IntN(30))
		}
		switch rng.IntN(6) {
		case 0:
			b.WriteString("no end of line")
		case 1:
			b.WriteString("\x00\x01binary\xff" + strings.Repeat("z", rng.IntN(200)))
		case 2:
			b.WriteString("caf\xe9\n")
		}
		return b.String()
	}
	for round := range 150 {
		dir := t.TempDir()
		now := tree{"a": text(), "sub/c": text(), "with space": text()}
		start := maps.Clone(now)
		var d turnDiff
		for range rng.IntN(6) + 1 {
			now.change(rng, &d, dir, text)
			if rng.IntN(4) == 0 && len(d.list) > 0 {
				// Somebody else edits a file that the turn changed; the next patch of
				// the file shows it.
				if f := d.list[rng.IntN(len(d.list))]; f.exists() {
					name := relative(dir, f.is)
					was := now.snap(dir, name)
					now[name] += "from outside\n"
					edited := now.snap(dir, name)
					now[name] += "and the turn\n"
					d.apply(dir, []*executorv1.FileSnapshot{edited}, []*executorv1.FileSnapshot{now.snap(dir, name)}, []*heddlev1.FileUpdate{{Path: was.GetPath(), Kind: "update"}})
				}
			}
		}
		start.write(t, dir)
		p := d.patch()
		if p.truncated {
			t.Fatalf("round %d: truncated", round)
		}
		applyPatch(t, dir, p.data)
		if got := readTree(t, dir); !maps.Equal(got, now) {
			t.Fatalf("round %d: got %q\nwant %q\npatch\n%s", round, got, now, p.data)
		}
		checkListed(t, p.files, start, now)
	}
}

func applyPatch(t *testing.T, dir string, patch []byte) {
	t.Helper()
	if len(patch) == 0 {
		return
	}
	cmd := exec.Command("git", "apply", "--whitespace=nowarn", "-")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(string(patch))
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git apply: %v %s\n%s", err, out, patch)
	}
}

// checkListed compares the list of changed files with the trees.
func checkListed(t *testing.T, files []*heddlev1.ChangedFile, start, now tree) {
	t.Helper()
	touched := map[string]bool{}
	for _, f := range files {
		from := f.GetPath()
		if f.GetPreviousPath() != "" {
			from = f.GetPreviousPath()
		}
		touched[f.GetPath()], touched[from] = true, true
		if content, ok := start[from]; f.GetOldBlob() != "" && (!ok || blob([]byte(content)) != f.GetOldBlob()) {
			t.Errorf("%v: not what was at first", f)
		}
		if content, ok := now[f.GetPath()]; f.GetNewBlob() != "" && (!ok || blob([]byte(content)) != f.GetNewBlob()) {
			t.Errorf("%v: not what is now", f)
		}
	}
	for name := range start {
		if content, ok := now[name]; (!ok || content != start[name]) && !touched[name] {
			t.Errorf("%s is not listed: %v", name, files)
		}
	}
	for name := range now {
		if _, ok := start[name]; !ok && !touched[name] {
			t.Errorf("%s is not listed: %v", name, files)
		}
	}
}

// After a restart without a draft the patch holds what was recorded before, and
// says that it is not exact when a file was changed on both sides.
func TestTurnPatchFromRecordedText(t *testing.T) {
	dir := t.TempDir()
	var first turnDiff
	first.apply(dir, []*executorv1.FileSnapshot{snap(dir+"/edited", "1\n2\n"), snap(dir+"/old", "x\ny\nz\n"), gone(dir + "/new"), snap(dir+"/with space", "w\n"), snap(dir+"/renamed", "same\n")},
		[]*executorv1.FileSnapshot{snap(dir+"/edited", "1\n3\n"), gone(dir + "/old"), snap(dir+"/moved", "x\nY\nz\n"), snap(dir+"/new", "n\n"), snap(dir+"/with space", "W\n"), gone(dir + "/renamed"), snap(dir+"/to", "same\n")},
		[]*heddlev1.FileUpdate{{Path: dir + "/old", Kind: "update", MovePath: dir + "/moved"}, {Path: dir + "/renamed", Kind: "update", MovePath: dir + "/to"}})
	second := turnDiff{prior: first.text()}
	second.apply(dir, []*executorv1.FileSnapshot{gone(dir + "/later")}, []*executorv1.FileSnapshot{snap(dir+"/later", "l\n")}, nil)
	tree{"edited": "1\n2\n", "old": "x\ny\nz\n", "with space": "w\n", "renamed": "same\n"}.write(t, dir)
	p := second.patch()
	applyPatch(t, dir, p.data)
	want := tree{"edited": "1\n3\n", "moved": "x\nY\nz\n", "with space": "W\n", "to": "same\n", "new": "n\n", "later": "l\n"}
	if got := readTree(t, dir); !maps.Equal(got, want) || p.truncated {
		t.Errorf("got %q, truncated %v\n%s", got, p.truncated, p.data)
	}
	second.apply(dir, []*executorv1.FileSnapshot{snap(dir+"/edited", "1\n3\n"), snap(dir+"/new", "n\n")}, []*executorv1.FileSnapshot{snap(dir+"/edited", "1\n4\n"), gone(dir + "/new")}, nil)
	p = second.patch()
	var kinds []string
	for _, f := range p.files {
		kinds = append(kinds, f.GetKind()+" "+f.GetPath())
	}
	slices.Sort(kinds)
	if got, want := strings.Join(kinds, ", "), "add later, delete new, move moved, move to, update edited, update with space"; got != want || !p.truncated {
		t.Errorf("files: %s, truncated %v", got, p.truncated)
	}
}

// With its draft a diff goes on as if nothing had happened.
func TestTurnPatchFromDraft(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	text := func() string { return fmt.Sprintf("line %d\n\xff\x00%d", rng.IntN(9), rng.IntN(9)) }
	for range 30 {
		dir := t.TempDir()
		now := tree{"a": text(), "sub/c": text()}
		start := maps.Clone(now)
		d := &turnDiff{}
		for range rng.IntN(5) + 1 {
			now.change(rng, d, dir, text)
			d.base, d.applied = "base", "last"
			d.pending = &pendingPatch{action: "next", before: []*executorv1.FileSnapshot{gone(dir + "/z")}}
			data, err := d.encode()
			if err != nil {
				t.Fatal(err)
			}
			d = &turnDiff{}
			if err := d.decode(data); err != nil {
				t.Fatal(err)
			}
		}
		if d.base != "base" || d.applied != "last" || d.pending.action != "next" || len(d.pending.before) != 1 {
			t.Fatalf("restored: %+v", d)
		}
		start.write(t, dir)
		applyPatch(t, dir, d.patch().data)
		if got := readTree(t, dir); !maps.Equal(got, now) {
			t.Fatalf("got %q\nwant %q", got, now)
		}
	}
	var d turnDiff
	if err := d.decode([]byte("{torn")); err == nil {
		t.Error("a torn draft was read")
	}
}

func TestTurnPatchSaysWhatItLeavesOut(t *testing.T) {
	var d turnDiff
	large := snap("/w/large", "")
	large.Omitted = true
	d.apply("/w", []*executorv1.FileSnapshot{large}, []*executorv1.FileSnapshot{large}, nil)
	if p := d.patch(); !p.truncated || len(p.files) != 1 {
		t.Errorf("a file that was not looked at: %+v", p)
	}
	var many turnDiff
	for i := range 3 {
		name := fmt.Sprintf("/w/f%d", i)
		many.apply("/w", []*executorv1.FileSnapshot{gone(name)}, []*executorv1.FileSnapshot{snap(name, strings.Repeat("line\n", 1_200_000))}, nil)
	}
	if p := many.patch(); !p.truncated || len(p.files) != 3 || len(p.data) > 2*maxDiffBytes {
		t.Errorf("a large patch: %d files, %d bytes, truncated %v", len(p.files), len(p.data), p.truncated)
	}
	var listed turnDiff
	for i := range maxListedFiles + 7 {
		name := fmt.Sprintf("/w/f%d", i)
		listed.apply("/w", []*executorv1.FileSnapshot{gone(name)}, []*executorv1.FileSnapshot{snap(name, "x\n")}, nil)
	}
	if a := listed.patch().artifact("t", "base"); len(a.GetFiles()) != maxListedFiles || a.GetFilesOmitted() != 7 || a.GetBaseCommit() != "base" {
		t.Errorf("listed %d, omitted %d", len(a.GetFiles()), a.GetFilesOmitted())
	}
}
