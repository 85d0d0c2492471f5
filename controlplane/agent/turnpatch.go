package agent

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"slices"
	"strings"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// maxListedFiles and maxListedNames bound the list of a diff's files, by
	// number and by the bytes of their names.
	maxListedFiles = 500
	maxListedNames = 64 << 10
)

// turnPatch is the kept form of a turn's diff: unlike the text that clients are
// shown, it has the exact bytes of the files, also of binary ones, and the names
// that git apply needs.
type turnPatch struct {
	data      []byte
	files     []*heddlev1.ChangedFile
	truncated bool
}

// patch makes the kept form. What the turn changed before a restart that left no
// draft is taken from the text that was recorded then.
func (d *turnDiff) patch() turnPatch {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := priorPatch(d.prior)
	p.truncated = p.truncated || d.uncertain
	prior := len(p.files)
	files := slices.Clone(d.list)
	slices.SortFunc(files, func(a, b *diffFile) int { return strings.Compare(a.is, b.is) })
	var b bytes.Buffer
	b.Write(p.data)
	for _, f := range files {
		changed := f.change(d.cwd)
		if changed == nil {
			continue
		}
		if p.add(changed, prior) {
			// Readers take the two parts of a file for alternatives.
			p.truncated = true
		}
		if b.Len() > maxDiffBytes {
			p.truncated = true
			continue
		}
		if !f.writePatch(&b, changed) {
			p.truncated = true
		}
	}
	p.data = b.Bytes()
	return p
}

// add lists a changed file. It reports whether it is among the first files,
// those of before a restart, and was changed on.
func (p *turnPatch) add(c *heddlev1.ChangedFile, first int) bool {
	from := c.GetPath()
	if c.GetPreviousPath() != "" {
		from = c.GetPreviousPath()
	}
	i := slices.IndexFunc(p.files[:first], func(o *heddlev1.ChangedFile) bool { return o.GetPath() == from && o.GetKind() != "delete" })
	if i < 0 {
		p.files = append(p.files, c)
		return false
	}
	earlier := p.files[i]
	earlier.Path, earlier.NewBlob = c.GetPath(), c.GetNewBlob()
	switch {
	case c.GetKind() == "delete":
		earlier.Kind = "delete"
	case c.GetKind() == "move" && earlier.GetKind() == "update":
		earlier.Kind, earlier.PreviousPath = "move", from
	}
	return true
}

// change describes what became of the file; nil when nothing did.
func (f *diffFile) change(cwd string) *heddlev1.ChangedFile {
	was, is := f.before.GetExists(), f.exists()
	switch {
	case !was && !is, was && is && f.same():
		return nil
	}
	c := &heddlev1.ChangedFile{Path: relative(cwd, f.is), Kind: "update"}
	if was && !f.before.GetOmitted() {
		c.OldBlob = blob(f.before.GetContent())
	}
	if is && !f.after.GetOmitted() {
		c.NewBlob = blob(f.after.GetContent())
	}
	switch {
	case !was:
		c.Kind = "add"
	case !is:
		c.Kind, c.Path = "delete", relative(cwd, f.was)
	case f.was != f.is:
		c.Kind, c.PreviousPath = "move", relative(cwd, f.was)
	}
	return c
}

// exists reports whether there is a file now.
func (f *diffFile) exists() bool {
	return f.after.GetExists() && (f.after.GetPath() == f.is || f.is == f.was)
}

// same reports whether the file is where and what it was.
func (f *diffFile) same() bool {
	return f.was == f.is && bytes.Equal(f.before.GetContent(), f.after.GetContent()) && f.before.GetMode() == f.after.GetMode() &&
		!f.before.GetOmitted() && !f.after.GetOmitted()
}

