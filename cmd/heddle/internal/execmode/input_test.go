package execmode_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/cmd/heddle/internal/execmode"
)

func pipeWith(t *testing.T, text string, closed bool) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close(); _ = w.Close() })
	go func() {
		_, _ = io.WriteString(w, text)
		if closed {
			_ = w.Close()
		}
	}()
	return r
}

func TestPromptSources(t *testing.T) {
	large := strings.Repeat("0123456789abcdef", 2<<20/16)
	cases := map[string]struct {
		arg   string
		stdin func(t *testing.T) *os.File
		want  string
		fails bool
	}{
		"stdin":                {"", func(t *testing.T) *os.File { t.Helper(); return pipeWith(t, "from stdin\n", true) }, "from stdin\n", false},
		"dash":                 {"-", func(t *testing.T) *os.File { t.Helper(); return pipeWith(t, "x", true) }, "x", false},
		"F3 2 MiB, byte-exact": {"", func(t *testing.T) *os.File { t.Helper(); return pipeWith(t, large, true) }, large, false},
		"empty stdin":          {"", func(t *testing.T) *os.File { t.Helper(); return pipeWith(t, " \n", true) }, "", true},
		"argument and stdin":   {"sum up", func(t *testing.T) *os.File { t.Helper(); return pipeWith(t, "data\n", true) }, "sum up\n\n<stdin>\ndata\n</stdin>", false},
		"argument, empty":      {"say hi", func(t *testing.T) *os.File { t.Helper(); return pipeWith(t, "", true) }, "say hi", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := execmode.ReadPrompt(c.arg, c.stdin(t), io.Discard)
			if got != c.want || (err != nil) != c.fails {
				t.Errorf("got %.40q, %v", got, err)
			}
		})
	}
}

// X1: a prompt that was given never waits for an open stdin, nor fails on a
// closed one.
func TestX1OpenAndClosedStdin(t *testing.T) {
	var notes bytes.Buffer
	begin := time.Now()
	got, err := execmode.ReadPrompt("say hi", pipeWith(t, "", false), &notes)
	if got != "say hi" || err != nil || time.Since(begin) > 10*time.Second {
		t.Errorf("open stdin: %q, %v after %v", got, err, time.Since(begin))
	}
	if !strings.Contains(notes.String(), "stays open") {
		t.Errorf("nothing said about the open stdin: %q", notes.String())
	}
	closed, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	if got, err := execmode.ReadPrompt("say hi", closed, io.Discard); got != "say hi" || err != nil {
		t.Errorf("closed stdin: %q, %v", got, err)
	}
}

func TestInRepository(t *testing.T) {
	dir := t.TempDir()
	inner := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	if execmode.InRepository("/proc/self") {
		t.Error("no repository there")
	}
	// A linked work tree has a file instead of a folder.
	if err := os.WriteFile(filepath.Join(dir, "a", ".git"), []byte("gitdir: elsewhere\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !execmode.InRepository(inner) {
		t.Error("the work tree was not found")
	}
}
