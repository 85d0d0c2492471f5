//go:build clients

package e2e

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// inputMaker makes parameters of methods from the reference's schema: right
// ones, and ones that are wrong in a single place.
type inputMaker struct {
	definitions any
	reached     []string // definitions being made, to end where they recurse
}

type shape = map[string]any

// resolve follows references and takes the first form of a choice.
func (g *inputMaker) resolve(s any) shape {
	m, _ := s.(map[string]any)
	for range 20 {
		if ref, ok := m["$ref"].(string); ok {
			m, _ = member(g.definitions, strings.Split(strings.TrimPrefix(ref, "#/definitions/"), "/")...).(map[string]any)
			continue
		}
		next := any(nil)
		for _, choice := range []string{"allOf", "anyOf", "oneOf"} {
			forms, _ := m[choice].([]any)
			for _, f := range forms {
				if next == nil && member(f, "type") != "null" {
					next = f
				}
			}
		}
		if next == nil {
			return m
		}
		m, _ = next.(map[string]any)
	}
	return m
}

// types are the JSON types that a shape has.
func types(m shape) []string {
	switch t := m["type"].(type) {
	case string:
		return []string{t}
	case []any:
		var out []string
		for _, v := range t {
			if s, ok := v.(string); ok && s != "null" {
				out = append(out, s)
			}
		}
		return out
	}
	if m["properties"] != nil {
		return []string{"object"}
	}
	return nil
}

func properties(m shape) map[string]any {
	p, _ := m["properties"].(map[string]any)
	return p
}

func required(m shape) []string {
	var out []string
	names, _ := m["required"].([]any)
	for _, n := range names {
		if s, ok := n.(string); ok {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return out
}

// right makes a value that a shape takes, with nothing in it that need not be.
// It names nothing that is there.
func (g *inputMaker) right(name string, s any) any {
	if strings.Contains(toJSON(s), "AbsolutePathBuf") {
		return "/dev/null/nowhere"
	}
	m := g.resolve(s)
	if values, ok := m["enum"].([]any); ok && len(values) > 0 {
		return values[0]
	}
	t := types(m)
	if len(t) == 0 {
		return "sample"
	}
	switch t[0] {
	case "string":
		if strings.HasSuffix(strings.ToLower(name), "threadid") {
			return "00000000-0000-7000-8000-000000000000"
		}
		return "sample"
	case "integer", "number":
		return 1
	case "boolean":
		return false
	case "array":
		return []any{}
	}
	return g.rightObject(m)
}

func (g *inputMaker) rightObject(m shape) map[string]any {
	out := map[string]any{}
	for _, n := range required(m) {
		out[n] = g.right(n, properties(m)[n])
	}
	return out
}

// wrong makes values that are wrong, or hostile, in one place.
func (g *inputMaker) wrong(name string, s any, depth int) []any {
	m := g.resolve(s)
	if depth > 2 || slices.Contains(g.reached, toJSON(m)) {
		return nil
	}
	g.reached = append(g.reached, toJSON(m))
	defer func() { g.reached = g.reached[:len(g.reached)-1] }()
	t := types(m)
	out := g.others(t)
	switch {
	case m["enum"] != nil:
		out = append(out, "no-such-variant")
	case slices.Contains(t, "string"):
		out = append(out, "", "../../etc\x00/\u2028", longText)
	case slices.Contains(t, "integer"):
		out = append(out, -1, 1.5, json.Number("99999999999999999999999999"))
	case slices.Contains(t, "array"):
		for _, item := range g.wrong(name, m["items"], depth+1) {
			out = append(out, []any{item})
		}
	case slices.Contains(t, "object"):
		out = append(out, g.wrongObjects(m, depth)...)
	}
	return out
}

// others are values of two types that are not allowed.
func (g *inputMaker) others(allowed []string) (out []any) {
	for _, v := range []struct {
		kind  string
		value any
	}{{"integer", 7}, {"string", "x"}, {"array", []any{}}} {
		if len(out) < 2 && len(allowed) > 0 && !slices.Contains(allowed, v.kind) && !(v.kind == "integer" && slices.Contains(allowed, "number")) {
			out = append(out, v.value)
		}
	}
	return out
}

func (g *inputMaker) wrongObjects(m shape, depth int) (out []any) {
	base := g.rightObject(m)
	with := func(name string, v any) map[string]any {
		c := maps.Clone(base)
		c[name] = v
		return c
	}
	for _, n := range required(m) {
		c := maps.Clone(base)
		delete(c, n)
		out = append(out, c)
	}
	for _, n := range slices.Sorted(maps.Keys(properties(m))) {
		if properties(m)[n] == true {
			continue
		}
		out = append(out, with(n, nil))
		for _, v := range g.wrong(n, properties(m)[n], depth+1) {
			out = append(out, with(n, v))
		}
	}
	return out
}

func toJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // what is made here is made of JSON's types
	}
	return string(data)
}

// paramsOf makes all parameters to try for a method, as JSON texts; an empty one
// stands for none at all. The first is right.
func (g *inputMaker) paramsOf(schema any) []string {
	right := g.right("", schema)
	rows := []string{toJSON(right), "", "null", "[]", `"x"`, "7", "{}"}
	if object, ok := right.(map[string]any); ok {
		unknown := maps.Clone(object)
		unknown["noSuchMember"] = []any{map[string]any{"deep": nil}}
		rows = append(rows, toJSON(unknown))
		for _, n := range slices.Sorted(maps.Keys(object)) {
			rows = append(rows, strings.TrimSuffix(toJSON(object), "}")+","+toJSON(n)+":"+toJSON(object[n])+"}")
			break
		}
	}
	for _, v := range g.wrong("", schema, 0) {
		rows = append(rows, toJSON(v))
	}
	var out []string
	for _, r := range rows {
		if !slices.Contains(out, r) {
			out = append(out, r)
		}
	}
	return out
}