// writePatch writes the part of one file. It returns false when the file was too
// large to be looked at, so that only its name could be written.
func (f *diffFile) writePatch(b *bytes.Buffer, c *heddlev1.ChangedFile) bool {
	oldName := c.GetPath()
	if c.GetPreviousPath() != "" {
		oldName = c.GetPreviousPath()
	}
	oldMode, newMode := gitMode(f.before.GetMode()), gitMode(f.after.GetMode())
	oldLabel, newLabel := quoted("a/"+oldName), quoted("b/"+c.GetPath())
	oldHash, newHash := c.GetOldBlob(), c.GetNewBlob()
	fmt.Fprintf(b, "diff --git %s %s\n", oldLabel, newLabel)
	switch c.GetKind() {
	case "add":
		fmt.Fprintf(b, "new file mode %o\n", newMode)
		oldHash, oldLabel = noBlob, noFile
	case "delete":
		fmt.Fprintf(b, "deleted file mode %o\n", oldMode)
		newHash, newLabel = noBlob, noFile
	default:
		if oldMode != newMode {
			fmt.Fprintf(b, "old mode %o\nnew mode %o\n", oldMode, newMode)
		}
		if c.GetKind() == "move" {
			fmt.Fprintf(b, "rename from %s\nrename to %s\n", quoted(oldName), quoted(c.GetPath()))
		}
	}
	if f.before.GetOmitted() || f.after.GetOmitted() {
		fmt.Fprintf(b, "Binary files %s and %s differ\n", oldLabel, newLabel)
		return false
	}
	if oldHash == newHash {
		return true
	}
	fmt.Fprintf(b, "index %s..%s\n", oldHash, newHash)
	from, to := f.content(f.before, c.GetKind() != "add"), f.content(f.after, c.GetKind() != "delete")
	if binary(from) || binary(to) {
		b.WriteString("GIT binary patch\n")
		writeLiteral(b, to)
		writeLiteral(b, from)
		return true
	}
	if hunks := unified(splitLines(from), splitLines(to)); hunks != "" {
		fmt.Fprintf(b, "--- %s\n+++ %s\n%s", tabbed(oldLabel), tabbed(newLabel), hunks)
	}
	return true
}

func (f *diffFile) content(s *executorv1.FileSnapshot, there bool) []byte {
	if !there {
		return nil
	}
	return s.GetContent()
}

// quoted writes a name as git does: in C quotes when it has a character that
// could be taken for something else.
func quoted(name string) string {
	plain := strings.IndexFunc(name, func(r rune) bool { return r < 0x20 || r == '"' || r == '\\' || r == 0x7f }) < 0
	if plain {
		return name
	}
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(name) {
		switch c := name[i]; {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < 0x20 || c >= 0x7f:
			fmt.Fprintf(&b, "\\%03o", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// tabbed ends a name with spaces by a tab, so that readers see where it ends.
func tabbed(label string) string {
	if strings.ContainsRune(label, ' ') && !strings.HasPrefix(label, `"`) {
		return label + "\t"
	}
	return label
}

// git85 are the digits of git's base 85.
const git85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"

// writeLiteral writes whole content as a part of git's binary patches: deflated,
// in lines of up to 52 bytes that begin with their length.
func writeLiteral(b *bytes.Buffer, content []byte) {
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	// A buffer takes everything.
	_, _ = z.Write(content)
	_ = z.Close()
	fmt.Fprintf(b, "literal %d\n", len(content))
	for line := range slices.Chunk(packed.Bytes(), 52) {
		if n := len(line); n <= 26 {
			b.WriteByte(byte('A' + n - 1))
		} else {
			b.WriteByte(byte('a' + n - 27))
		}
		for group := range slices.Chunk(line, 4) {
			var v uint32
			for i := range 4 {
				v <<= 8
				if i < len(group) {
					v |= uint32(group[i])
				}
			}
			var digits [5]byte
			for i := 4; i >= 0; i-- {
				digits[i] = git85[v%85]
				v /= 85
			}
			b.Write(digits[:])
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
}

// artifact describes the patch for the turn's record, files bounded.
func (p turnPatch) artifact(turnID, base string) *heddlev1.DiffArtifact {
	out := &heddlev1.DiffArtifact{BaseCommit: base, TurnId: turnID, Truncated: p.truncated, Files: p.files}
	names := 0
	for i, f := range p.files {
		names += len(f.GetPath()) + len(f.GetPreviousPath())
		if i >= maxListedFiles || names > maxListedNames {
			out.Files, out.FilesOmitted = p.files[:i], int32(len(p.files)-i)
			break
		}
	}
	return out
}
