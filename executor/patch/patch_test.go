package patch_test

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"strings"
	"syscall"
	"testing"

	"github.com/heddle-dev/heddle/executor/patch"
)

// memFS is files in memory; failing paths give their error to Write.
type memFS struct {
	files   map[string]patch.File
	dirs    map[string]bool
	failing map[string]error
	xdev    bool
}

func newFS(files map[string]string) *memFS {
	m := &memFS{files: map[string]patch.File{}, dirs: map[string]bool{"/": true, "/w": true}, failing: map[string]error{}}
	for path, data := range files {
		m.files[path] = patch.File{Data: []byte(data), Mode: 0o640}
	}
	return m
}

func missing(op, path string) error { return &fs.PathError{Op: op, Path: path, Err: syscall.ENOENT} }

func (m *memFS) Read(_ context.Context, path string) (patch.File, error) {
	f, ok := m.files[path]
	if !ok {
		return f, missing("open", path)
	}
	return f, nil
}

func (m *memFS) Exists(_ context.Context, path string) (bool, error) {
	_, ok := m.files[path]
	return ok || m.dirs[path], nil
}

func (m *memFS) Write(_ context.Context, path string, f patch.File) error {
	if err := m.failing[path]; err != nil {
		return err
	}
	if old, ok := m.files[path]; ok {
		f.Mode = old.Mode
	}
	m.files[path] = f
	return nil
}

func (m *memFS) MkdirAll(_ context.Context, path string) error {
	for p := path; p != "/"; p = p[:max(strings.LastIndexByte(p, '/'), 1)] {
		m.dirs[p] = true
		if strings.Count(p, "/") == 1 {
			break
		}
	}
	return nil
}

func (m *memFS) Rename(_ context.Context, from, to string) error {
	if m.xdev {
		return &fs.PathError{Op: "rename", Path: from, Err: syscall.EXDEV}
	}
	f, ok := m.files[from]
	if !ok {
		return missing("rename", from)
	}
	delete(m.files, from)
	m.files[to] = f
	return nil
}

func (m *memFS) Remove(_ context.Context, path string) error {
	if err := m.failing[path]; err != nil {
		return err
	}
	if m.dirs[path] {
		delete(m.dirs, path)
		return nil
	}
	if _, ok := m.files[path]; !ok {
		return missing("remove", path)
	}
	delete(m.files, path)
	return nil
}

func (m *memFS) texts() map[string]string {
	out := map[string]string{}
	for path, f := range m.files {
		out[path] = string(f.Data)
	}
	return out
}

func wrap(body string) string { return "*** Begin Patch\n" + body + "\n*** End Patch\n" }

// update applies a patch body to one file and returns its new content.
func update(t *testing.T, before, body string) (string, error) {
	t.Helper()
	m := newFS(map[string]string{"/w/f": before})
	p, err := patch.Make(t.Context(), m, wrap("*** Update File: f\n"+body), "/w")
	if err != nil {
		if _, ok := errors.AsType[*patch.RejectedError](err); !ok {
			t.Fatalf("error is %T: %v", err, err)
		}
		return "", err
	}
	if err := patch.Commit(t.Context(), m, p); err != nil {
		t.Fatal(err)
	}
	return string(m.files["/w/f"].Data), nil
}

