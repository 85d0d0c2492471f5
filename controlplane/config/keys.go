package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// splitKey splits a dotted key; parts may be quoted as in TOML.
func splitKey(key string) ([]string, error) {
	var parts []string
	rest := key
	for {
		rest = strings.TrimLeft(rest, " \t")
		var part string
		if rest != "" && (rest[0] == '"' || rest[0] == '\'') {
			end := strings.IndexByte(rest[1:], rest[0])
			if end < 0 {
				return nil, fmt.Errorf("key %q: the quote is not closed", key)
			}
			part, rest = rest[1:1+end], strings.TrimLeft(rest[end+2:], " \t")
			if rest != "" && rest[0] != '.' {
				return nil, fmt.Errorf("key %q: text after a quoted part", key)
			}
		} else {
			end := strings.IndexByte(rest, '.')
			if end < 0 {
				end = len(rest)
			}
			part, rest = strings.TrimRight(rest[:end], " \t"), rest[end:]
			if part == "" {
				return nil, fmt.Errorf("key %q: empty part", key)
			}
		}
		parts = append(parts, part)
		if rest == "" {
			return parts, nil
		}
		rest = rest[1:]
	}
}

// joinKey is the inverse of splitKey.
func joinKey(parts []string) string {
	out := make([]string, len(parts))
	for i, p := range parts {
		if p == "" || strings.ContainsAny(p, ". \t\"'") {
			q := `"`
			if strings.Contains(p, q) {
				q = "'"
			}
			p = q + p + q
		}
		out[i] = p
	}
	return strings.Join(out, ".")
}

// lookup returns the value of a path, nil when there is none.
func lookup(tree map[string]any, path ...string) any {
	var v any = tree
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

// set puts a value at a path and makes tables on the way.
func set(tree map[string]any, path []string, value any) {
	for _, p := range path[:len(path)-1] {
		next, ok := tree[p].(map[string]any)
		if !ok {
			next = map[string]any{}
			tree[p] = next
		}
		tree = next
	}
	last := path[len(path)-1]
	if m, ok := value.(map[string]any); ok {
		if old, ok := tree[last].(map[string]any); ok {
			merge(old, m)
			return
		}
	}
	tree[last] = value
}

// remove takes a path out of the tree.
func remove(tree map[string]any, path []string) {
	for _, p := range path[:len(path)-1] {
		next, ok := tree[p].(map[string]any)
		if !ok {
			return
		}
		tree = next
	}
	delete(tree, path[len(path)-1])
}

// merge lays src over dst: tables are merged, everything else is replaced. src is
// copied.
func merge(dst, src map[string]any) {
	for k, v := range src {
		if m, ok := v.(map[string]any); ok {
			old, ok := dst[k].(map[string]any)
			if !ok {
				old = map[string]any{}
				dst[k] = old
			}
			merge(old, m)
			continue
		}
		dst[k] = v
	}
}

// expand makes a tree of dotted keys. Nil values are left out, whole floats
// (JSON has no other numbers) become integers.
func expand(flat map[string]any) (map[string]any, error) {
	tree := map[string]any{}
	for _, k := range slices.Sorted(maps.Keys(flat)) {
		path, err := splitKey(k)
		if err != nil {
			return nil, err
		}
		if v := normalize(flat[k]); v != nil {
			set(tree, path, v)
		}
	}
	return tree, nil
}

func normalize(v any) any {
	switch x := v.(type) {
	case float64:
		if x == math.Trunc(x) && math.Abs(x) < 1<<53 {
			return int64(x)
		}
	case int:
		return int64(x)
	case []string:
		out := make([]any, len(x))
		for i, s := range x {
			out[i] = s
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = normalize(e)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(x))
		for k, e := range x {
			if n := normalize(e); n != nil {
				out[k] = n
			}
		}
		return out
	case map[string]string:
		out := make(map[string]any, len(x))
		for k, e := range x {
			out[k] = e
		}
		return out
	}
	return v
}

// leaves calls fn for every value that is not a table.
func leaves(tree map[string]any, path []string, fn func(path []string, v any)) {
	for k, v := range tree {
		p := append(slices.Clone(path), k)
		if m, ok := v.(map[string]any); ok && len(m) > 0 {
			leaves(m, p, fn)
			continue
		}
		fn(p, v)
	}
}
