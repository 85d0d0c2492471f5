package config

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// maxExact is the largest whole number that a float holds exactly.
const maxExact = 1 << 53

// maxNesting bounds values within values.
const maxNesting = 64

// normal brings a value into the form that a parsed file has: whole floats are
// integers, as JSON does not tell them apart, and null members are left out.
func normal(v any) (any, error) { return normalAt(v, 0) }

func normalAt(v any, depth int) (any, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("values are nested deeper than %d", maxNesting)
	}
	switch x := v.(type) {
	case nil, string, bool, int64, time.Time, toml.LocalDate, toml.LocalTime, toml.LocalDateTime:
		return x, nil
	case int:
		return int64(x), nil
	case float64:
		if x == math.Trunc(x) && math.Abs(x) <= maxExact {
			return int64(x), nil
		}
		return x, nil
	case []any:
		out := make([]any, 0, len(x))
		for _, e := range x {
			n, err := normalAt(e, depth+1)
			if err != nil {
				return nil, err
			}
			if n == nil {
				return nil, fmt.Errorf("a list cannot hold null")
			}
			out = append(out, n)
		}
		return out, nil
	case map[string]any:
		out := make(map[string]any, len(x))
		for k, e := range x {
			n, err := normalAt(e, depth+1)
			if err != nil {
				return nil, err
			}
			if n != nil {
				out[k] = n
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("a value of type %T cannot be written", v)
}

// encodeKey writes a dotted key.
func encodeKey(path []string) string {
	parts := make([]string, len(path))
	for i, p := range path {
		parts[i] = p
		if p == "" || strings.IndexFunc(p, notBare) >= 0 {
			parts[i] = encodeText(p)
		}
	}
	return strings.Join(parts, ".")
}

func notBare(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_'
}

// encodeValue writes a value on one line.
func encodeValue(v any) string {
	switch x := v.(type) {
	case string:
		return encodeText(x)
	case bool:
		return strconv.FormatBool(x)
	case int64:
		return strconv.FormatInt(x, 10)
	case float64:
		return encodeFloat(x)
	case time.Time:
		return x.Format(time.RFC3339Nano)
	case []any:
		parts := make([]string, len(x))
		for i, e := range x {
			parts[i] = encodeValue(e)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		if len(x) == 0 {
			return "{}"
		}
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(x)) {
			parts = append(parts, encodeKey([]string{k})+" = "+encodeValue(x[k]))
		}
		return "{ " + strings.Join(parts, ", ") + " }"
	}
	return fmt.Sprint(v) // local dates and times
}

func encodeFloat(x float64) string {
	switch {
	case math.IsInf(x, 1):
		return "inf"
	case math.IsInf(x, -1):
		return "-inf"
	case math.IsNaN(x):
		return "nan"
	}
	s := strconv.FormatFloat(x, 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

// encodeText writes a basic string. What is no valid UTF-8 becomes the
// replacement character.
func encodeText(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range strings.ToValidUTF8(s, "\uFFFD") {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r == 0x7F:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// sameTree compares two trees; tables without keys count as absent.
func sameTree(a, b any) bool { return reflect.DeepEqual(pruned(a), pruned(b)) }

func pruned(v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range x {
			p := pruned(e)
			if m, ok := p.(map[string]any); ok && len(m) == 0 {
				continue
			}
			out[k] = p
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = pruned(e)
			if m, ok := e.(map[string]any); ok && len(m) == 0 {
				out[i] = m
			}
		}
		return out
	case float64:
		if math.IsNaN(x) {
			return "nan"
		}
	case time.Time:
		return x.UnixNano()
	}
	return v
}