func TestUpdate(t *testing.T) {
	for name, c := range map[string]struct{ before, body, after string }{
		"replace in the middle":          {"a\nb\nc\n", "@@\n a\n-b\n+B\n c", "a\nB\nc\n"},
		"first hunk without header":      {"a\nb\n", " a\n-b\n+B", "a\nB\n"},
		"two hunks in order":             {"a\nx\nb\nx\n", "@@\n a\n-x\n+1\n@@\n b\n-x\n+2", "a\n1\nb\n2\n"},
		"second hunk continues forward":  {"x\nx\nx\n", "@@\n-x\n+1\n@@\n-x\n+2", "1\n2\nx\n"},
		"header narrows":                 {"def a():\n  x\ndef b():\n  x\n", "@@ def b():\n-  x\n+  y", "def a():\n  x\ndef b():\n  y\n"},
		"header without indentation":     {"class A:\n  def f():\n    x\nclass B:\n  def f():\n    x\n", "@@ class B:\n@@ def f():\n-    x\n+    y", "class A:\n  def f():\n    x\nclass B:\n  def f():\n    y\n"},
		"header repeated as context":     {"def b():\n  x\n", "@@ def b():\n def b():\n-  x\n+  y", "def b():\n  y\n"},
		"unified header":                 {"a\nb\n", "@@ -1,2 +1,2 @@ func x\n a\n-b\n+B", "a\nB\n"},
		"end of file":                    {"x\na\nx\n", "@@\n-x\n+y\n*** End of File", "x\na\ny\n"},
		"addition at its context":        {"a\nb\nc\n", "@@\n a\n+n\n b", "a\nn\nb\nc\n"},
		"addition after a header":        {"a\nb\nc\n", "@@ b\n+n", "a\nb\nn\nc\n"},
		"addition without context":       {"a\n", "@@\n+n", "a\nn\n"},
		"into an empty file":             {"", "@@\n+n", "n\n"},
		"everything removed":             {"a\n", "@@\n-a", ""},
		"trailing spaces differ":         {"a  \nb\n", "@@\n a\n-b\n+B", "a  \nB\n"},
		"typography differs":             {"say “hi” – now\nb\n", "@@\n say \"hi\" - now\n-b\n+B", "say “hi” – now\nB\n"},
		"exact match wins over an early": {"a \nb\na\nb\n", "@@\n a\n-b\n+B", "a \nb\na\nB\n"},
		"blank context line unmarked":    {"a\n\nb\n", "@@\n a\n\n-b\n+B", "a\n\nB\n"},
		"blank line before the end mark": {"a\nb\n", "@@\n a\n-b\n+B\n", "a\nB\n"},
		"marker text as content":         {"*** End Patch\nb\n", "@@\n *** End Patch\n-b\n+B", "*** End Patch\nB\n"},
		"line starting with dashes":      {"--x\ny\n", "@@\n---x\n+++x\n y", "++x\ny\n"},
		"CRLF file (F4)":                 {"a\r\nb\r\nc\r\n", "@@\n a\n-b\n+B\n+B2\n c", "a\r\nB\r\nB2\r\nc\r\n"},
		"CRLF, no final newline (F4)":    {"a\r\nb", "@@\n a\n-b\n+B", "a\r\nB"},
		"CRLF, appended, still without":  {"a\r\nb", "@@\n a\n b\n+c", "a\r\nb\r\nc"},
		"no final newline (F4)":          {"a\nb", "@@\n a\n-b\n+B", "a\nB"},
		"Latin-1 bytes stay (F4)":        {"caf\xe9\nb\n\xff\xfe\n", "@@\n-b\n+B", "caf\xe9\nB\n\xff\xfe\n"},
		"Latin-1 as context":             {"caf\xe9\nb\n", "@@\n café\n-b\n+crème", "caf\xe9\ncr\xe8me\n"},
		"invalid bytes shown replaced":   {"x\xff\xfey\nb\n", "@@\n x\uFFFD\uFFFDy\n-b\n+B", "x\xff\xfey\nB\n"},
		"mixed line ends keep theirs":    {"a\r\nb\nc\nd\n", "@@\n a\n-b\n+B", "a\r\nB\nc\nd\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := update(t, c.before, c.body)
			if err != nil || got != c.after {
				t.Fatalf("got %q, %v, want %q", got, err, c.after)
			}
		})
	}
}

func TestUpdateRejected(t *testing.T) {
	for name, c := range map[string]struct{ before, body, part string }{
		"lines not there":        {"one\n", "@@\n-zzz\n+b", "Failed to find expected lines in f:\nzzz"},
		"wrong context":          {"a\nb\n", "@@\n c\n-b\n+B", "expected lines"},
		"indentation differs":    {"  a\n", "@@\n-a\n+b", "expected lines"},
		"backwards":              {"a\nb\n", "@@\n-b\n+B\n@@\n-a\n+A", "expected lines"},
		"header not there":       {"a\n", "@@ def x():\n-a\n+b", "Failed to find context 'def x():' in f"},
		"no hunk":                {"a\n", "", "changes nothing"},
		"hunk without lines":     {"a\n", "@@\n@@\n", "without lines"},
		"line without mark":      {"a\n", "@@\nxx", "must start with"},
		"replacement character":  {"\xff\nb\n", "@@\n-b\n+\uFFFD", "not UTF-8"},
		"unknown marker in hunk": {"a\n", "@@\n-a\n+b\n*** Rename File: x", "not a valid hunk header"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := update(t, c.before, c.body)
			if err == nil || !strings.Contains(err.Error(), c.part) {
				t.Fatalf("got %q, %v, want an error with %q", got, err, c.part)
			}
		})
	}
}

