package dialogue

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
)

// maxName is the longest tool name that the services take.
const maxName = 64

// Names maps flat tool names to namespace and name.
type Names map[string][2]string

// NamesOf returns the flat names of the tools.
func NamesOf(tools []model.Tool) Names {
	n := Names{}
	for _, t := range tools {
		n[Flat(t.Namespace, t.Name)] = [2]string{t.Namespace, t.Name}
	}
	return n
}

// Split returns namespace and name of a flat name; an unknown one is all name.
func (n Names) Split(flat string) (namespace, name string) {
	if s, ok := n[flat]; ok {
		return s[0], s[1]
	}
	return "", flat
}

// Flat is the one name of a tool: letters, digits, _ and - only, at most 64. A
// name that has to be changed ends with a piece of its hash, so that two tools
// never share one.
func Flat(namespace, name string) string {
	whole := name
	if namespace != "" {
		whole = namespace + "__" + name
	}
	flat := strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || (r >= '0' && r <= '9') || (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') {
			return r
		}
		return '_'
	}, whole)
	if flat == whole && len(flat) <= maxName && flat != "" {
		return flat
	}
	sum := sha256.Sum256([]byte(whole))
	tail := "_" + hex.EncodeToString(sum[:4])
	return flat[:min(len(flat), maxName-len(tail))] + tail
}

// Parameters are the schema of a tool's arguments; a freeform tool takes its text
// as "input", which its grammar describes.
func Parameters(t model.Tool) (description string, schema map[string]any) {
	if t.Kind == model.ToolFreeform {
		description = t.Description
		if t.Grammar != "" {
			description += "\nThe text follows this grammar (Lark):\n" + t.Grammar
		}
		return description, map[string]any{
			"type": "object", "properties": map[string]any{"input": map[string]any{"type": "string", "description": "The text."}},
			"required": []string{"input"}, "additionalProperties": false,
		}
	}
	if t.Parameters == nil {
		return t.Description, map[string]any{"type": "object", "properties": map[string]any{}}
	}
	return t.Description, t.Parameters
}
