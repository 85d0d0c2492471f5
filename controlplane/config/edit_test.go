package config

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestApplyEdits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in    string
		edits []Edit
		want  string
	}{
		"new file":              {"", []Edit{{Key: "model", Value: "x"}}, "model = \"x\"\n"},
		"value keeps comment":   {"# top\nmodel = 'a' # why\n\n[t]\nk = 1\n", []Edit{{Key: "model", Value: "b"}}, "# top\nmodel = \"b\" # why\n\n[t]\nk = 1\n"},
		"behind the root keys":  {"a = 1\n\n# about t\n[t]\nk = 1\n", []Edit{{Key: "b", Value: true}}, "a = 1\nb = true\n\n# about t\n[t]\nk = 1\n"},
		"above the first table": {"# file\n\n# about t\n[t]\nk = 1\n", []Edit{{Key: "b", Value: 2}}, "# file\n\nb = 2\n\n# about t\n[t]\nk = 1\n"},
		"no last line end":      {"a = 1", []Edit{{Key: "b", Value: 2}}, "a = 1\nb = 2\n"},
		"in its table":          {"[t]\nk = 1 # one\n\n[u]\nz = 1\n", []Edit{{Key: "t.l", Value: 2}}, "[t]\nk = 1 # one\nl = 2\n\n[u]\nz = 1\n"},
		"new table":             {"a = 1\n", []Edit{{Key: `projects."/w s".trust_level`, Value: "trusted"}}, "a = 1\n\n[projects.\"/w s\"]\ntrust_level = \"trusted\"\n"},
		"dotted table":          {"tools.a = true\n", []Edit{{Key: "tools.b", Value: true}}, "tools.a = true\ntools.b = true\n"},
		"inline table":          {"t = { a = 1 } # c\n", []Edit{{Key: "t.b", Value: "q\"\n"}}, "t = { a = 1, b = \"q\\\"\\n\" } # c\n"},
		"remove":                {"a = 1\n# keep\nb = [\n 1, # x\n 2,\n] # gone\nc = 3\n", []Edit{{Key: "b"}}, "a = 1\n# keep\nc = 3\n"},
		"remove what is not":    {"a = 1\n", []Edit{{Key: "b.c"}}, "a = 1\n"},
		"remove a table":        {"a = 1\n[t]\nk = 1\n[t.u]\nz = 2\n[v]\nw = 1\n", []Edit{{Key: "t"}}, "a = 1\n[v]\nw = 1\n"},
		"remove inside inline":  {"t = { a = 1, b = 2 }\n", []Edit{{Key: "t.a"}}, "t = { b = 2 }\n"},
		"replace a table":       {"[t]\na = 1\nb = 2\n", []Edit{{Key: "t", Value: map[string]any{"c": 3.0}}}, "[t]\nc = 3\n"},
		"upsert a table":        {"[t]\na = 1\nb = 2 # two\n", []Edit{{Key: "t", Value: map[string]any{"a": 9, "c": 3.5}, Upsert: true}}, "[t]\na = 9\nb = 2 # two\nc = 3.5\n"},
		"array of tables":       {"[[p]]\nx = 1\n[[p]]\nx = 2\n", []Edit{{Key: "a", Value: 1}}, "a = 1\n\n[[p]]\nx = 1\n[[p]]\nx = 2\n"},
		"array over tables":     {"a = 1\n[[p]]\nx = 1\n", []Edit{{Key: "p", Value: []any{"z"}}}, "a = 1\np = [\"z\"]\n"},
		"crlf":                  {"a = 1\r\nb = 2\r\n", []Edit{{Key: "a", Value: 5}, {Key: "c", Value: 3}}, "a = 5\r\nb = 2\r\nc = 3\r\n"},
		"literal text":          {"a = '''x\n= y'''\nb = 1\n", []Edit{{Key: "a", Value: "n"}}, "a = \"n\"\nb = 1\n"},
		"scalar becomes table":  {"a = 1 # c\n", []Edit{{Key: "a.b", Value: 2}}, "a = { b = 2 } # c\n"},
		"two edits":             {"a = 1\n", []Edit{{Key: "b.c", Value: 1}, {Key: "b.d", Value: 2}}, "a = 1\n\n[b]\nc = 1\nd = 2\n"},
		"control characters":    {"", []Edit{{Key: "k", Value: "\x00\x1b\u007f\u2028"}}, "k = \"\\u0000\\u001B\\u007F\u2028\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ApplyEdits([]byte(c.in), c.edits)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

func TestApplyEditsRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   string
		edit Edit
	}{
		"file does not parse": {"a = = 1\n", Edit{Key: "b", Value: 1}},
		"below an array":      {"[[p]]\nx = 1\n", Edit{Key: "p.x", Value: 2}},
		"null in a list":      {"", Edit{Key: "a", Value: []any{nil}}},
		"no key":              {"", Edit{Key: "a..b", Value: 1}},
		"no value":            {"", Edit{Key: "a", Value: struct{}{}}},
	} {
		if got, err := ApplyEdits([]byte(c.in), []Edit{c.edit}); err == nil {
			t.Errorf("%s: accepted: %q", name, got)
		}
	}
}

