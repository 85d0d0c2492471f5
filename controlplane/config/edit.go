package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// Edit is one change of a config file.
type Edit struct {
	// Key is dotted; parts may be quoted as in TOML.
	Key string
	// Value is what JSON or TOML decode to; nil removes the key.
	Value any
	// Upsert lays a table over the one that is there instead of replacing it.
	Upsert bool
}

// errNoPlace says that a key cannot be written without rewriting others.
var errNoPlace = errors.New("the key has no place in the file as it is laid out")

// ApplyEdits changes keys of a TOML document. Bytes that do not belong to a
// changed key stay as they are. The result is checked: it parses, and it says
// what the document said before but for the changed keys.
func ApplyEdits(data []byte, edits []Edit) ([]byte, error) {
	for _, e := range edits {
		path, err := splitKey(e.Key)
		if err != nil {
			return nil, err
		}
		value, err := normal(e.Value)
		if err != nil {
			return nil, fmt.Errorf("key %q: %w", e.Key, err)
		}
		if data, err = apply(data, path, value, e.Upsert); err != nil {
			return nil, fmt.Errorf("key %q: %w", e.Key, err)
		}
	}
	return data, nil
}

func apply(data []byte, path []string, value any, upsert bool) ([]byte, error) {
	table, isTable := value.(map[string]any)
	if !isTable {
		return change(data, path, value)
	}
	var err error
	if !upsert {
		if data, err = change(data, path, nil); err != nil {
			return nil, err
		}
	}
	if len(table) == 0 {
		tree, err := parseTree(data)
		if err != nil {
			return nil, err
		}
		if _, is := lookup(tree, path...).(map[string]any); is {
			return data, nil
		}
		return change(data, path, table)
	}
	for _, k := range slices.Sorted(maps.Keys(table)) {
		if data, err = apply(data, append(slices.Clone(path), k), table[k], true); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// change sets one key to a value that is no table with keys, or removes it, in
// the first way that says exactly that.
func change(data []byte, path []string, value any) ([]byte, error) {
	want, err := parseTree(data)
	if err != nil {
		return nil, err
	}
	if value == nil {
		remove(want, path)
	} else {
		put(want, path, value)
	}
	doc, err := scan(data)
	if err != nil {
		return nil, err
	}
	for _, way := range []func(*document, []string, any) ([]byte, bool){replaceValue, rewriteInline, dropAndInsert, insertInSection, insertSection, insertDotted} {
		out, ok := way(doc, path, value)
		if !ok {
			continue
		}
		if got, err := parseTree(out); err == nil && sameTree(got, want) {
			return out, nil
		}
	}
	return nil, errNoPlace
}

// put is set, but a table replaces what is there.
func put(tree map[string]any, path []string, value any) {
	if m, ok := value.(map[string]any); ok && len(m) == 0 {
		remove(tree, path)
	}
	set(tree, path, value)
}

func parseTree(data []byte) (map[string]any, error) {
	tree := map[string]any{}
	if err := toml.Unmarshal(data, &tree); err != nil {
		return nil, fmt.Errorf("the file does not parse: %w", err)
	}
	return tree, nil
}

// statement is a key with its value, or the header of a table.
type statement struct {
	kind unstable.Kind
	// path is the whole key, the tables above included.
	path []string
	// start and end are the bytes of the statement; value is where a value starts.
	start, value, end int
	// array is set below an array of tables, where keys have no one meaning.
	array bool
}

type document struct {
	data []byte
	list []statement
	eol  string
}

// scan finds the statements of a document that parses.
func scan(data []byte) (*document, error) {
	d := &document{data: data, eol: "\n"}
	if i := bytes.IndexByte(data, '\n'); i > 0 && data[i-1] == '\r' {
		d.eol = "\r\n"
	}
	var p unstable.Parser
	p.Reset(data)
	var prefix []string
	array := false
	arrays := map[string]bool{}
	for p.NextExpression() {
		e := p.Expression()
		parts, first, last := keyRange(e)
		if len(parts) == 0 {
			continue
		}
		s := statement{kind: e.Kind}
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			prefix = parts
			if e.Kind == unstable.ArrayTable {
				arrays[joinKey(parts)] = true
			}
			array = false
			for n := range parts {
				array = array || arrays[joinKey(parts[:n+1])]
			}
			s.path, s.start, s.end = parts, lineStart(data, first), lineEnd(data, last)
		case unstable.KeyValue:
			s.path = append(slices.Clone(prefix), parts...)
			s.start, s.end = int(e.Raw.Offset), int(e.Raw.Offset+e.Raw.Length)
			eq := bytes.IndexByte(data[last:], '=')
			if eq < 0 {
				return nil, errNoPlace
			}
			s.value = last + eq + 1
			for s.value < s.end && (data[s.value] == ' ' || data[s.value] == '\t') {
				s.value++
			}
		default:
			continue
		}
		s.array = array
		d.list = append(d.list, s)
	}
	if err := p.Error(); err != nil {
		return nil, fmt.Errorf("the file does not parse: %w", err)
	}
	return d, nil
}

// keyRange returns a key's parts and the offsets of its first and behind its
// last byte.
func keyRange(e *unstable.Node) (parts []string, first, last int) {
	it := e.Key()
	for it.Next() {
		n := it.Node()
		if len(parts) == 0 {
			first = int(n.Raw.Offset)
		}
		parts = append(parts, string(n.Data))
		last = int(n.Raw.Offset + n.Raw.Length)
	}
	return parts, first, last
}

func lineStart(data []byte, at int) int { return bytes.LastIndexByte(data[:at], '\n') + 1 }

// lineEnd is the offset behind the line's end.
func lineEnd(data []byte, at int) int {
	if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
		return at + i + 1
	}
	return len(data)
}

