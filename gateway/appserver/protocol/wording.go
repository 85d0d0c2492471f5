package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// found describes a value in the words of an invalid type error.
func found(raw []byte) string {
	raw = bytes.TrimSpace(raw)
	switch kindOf(raw) {
	case '{':
		return "map"
	case '[':
		return "sequence"
	case 'n':
		return "null"
	case 't':
		return "boolean `" + string(raw) + "`"
	case '"':
		var s string
		_ = json.Unmarshal(raw, &s)
		if len(s) > 200 {
			s = s[:200] + "..."
		}
		return "string " + strconv.Quote(s)
	}
	if bytes.ContainsAny(raw, ".eE") {
		return "floating point `" + string(raw) + "`"
	}
	return "integer `" + string(raw) + "`"
}

func wrongType(raw []byte, want string) error {
	return fmt.Errorf("invalid type: %s, expected %s", found(raw), want)
}

func wrongNumber(raw []byte, want string) error {
	if bytes.ContainsAny(raw, ".eE") {
		return wrongType(raw, want)
	}
	return fmt.Errorf("invalid value: %s, expected %s", found(raw), want)
}

func oneOf(s string, names []string) error {
	for _, n := range names {
		if n == s {
			return nil
		}
	}
	return UnknownVariant(s, names)
}

// UnknownVariant is the error for a name that is none of the known ones.
func UnknownVariant(got string, names []string) error {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = "`" + n + "`"
	}
	switch len(names) {
	case 0:
		return fmt.Errorf("unknown variant `%s`, there are no variants", got)
	case 1:
		return fmt.Errorf("unknown variant `%s`, expected %s", got, quoted[0])
	case 2:
		return fmt.Errorf("unknown variant `%s`, expected %s or %s", got, quoted[0], quoted[1])
	}
	return fmt.Errorf("unknown variant `%s`, expected one of %s", got, strings.Join(quoted, ", "))
}
