package execmode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Bounds of the input.
const (
	maxPrompt = 16 << 20
	maxImage  = 20 << 20
	// pipedWait is how long piped input beside a prompt may take to end. A
	// prompt that was given never waits for an open pipe for longer.
	pipedWait = time.Second
)

// ErrNoPrompt says that there is nothing to do.
var ErrNoPrompt = errors.New("no prompt: give one as an argument, or pipe it into stdin")

// ReadPrompt returns the request. Without an argument, or with "-", it is what
// stdin holds up to its end. With an argument, what stdin holds is appended as a
// <stdin> block if it ends soon; one that stays open is left alone.
func ReadPrompt(arg string, stdin *os.File, stderr io.Writer) (string, error) {
	info, err := stdin.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	if arg == "" || arg == "-" {
		if arg == "" && terminal || err != nil {
			return "", ErrNoPrompt
		}
		fmt.Fprintln(stderr, "Reading prompt from stdin...")
		text, err := readText(stdin)
		if err != nil {
			return "", err
		}
		if strings.TrimSpace(text) == "" {
			return "", errors.New("no prompt: stdin was empty")
		}
		return text, nil
	}
	if terminal || err != nil {
		return arg, nil
	}
	type result struct {
		text string
		err  error
	}
	read := make(chan result, 1)
	go func() {
		text, err := readText(stdin)
		read <- result{text, err}
	}()
	select {
	case r := <-read:
		if r.err != nil || strings.TrimSpace(r.text) == "" {
			return arg, nil
		}
		return arg + "\n\n<stdin>\n" + strings.TrimSuffix(r.text, "\n") + "\n</stdin>", nil
	case <-time.After(pipedWait):
		fmt.Fprintln(stderr, "stdin stays open and is not read; use - to read the prompt from it")
		return arg, nil
	}
}

func readText(r io.Reader) (string, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxPrompt+1))
	if err != nil {
		return "", fmt.Errorf("read prompt from stdin: %w", err)
	}
	if len(data) > maxPrompt {
		return "", fmt.Errorf("the prompt on stdin is longer than %d bytes", maxPrompt)
	}
	if at := invalidAt(data); at >= 0 {
		return "", fmt.Errorf("the prompt on stdin is not UTF-8 text: byte %d is 0x%02x; convert it first, for example with iconv", at, data[at])
	}
	return string(data), nil
}

// invalidAt is the position of the first byte that is not part of a UTF-8
// character, -1 when there is none.
func invalidAt(data []byte) int {
	for at := 0; at < len(data); {
		r, size := utf8.DecodeRune(data[at:])
		if r == utf8.RuneError && size <= 1 {
			return at
		}
		at += size
	}
	return -1
}

// Drain reads what a host has already sent to a process that is about to fail,
// so that the host sees the error and not a broken pipe.
func Drain(stdin *os.File) {
	info, err := stdin.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice != 0 {
		return
	}
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, io.LimitReader(stdin, maxPrompt))
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(pipedWait):
	}
}

// Message makes the user message of a prompt and image files, which are read
// now: later they may have changed.
func Message(prompt string, images []string) (*heddlev1.UserMessage, error) {
	m := &heddlev1.UserMessage{}
	for _, path := range images {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", path, err)
		}
		info, err := os.Stat(abs)
		if err != nil {
			return nil, fmt.Errorf("image: %w", err)
		}
		if info.Size() > maxImage {
			return nil, fmt.Errorf("image %s is larger than %d bytes", path, maxImage)
		}
		data, err := os.ReadFile(abs)
		if err != nil {
			return nil, fmt.Errorf("image: %w", err)
		}
		mime := http.DetectContentType(data)
		if !strings.HasPrefix(mime, "image/") {
			return nil, fmt.Errorf("image %s is not an image (%s)", path, mime)
		}
		m.Parts = append(m.Parts, &heddlev1.InputPart{
			Part: &heddlev1.InputPart_LocalImage{LocalImage: abs}, ImageData: data, ImageMime: mime,
		})
	}
	m.Parts = append(m.Parts, &heddlev1.InputPart{Part: &heddlev1.InputPart_Text{Text: prompt}})
	return m, nil
}

// ReadSchema reads a JSON schema from a file.
func ReadSchema(path string) (map[string]any, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("output schema: %w", err)
	}
	var schema map[string]any
	if err := json.Unmarshal(data, &schema); err != nil {
		return nil, fmt.Errorf("output schema %s is not a JSON object: %w", path, err)
	}
	return schema, nil
}

// InRepository reports whether dir lies in a git work tree.
func InRepository(dir string) bool { return Repository(dir) != "" }

// Repository is the top folder of the git work tree that dir lies in; empty when
// there is none.
func Repository(dir string) string {
	for {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return ""
		}
		dir = parent
	}
}