func within(path, prefix []string) bool {
	return len(path) >= len(prefix) && slices.Equal(path[:len(prefix)], prefix)
}

// replaceValue writes a new value in the place of the old one.
func replaceValue(d *document, path []string, value any) ([]byte, bool) {
	if value == nil {
		return nil, false
	}
	for _, s := range d.list {
		if s.kind == unstable.KeyValue && !s.array && slices.Equal(s.path, path) {
			return splice(d.data, s.value, s.end, encodeValue(value)), true
		}
	}
	return nil, false
}

// rewriteInline writes an inline table anew that the key is in, or takes the
// place of a value that is no table.
func rewriteInline(d *document, path []string, value any) ([]byte, bool) {
	for _, s := range d.list {
		if s.kind != unstable.KeyValue || s.array || len(s.path) >= len(path) || !within(path, s.path) {
			continue
		}
		tree, err := parseTree(d.data)
		if err != nil {
			return nil, false
		}
		old, ok := lookup(tree, s.path...).(map[string]any)
		if !ok {
			if value == nil {
				return d.data, true
			}
			old = map[string]any{}
		}
		if rest := path[len(s.path):]; value == nil {
			remove(old, rest)
		} else {
			put(old, rest, value)
		}
		return splice(d.data, s.value, s.end, encodeValue(old)), true
	}
	return nil, false
}

// dropAndInsert removes every statement of the key and of what is below it, then
// writes the new value if there is one.
func dropAndInsert(d *document, path []string, value any) ([]byte, bool) {
	out := d.data
	found := false
	for _, s := range slices.Backward(d.list) {
		if !within(s.path, path) {
			continue
		}
		found = true
		out = splice(out, lineStart(d.data, s.start), lineEnd(d.data, s.last()), "")
	}
	if value == nil {
		return out, true
	}
	if !found {
		return nil, false
	}
	again, err := change(out, path, value)
	return again, err == nil
}

// last is an offset in the last line of a statement.
func (s *statement) last() int {
	if s.kind == unstable.KeyValue {
		return s.end
	}
	return s.end - 1 // the end of a header is behind its line
}

// insertInSection adds the key to the table that it belongs to.
func insertInSection(d *document, path []string, value any) ([]byte, bool) {
	return d.insertUnder(path[:len(path)-1], path[len(path)-1:], value)
}

// insertSection adds a table for the key at the end of the file.
func insertSection(d *document, path []string, value any) ([]byte, bool) {
	if len(path) < 2 || value == nil {
		return nil, false
	}
	out := ensureEOL(slices.Clone(d.data), d.eol)
	if len(out) > 0 {
		out = append(out, d.eol...)
	}
	out = append(out, "["+encodeKey(path[:len(path)-1])+"]"+d.eol...)
	return append(out, encodeKey(path[len(path)-1:])+" = "+encodeValue(value)+d.eol...), true
}

// insertDotted adds the key with dots to the nearest table above it.
func insertDotted(d *document, path []string, value any) ([]byte, bool) {
	for n := len(path) - 1; n >= 0; n-- {
		if out, ok := d.insertUnder(path[:n], path[n:], value); ok {
			return out, true
		}
	}
	return nil, false
}

// insertUnder adds rest = value behind the last key of a table; the top of the
// file is the table without a name.
func (d *document) insertUnder(table, rest []string, value any) ([]byte, bool) {
	if value == nil {
		return nil, false
	}
	at, open := -1, len(table) == 0
	inside := open
	for _, s := range d.list {
		if s.kind != unstable.KeyValue {
			inside = s.kind == unstable.Table && !s.array && slices.Equal(s.path, table) && len(table) > 0
			if inside {
				open, at = true, s.end
			}
		} else if inside {
			at = lineEnd(d.data, s.end)
		}
	}
	if !open {
		return nil, false
	}
	line := encodeKey(rest) + " = " + encodeValue(value) + d.eol
	if at < 0 && len(d.list) > 0 {
		at = d.aboveComment(d.list[0].start)
		line += d.eol // apart from the first table
	}
	if at < 0 || at == len(d.data) {
		return append(ensureEOL(slices.Clone(d.data), d.eol), line...), true
	}
	return splice(d.data, at, at, line), true
}

// aboveComment moves a line's start over the comment right above it.
func (d *document) aboveComment(at int) int {
	for at > 0 {
		up := lineStart(d.data, at-1)
		if !bytes.HasPrefix(bytes.TrimLeft(d.data[up:at], " \t"), []byte("#")) {
			break
		}
		at = up
	}
	return at
}

func ensureEOL(data []byte, eol string) []byte {
	if len(data) > 0 && data[len(data)-1] != '\n' {
		data = append(data, eol...)
	}
	return data
}

func splice(data []byte, start, end int, text string) []byte {
	out := make([]byte, 0, len(data)+len(text))
	out = append(out, data[:start]...)
	out = append(out, text...)
	return append(out, data[end:]...)
}