func TestParseForms(t *testing.T) {
	body := "*** Update File: f\n@@\n-a\n+b"
	for name, text := range map[string]string{
		"plain":              wrap(body),
		"no final newline":   "*** Begin Patch\n" + body + "\n*** End Patch",
		"spaces at markers":  "  *** Begin Patch \n*** Update File:  f \n@@\n-a\n+b\n *** End Patch  ",
		"blank lines around": "\n\n" + wrap(body) + "\n\n",
		"heredoc":            "<<'EOF'\n" + wrap(body) + "EOF\n",
		"heredoc, command":   "apply_patch <<\"PATCH\"\n" + wrap(body) + "PATCH",
		"CRLF patch":         strings.ReplaceAll(wrap(body), "\n", "\r\n"),
	} {
		m := newFS(map[string]string{"/w/f": "a\n"})
		p, err := patch.Make(t.Context(), m, text, "/w")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := string(p.Changes[0].After.Data); got != "b\n" {
			t.Errorf("%s: %q", name, got)
		}
	}
	for text, part := range map[string]string{
		"garbage":                            "'*** Begin Patch'",
		"":                                   "'*** Begin Patch'",
		"*** Begin Patch\n*** Add File: a":   "'*** End Patch'",
		wrap(""):                             "changes no file",
		wrap("xx"):                           "not a valid hunk header",
		wrap("*** Add File: \n+x"):           "path is missing",
		wrap("*** Update File: none\n-a"):    "Failed to read file to update none",
		wrap("*** Delete File: none"):        "Failed to read file to delete none",
		strings.Repeat("x", patch.MaxText+1): "the limit is",
	} {
		_, err := patch.Make(t.Context(), newFS(nil), text, "/w")
		if r, ok := errors.AsType[*patch.RejectedError](err); !ok || !strings.Contains(r.Reason, part) {
			t.Errorf("%.40q: %v, want %q", text, err, part)
		}
	}
}

const allKinds = "*** Add File: new.txt\n+hello\n+world\n*** Update File: a.txt\n@@\n one\n-two\n+TWO\n three\n" +
	"*** Delete File: b.txt\n*** Update File: c.txt\n*** Move to: sub/d.txt\n@@\n-c\n+C"

func allFiles() map[string]string {
	return map[string]string{"/w/a.txt": "one\ntwo\nthree\n", "/w/b.txt": "b\n", "/w/c.txt": "c\n"}
}

func TestPlanOfAllKinds(t *testing.T) {
	m := newFS(allFiles())
	p, err := patch.Make(t.Context(), m, wrap(allKinds), "/w")
	if err != nil {
		t.Fatal(err)
	}
	want := []struct{ path, kind, move, diff string }{
		{"/w/a.txt", "update", "", "@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n"},
		{"/w/b.txt", "delete", "", "b\n"},
		{"/w/c.txt", "update", "/w/sub/d.txt", "@@ -1 +1 @@\n-c\n+C\n"},
		{"/w/new.txt", "add", "", "hello\nworld\n"},
	}
	if len(p.Changes) != len(want) {
		t.Fatalf("%d changes", len(p.Changes))
	}
	for i, w := range want {
		c := p.Changes[i]
		if c.Path != w.path || c.Kind != w.kind || c.MovePath != w.move || c.Diff() != w.diff {
			t.Errorf("change %d: %s %s %q %q, want %v", i, c.Kind, c.Path, c.MovePath, c.Diff(), w)
		}
	}
	if p.Summary != "A new.txt\nM a.txt\nM sub/d.txt\nD b.txt\n" {
		t.Errorf("summary %q", p.Summary)
	}
	h := p.Hashes()
	if len(h) != 5 || len(h["/w/a.txt"]) != 32 || len(h["/w/new.txt"]) != 0 || h["/w/new.txt"] == nil {
		t.Errorf("hashes: %v", h)
	}
	if !maps.Equal(m.texts(), allFiles()) {
		t.Error("planning wrote")
	}
	if err := patch.Commit(t.Context(), m, p); err != nil {
		t.Fatal(err)
	}
	after := map[string]string{"/w/a.txt": "one\nTWO\nthree\n", "/w/sub/d.txt": "C\n", "/w/new.txt": "hello\nworld\n"}
	if !maps.Equal(m.texts(), after) {
		t.Errorf("after: %v", m.texts())
	}
	if m.files["/w/sub/d.txt"].Mode != 0o640 {
		t.Errorf("mode of the moved file: %v", m.files["/w/sub/d.txt"].Mode)
	}
}

// F5: one wrong hunk and nothing is changed.
func TestWrongHunkChangesNothing(t *testing.T) {
	m := newFS(allFiles())
	bad := strings.Replace(allKinds, "-c\n+C", "-wrong\n+C", 1)
	if _, err := patch.Make(t.Context(), m, wrap(bad), "/w"); err == nil {
		t.Fatal("the plan was made")
	}
	if !maps.Equal(m.texts(), allFiles()) {
		t.Errorf("files: %v", m.texts())
	}
}

