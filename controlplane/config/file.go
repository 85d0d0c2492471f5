package config

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// maxFile bounds the size of a config file.
const maxFile = 16 << 20

// Error is what is wrong with a configuration, in one line.
type Error struct {
	Warning *heddlev1.ConfigWarning
}

func (e *Error) Error() string {
	w := e.Warning
	var b strings.Builder
	if w.GetPath() != "" {
		b.WriteString(w.GetPath())
		if w.GetLine() > 0 {
			fmt.Fprintf(&b, ":%d:%d", w.GetLine(), w.GetColumn())
		}
		b.WriteString(": ")
	}
	b.WriteString(w.GetSummary())
	if w.GetDetails() != "" {
		b.WriteString(": " + w.GetDetails())
	}
	return b.String()
}

// source is one parsed file or override set.
type source struct {
	layer    Layer
	data     []byte
	warnings []*heddlev1.ConfigWarning
	// unread says why nothing of the file holds.
	unread *heddlev1.ConfigWarning
}

// readFile parses one file. A missing file is an empty source without a layer.
func readFile(kind, path string, strict bool) (*source, error) {
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxFile {
		err = fmt.Errorf("larger than %d bytes", maxFile)
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		w := &heddlev1.ConfigWarning{Summary: "Configuration file cannot be read; using defaults", Details: err.Error(), Path: path}
		if strict {
			return nil, &Error{w}
		}
		return &source{layer: Layer{Kind: kind, File: path, Tree: map[string]any{}}, warnings: []*heddlev1.ConfigWarning{w}, unread: w}, nil
	}
	return parseFile(kind, path, data, strict)
}

// parseFile parses and checks one file. Values that are wrong are left out, each
// with a warning; with strict the first thing wrong is an error.
func parseFile(kind, path string, data []byte, strict bool) (*source, error) {
	sum := sha256.Sum256(data)
	s := &source{data: data, layer: Layer{Kind: kind, File: path, Version: "sha256:" + hex.EncodeToString(sum[:]), Tree: map[string]any{}}}
	tree := map[string]any{}
	if err := toml.Unmarshal(data, &tree); err != nil {
		w := &heddlev1.ConfigWarning{
			Summary: "Invalid configuration; using defaults",
			Details: strings.TrimPrefix(err.Error(), "toml: ") + " (correct the line or remove it)",
			Path:    path,
		}
		var de *toml.DecodeError
		if errors.As(err, &de) {
			line, col := de.Position()
			w.Line, w.Column = int32(line), int32(col)
		}
		if strict {
			return nil, &Error{w}
		}
		s.warnings, s.unread = append(s.warnings, w), w
		return s, nil
	}
	s.layer.Tree = tree
	for _, p := range check(schema(), tree, nil) {
		w := p.warning(path, data)
		if strict {
			return nil, &Error{w}
		}
		s.warnings = append(s.warnings, w)
		if !p.unknown {
			remove(tree, p.path)
		}
	}
	return s, nil
}

func (p problem) warning(path string, data []byte) *heddlev1.ConfigWarning {
	w := &heddlev1.ConfigWarning{Path: path, Details: p.what + "; " + p.fix}
	w.Summary = fmt.Sprintf("Invalid configuration: key %q", joinKey(p.path))
	if p.unknown {
		w.Summary = fmt.Sprintf("Unknown configuration key %q", joinKey(p.path))
	}
	if line, col, ok := locate(data, p.path); ok {
		w.Line, w.Column = int32(line), int32(col)
	}
	return w
}

// Check parses a config file and says what is wrong with it.
func Check(path string, data []byte) []*heddlev1.ConfigWarning {
	s, _ := parseFile("user", path, data, false)
	return s.warnings
}

// locate finds line and column (from 1) where a key is set.
func locate(data []byte, path []string) (line, col int, ok bool) {
	var p unstable.Parser
	p.Reset(data)
	var prefix []string
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			var at unstable.Range
			prefix, at = keyParts(e)
			if slices.Equal(prefix, path) {
				start := p.Shape(at).Start
				return start.Line, start.Column, true
			}
		case unstable.KeyValue:
			if at, found := locateIn(e, prefix, path); found {
				start := p.Shape(at).Start
				return start.Line, start.Column, true
			}
		}
	}
	return 0, 0, false
}

// locateIn looks at one key and, for an inline table, below it.
func locateIn(e *unstable.Node, prefix, path []string) (unstable.Range, bool) {
	parts, at := keyParts(e)
	full := append(slices.Clone(prefix), parts...)
	if slices.Equal(full, path) {
		return at, true
	}
	if len(full) < len(path) && slices.Equal(full, path[:len(full)]) && e.Value().Kind == unstable.InlineTable {
		it := e.Value().Children()
		for it.Next() {
			if r, found := locateIn(it.Node(), full, path); found {
				return r, true
			}
		}
		return at, true
	}
	return unstable.Range{}, false
}

func keyParts(e *unstable.Node) (parts []string, first unstable.Range) {
	it := e.Key()
	for it.Next() {
		n := it.Node()
		if len(parts) == 0 {
			first = n.Raw
		}
		parts = append(parts, string(n.Data))
	}
	return parts, first
}
