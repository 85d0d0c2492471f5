package appserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
)

const (
	// maxLine is the largest message that is written, its line end included.
	maxLine = 1 << 20
	// shortest is the length to which texts are cut before lists are.
	shortest = 256
)

// whole reports whether the answer of a method is as large as what its caller
// asked for.
func whole(method string) bool {
	switch method {
	case "fs/readFile", "config/read", "mcpServer/resource/read":
		return true
	}
	return false
}

// fit returns a message of at most maxLine bytes: the longest texts are cut in the
// middle, with a mark that names what was left out, as far as it takes; lists
// that are too long even so keep their beginning and a mark. It is the last bound:
// what makes messages keeps them small where it can.
func fit(message []byte) []byte {
	if len(message) < maxLine {
		return message
	}
	dec := json.NewDecoder(bytes.NewReader(message))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		// Nothing that was encoded here does not decode.
		return message
	}
	for limit := maxLine / 2; limit >= shortest; limit /= 2 {
		if out, err := jsonrpc.Marshal(cutTexts(tree, limit)); err == nil && len(out) < maxLine {
			return out
		}
	}
	tree = cutTexts(tree, shortest)
	for limit := 4096; limit >= 1; limit /= 2 {
		if out, err := jsonrpc.Marshal(cutLists(tree, limit)); err == nil && len(out) < maxLine {
			return out
		}
	}
	return message
}

// cutTexts returns the tree with no text longer than limit. Data URLs stay valid.
func cutTexts(v any, limit int) any {
	switch v := v.(type) {
	case string:
		if len(v) > limit && strings.HasPrefix(v, "data:") {
			return fmt.Sprintf("data:text/plain,%d%%20bytes%%20omitted", len(v))
		}
		return protocol.ClipTo(v, limit)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = cutTexts(v[i], limit)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k := range v {
			out[protocol.ClipTo(k, limit)] = cutTexts(v[k], limit)
		}
		return out
	}
	return v
}

// cutLists returns the tree with no list or object of more than limit members.
// What is left out of a list of texts is said in its last one.
func cutLists(v any, limit int) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, 0, min(len(v), limit+1))
		for _, m := range v[:min(len(v), limit)] {
			out = append(out, cutLists(m, limit))
		}
		if len(v) <= limit {
			return out
		}
		if _, texts := v[0].(string); texts {
			out = append(out, fmt.Sprintf("[... %d more omitted ...]", len(v)-limit))
		}
		return out
	case map[string]any:
		out := make(map[string]any, min(len(v), 64))
		for k, m := range v {
			// Objects with so many members are maps of names, not shapes.
			if len(v) > 64 && len(out) >= max(limit, 64) {
				break
			}
			out[k] = cutLists(m, limit)
		}
		return out
	}
	return v
}