// FuzzApplyEdits checks that an edit changes what it names and nothing else, and
// that comments survive.
func FuzzApplyEdits(f *testing.F) {
	f.Add("# c\na = 1 # d\n[t]\nb.c = { x = 'y' }\n[[z]]\nq=1\n", "t.b.c.x", "v", false)
	f.Add("a.b = 1\n[c.d]\n", `c."x y"`, "\x00", false)
	f.Add("\xEF\xBB\xBF[a]\r\n", "a.b", "", true)
	f.Add("x=[\n1,#n\n2]\n[y]\nz={}", "y.z.w", "k", false)
	f.Fuzz(func(t *testing.T, doc, key, value string, remove bool) {
		before, err := parseTree([]byte(doc))
		path, kerr := splitKey(key)
		if err != nil || kerr != nil || len(doc) > 4096 {
			return
		}
		e := Edit{Key: key, Value: strings.ToValidUTF8(value, "\uFFFD")}
		if remove {
			e.Value = nil
		}
		out, err := ApplyEdits([]byte(doc), []Edit{e})
		if err != nil {
			return
		}
		after, err := parseTree(out)
		if err != nil {
			t.Fatalf("%q does not parse: %v", out, err)
		}
		if !remove && lookup(after, path...) != e.Value {
			t.Fatalf("%q does not have the value", out)
		}
		dropPath(before, path)
		dropPath(after, path)
		if !sameTree(before, after) {
			t.Fatalf("another key changed: %q became %q", doc, out)
		}
	})
}

// dropPath removes a key, or the value on the way to it that was no table.
func dropPath(tree map[string]any, path []string) {
	for n := 1; n <= len(path); n++ {
		if _, is := lookup(tree, path[:n]...).(map[string]any); !is || n == len(path) {
			remove(tree, path[:n])
			return
		}
	}
}

func TestWriter(t *testing.T) {
	t.Parallel()
	home := Home{Dir: t.TempDir()}
	w := NewWriter(home)
	first, err := w.Write("", "", []Edit{{Key: "model", Value: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	if first.Path != home.Path() {
		t.Errorf("path %s", first.Path)
	}
	for name, c := range map[string]struct {
		file, version string
		edits         []Edit
		code, text    string
	}{
		"stale version":  {"", "sha256:0", []Edit{{Key: "model", Value: "b"}}, CodeVersionConflict, "modified"},
		"other file":     {filepath.Join(home.Dir, "other.toml"), "", []Edit{{Key: "model", Value: "b"}}, CodeReadonly, "user config"},
		"empty key":      {"", "", []Edit{{Key: ""}}, CodeValidation, "keyPath must not be empty"},
		"wrong value":    {"", "", []Edit{{Key: "approval_policy", Value: "sometimes"}}, CodeValidation, "sometimes"},
		"one of several": {"", first.Version, []Edit{{Key: "model", Value: "b"}, {Key: "sandbox_mode", Value: "x"}}, CodeValidation, "sandbox_mode"},
	} {
		_, err := w.Write(c.file, c.version, c.edits)
		var we *WriteError
		if !errors.As(err, &we) || we.Code != c.code || !strings.Contains(we.Message, c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if data, _ := os.ReadFile(home.Path()); string(data) != "model = \"a\"\n" {
		t.Errorf("a refused write changed the file: %q", data)
	}
	if _, err := w.Write(home.Path(), first.Version, []Edit{{Key: "model", Value: nil}, {Key: "unknown_key.x", Value: 1}}); err != nil {
		t.Errorf("unknown keys are accepted: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(home.Dir, ".*tmp")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

func TestWriterKeepsEarlierMistakes(t *testing.T) {
	t.Parallel()
	home := Home{Dir: t.TempDir()}
	if err := os.WriteFile(home.Path(), []byte("sandbox_mode = \"odd\"\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := NewWriter(home).Write("", "", []Edit{{Key: "model", Value: "a"}}); err != nil {
		t.Fatalf("a mistake elsewhere in the file stopped the write: %v", err)
	}
	if info, _ := os.Stat(home.Path()); info.Mode().Perm() != 0o640 {
		t.Errorf("mode became %v", info.Mode())
	}
}

func TestWriterFollowsLink(t *testing.T) {
	t.Parallel()
	home, dots := Home{Dir: t.TempDir()}, t.TempDir()
	target := filepath.Join(dots, "heddle.toml")
	if err := os.Symlink(target, home.Path()); err != nil {
		t.Fatal(err)
	}
	w := NewWriter(home)
	var we *WriteError
	if _, err := w.Write("", "", []Edit{{Key: "model", Value: "a"}}); !errors.As(err, &we) || we.Code != CodeReadonly {
		t.Errorf("broken link: %v", err)
	}
	if err := os.WriteFile(target, []byte("# mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write("", "", []Edit{{Key: "model", Value: "a"}}); err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Lstat(home.Path()); info.Mode()&os.ModeSymlink == 0 {
		t.Error("the link was replaced")
	}
	if data, _ := os.ReadFile(target); string(data) != "# mine\nmodel = \"a\"\n" {
		t.Errorf("target: %q", data)
	}
}

func TestWriterConcurrent(t *testing.T) {
	t.Parallel()
	home := Home{Dir: t.TempDir()}
	w := NewWriter(home)
	var wg sync.WaitGroup
	const writers = 20
	for i := range writers {
		wg.Go(func() {
			if _, err := w.Write("", "", []Edit{{Key: "features.f" + string(rune('a'+i)), Value: true}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	data, err := os.ReadFile(home.Path())
	if err != nil || bytes.Count(data, []byte("true")) != writers {
		t.Errorf("%v\n%s", err, data)
	}
}
