package agent

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	noFile     = "/dev/null"
	noBlob     = "0000000000000000000000000000000000000000"
	plainMode  = 0o100644
	execMode   = 0o100755
	contextLen = 3
	// maxDiffBytes bounds the text of one turn's diff.
	maxDiffBytes = 8 << 20
)

// turnDiff follows the files that the patches of one turn change, from what they
// were at first to what they are now. The zero value is ready.
type turnDiff struct {
	mu sync.Mutex
	// prior is the diff of what the turn changed before a restart.
	prior string
	cwd   string
	list  []*diffFile
	// base is the commit of the repository before the first change, once it was
	// looked for.
	base   string
	looked bool
	// pending is the patch that is being written, applied the one that was
	// written last, by the id of its action.
	pending *pendingPatch
	applied string
	// uncertain is set when it is not known whether a patch was written.
	uncertain bool
}

// diffFile is one file: where and what it was, where and what it is.
type diffFile struct {
	was, is       string
	before, after *executorv1.FileSnapshot
}

// apply adds the snapshots around one written patch.
func (d *turnDiff) apply(cwd string, before, after []*executorv1.FileSnapshot, changes []*heddlev1.FileUpdate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cwd == "" {
		d.cwd = cwd
	}
	for _, s := range before {
		if d.find(s.GetPath()) == nil {
			d.list = append(d.list, &diffFile{was: s.GetPath(), is: s.GetPath(), before: s, after: s})
		}
	}
	for _, c := range changes {
		from := d.find(c.GetPath())
		if c.GetMovePath() == "" || from == nil || !from.before.GetExists() {
			continue
		}
		// The moved file takes the place of an absent target.
		if to := d.find(c.GetMovePath()); to == nil || !to.before.GetExists() {
			d.list = slices.DeleteFunc(d.list, func(f *diffFile) bool { return f == to && to != nil })
			from.is = c.GetMovePath()
		}
	}
	for _, s := range after {
		if f := d.find(s.GetPath()); f != nil {
			f.after = s
		} else {
			gone := &executorv1.FileSnapshot{Path: s.GetPath()}
			d.list = append(d.list, &diffFile{was: s.GetPath(), is: s.GetPath(), before: gone, after: s})
		}
	}
}

// find returns the file that is at path now.
func (d *turnDiff) find(path string) *diffFile {
	for _, f := range d.list {
		if f.is == path {
			return f
		}
	}
	return nil
}

// text is the git-style diff of the turn so far; empty when nothing changed. Bytes
// of a file that are no UTF-8 are replaced: events carry text.
func (d *turnDiff) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	files := slices.Clone(d.list)
	slices.SortFunc(files, func(a, b *diffFile) int { return strings.Compare(a.is, b.is) })
	var b strings.Builder
	b.WriteString(d.prior)
	for _, f := range files {
		f.write(&b, d.cwd)
		if b.Len() > maxDiffBytes {
			fmt.Fprintf(&b, "# diff cut at %d bytes\n", maxDiffBytes)
			break
		}
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD")
}

func (f *diffFile) write(b *strings.Builder, cwd string) {
	was, is := f.before.GetExists(), f.after.GetExists()
	if f.after.GetPath() != f.is && f.is != f.was {
		is = false
	}
	same := f.was == f.is && bytes.Equal(f.before.GetContent(), f.after.GetContent()) && f.before.GetMode() == f.after.GetMode()
	if (!was && !is) || (was && is && same) {
		return
	}
	oldName, newName := relative(cwd, f.was), relative(cwd, f.is)
	fmt.Fprintf(b, "diff --git a/%s b/%s\n", oldName, newName)
	oldMode, newMode := gitMode(f.before.GetMode()), gitMode(f.after.GetMode())
	oldHash, newHash := blob(f.before.GetContent()), blob(f.after.GetContent())
	oldLabel, newLabel := "a/"+oldName, "b/"+newName
	switch {
	case !was:
		fmt.Fprintf(b, "new file mode %o\n", newMode)
		oldHash, oldLabel = noBlob, noFile
	case !is:
		fmt.Fprintf(b, "deleted file mode %o\n", oldMode)
		newHash, newLabel = noBlob, noFile
	case oldMode != newMode:
		fmt.Fprintf(b, "old mode %o\nnew mode %o\n", oldMode, newMode)
	}
	fmt.Fprintf(b, "index %s..%s\n", oldHash, newHash)
	if f.before.GetOmitted() || f.after.GetOmitted() || binary(f.before.GetContent()) || binary(f.after.GetContent()) {
		fmt.Fprintf(b, "Binary files %s and %s differ\n", oldLabel, newLabel)
		return
	}
	hunks := unified(splitLines(f.before.GetContent()), splitLines(f.after.GetContent()))
	if hunks == "" {
		return
	}
	fmt.Fprintf(b, "--- %s\n+++ %s\n%s", oldLabel, newLabel, hunks)
}

func relative(cwd, path string) string {
	rel, err := filepath.Rel(cwd, path)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return strings.TrimPrefix(path, "/")
	}
	return rel
}

func gitMode(mode uint32) uint32 {
	if mode&0o100 != 0 {
		return execMode
	}
	return plainMode
}

// blob is the object id that git gives the content.
func blob(content []byte) string {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", len(content))
	h.Write(content)
	return hex.EncodeToString(h.Sum(nil))
}

func binary(content []byte) bool {
	return bytes.IndexByte(content[:min(len(content), 8000)], 0) >= 0
}

// splitLines keeps the line ends.
func splitLines(content []byte) []string {
	if len(content) == 0 {
		return nil
	}
	lines := strings.SplitAfter(string(content), "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}
