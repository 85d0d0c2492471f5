package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What the client says reaches the server whole, and what the server still says
// after the client's end reaches the client.
func TestProxy(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HEDDLE_HOME", home)
	var out, errs strings.Builder
	if code := run([]string{"app-server", "proxy"}, strings.NewReader(""), &out, &errs); code != exitFailed || !strings.Contains(errs.String(), "no app-server answers") {
		t.Errorf("without a server: exit %d, %s", code, errs.String())
	}
	path := controlSocket(home)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			got <- err.Error()
			return
		}
		defer c.Close()
		data, _ := io.ReadAll(c)
		got <- string(data)
		_, _ = io.WriteString(c, "answer\x00\xff")
	}()
	errs.Reset()
	code := run([]string{"app-server", "proxy", "-c", "model=x", "--enable", "y"}, strings.NewReader("question\x00\xfe"), &out, &errs)
	if text := <-got; code != exitOK || text != "question\x00\xfe" || out.String() != "answer\x00\xff" {
		t.Errorf("exit %d, the server got %q, the client %q, %s", code, text, out.String(), errs.String())
	}
}