func TestCommitRestores(t *testing.T) {
	for _, xdev := range []bool{false, true} {
		for _, fail := range []string{"/w/a.txt", "/w/sub/d.txt", "/w/new.txt", "/w/b.txt"} {
			m := newFS(allFiles())
			m.xdev = xdev
			p, err := patch.Make(t.Context(), m, wrap(allKinds), "/w")
			if err != nil {
				t.Fatal(err)
			}
			m.failing[fail] = errors.New("disk full")
			if err := patch.Commit(t.Context(), m, p); err == nil || !strings.Contains(err.Error(), "disk full") {
				t.Fatalf("%s: commit: %v", fail, err)
			}
			if !maps.Equal(m.texts(), allFiles()) || m.dirs["/w/sub"] {
				t.Errorf("%s (xdev %v): files %v, folders %v", fail, xdev, m.texts(), m.dirs)
			}
		}
	}
}

func TestCommitRefusesChangedBase(t *testing.T) {
	m := newFS(allFiles())
	p, err := patch.Make(t.Context(), m, wrap(allKinds), "/w")
	if err != nil {
		t.Fatal(err)
	}
	m.files["/w/c.txt"] = patch.File{Data: []byte("other\n")}
	err = patch.Commit(t.Context(), m, p)
	if c, ok := errors.AsType[*patch.ChangedError](err); !ok || c.Path != "/w/c.txt" {
		t.Fatalf("commit: %v", err)
	}
	want := allFiles()
	want["/w/c.txt"] = "other\n"
	if !maps.Equal(m.texts(), want) {
		t.Errorf("files: %v", m.texts())
	}
}

func TestSectionsBuildOnEachOther(t *testing.T) {
	for name, c := range map[string]struct {
		body  string
		kinds string
		after map[string]string
	}{
		"update twice":       {"*** Update File: a\n@@\n-1\n+2\n*** Update File: a\n@@\n-2\n+3", "update:a", map[string]string{"/w/a": "3\n"}},
		"add then update":    {"*** Add File: n\n+1\n*** Update File: n\n@@\n-1\n+2", "add:n", map[string]string{"/w/a": "1\n", "/w/n": "2\n"}},
		"move then update":   {"*** Update File: a\n*** Move to: m\n*** Update File: m\n@@\n-1\n+2", "update:a>m", map[string]string{"/w/m": "2\n"}},
		"move twice":         {"*** Update File: a\n*** Move to: m\n*** Update File: m\n*** Move to: k", "update:a>k", map[string]string{"/w/k": "1\n"}},
		"move, source anew":  {"*** Update File: a\n*** Move to: m\n*** Add File: a\n+x", "add:a add:m", map[string]string{"/w/a": "x\n", "/w/m": "1\n"}},
		"add then delete":    {"*** Add File: n\n+1\n*** Delete File: n\n*** Update File: a\n@@\n-1\n+2", "update:a", map[string]string{"/w/a": "2\n"}},
		"delete then add":    {"*** Delete File: a\n*** Add File: a\n+x", "add:a", map[string]string{"/w/a": "x\n"}},
		"add over existing":  {"*** Add File: a\n+x", "add:a", map[string]string{"/w/a": "x\n"}},
		"move onto itself":   {"*** Update File: a\n*** Move to: ./a\n@@\n-1\n+2", "update:a", map[string]string{"/w/a": "2\n"}},
		"move and delete it": {"*** Update File: a\n*** Move to: m\n*** Delete File: m", "delete:a", map[string]string{}},
		"empty lines added":  {"*** Add File: n\n+1\n\n+2", "add:n", map[string]string{"/w/a": "1\n", "/w/n": "1\n\n2\n"}},
	} {
		m := newFS(map[string]string{"/w/a": "1\n"})
		p, err := patch.Make(t.Context(), m, wrap(c.body), "/w")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var kinds []string
		for _, ch := range p.Changes {
			k := ch.Kind + ":" + strings.TrimPrefix(ch.Path, "/w/")
			if ch.MovePath != "" {
				k += ">" + strings.TrimPrefix(ch.MovePath, "/w/")
			}
			kinds = append(kinds, k)
			_ = ch.Diff()
		}
		if got := strings.Join(kinds, " "); got != c.kinds {
			t.Errorf("%s: changes %q, want %q", name, got, c.kinds)
		}
		if err := patch.Commit(t.Context(), m, p); err != nil {
			t.Errorf("%s: commit: %v", name, err)
		}
		if !maps.Equal(m.texts(), c.after) {
			t.Errorf("%s: after %v, want %v", name, m.texts(), c.after)
		}
	}
}
