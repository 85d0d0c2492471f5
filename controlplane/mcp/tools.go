package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"google.golang.org/protobuf/types/known/structpb"
)

// maxAlias bounds the names by which models call tools.
const maxAlias = 64

// list asks a server for its tools and keeps those that are offered.
func (c *client) list(ctx context.Context, conn *sdk.ClientSession) ([]*Tool, error) {
	var tools []*Tool
	aliases := map[string]bool{}
	seen, size := 0, 0
	for t, err := range conn.Tools(ctx, nil) {
		if err != nil {
			return nil, fmt.Errorf("list its tools: %w", err)
		}
		if seen++; seen > maxTools {
			return nil, fmt.Errorf("it has more than %d tools", maxTools)
		}
		if t == nil || t.Name == "" || !c.cfg.offered(t.Name) {
			continue
		}
		wire, err := object(t)
		if err != nil {
			return nil, fmt.Errorf("its tool %q: %w", t.Name, err)
		}
		raw, err := json.Marshal(t)
		if err != nil {
			return nil, fmt.Errorf("its tool %q: %w", t.Name, err)
		}
		if size += len(raw); size > maxToolBytes {
			return nil, fmt.Errorf("its tools take more than %d bytes", maxToolBytes)
		}
		tool := c.cfg.tool(t, wire)
		for base, n := tool.Alias, 2; aliases[tool.Alias]; n++ {
			suffix := fmt.Sprintf("_%d", n)
			tool.Alias = base[:min(len(base), maxAlias-len(suffix))] + suffix
		}
		aliases[tool.Alias] = true
		tools = append(tools, tool)
	}
	slices.SortFunc(tools, func(a, b *Tool) int { return cmp.Compare(a.Alias, b.Alias) })
	return tools, nil
}

func (s *Server) tool(t *sdk.Tool, wire *structpb.Struct) *Tool {
	out := &Tool{
		Server: s.Name, Name: t.Name, Namespace: "mcp__" + alias(s.Name), Alias: alias(t.Name), Title: t.Title, Description: t.Description, wire: wire,
	}
	out.Schema, _ = wire.AsMap()["inputSchema"].(map[string]any)
	if out.Schema == nil {
		out.Schema = map[string]any{}
	}
	out.Schema["type"] = "object"
	if _, ok := out.Schema["properties"].(map[string]any); !ok {
		out.Schema["properties"] = map[string]any{}
	}
	if a := t.Annotations; a != nil {
		readOnly := a.ReadOnlyHint
		out.ReadOnly = &readOnly
		out.Title = cmp.Or(out.Title, a.Title)
	}
	switch cmp.Or(s.ToolApproval[t.Name], s.Approval) {
	case "approve":
	case "prompt":
		out.Asks = true
	default:
		out.Asks = out.ReadOnly == nil || !*out.ReadOnly
	}
	return out
}

// alias is a name as models may use it.
func alias(name string) string {
	s := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-' {
			return r
		}
		return '_'
	}, name)
	return s[:min(len(s), maxAlias)]
}

// plain brings a value into the form of decoded JSON.
func plain(v any) (any, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(raw) > maxToolBytes {
		return nil, fmt.Errorf("it takes more than %d bytes", maxToolBytes)
	}
	return decode(raw)
}

func decode(raw []byte) (any, error) {
	var out any
	if err := json.Unmarshal(raw, &out); err != nil {
		return nil, err
	}
	if deep(out, maxDepth) {
		return nil, fmt.Errorf("it is nested more than %d levels deep", maxDepth)
	}
	return out, nil
}

// object is a value that a server sent, as it travels.
func object(v any) (*structpb.Struct, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return decodeObject(raw)
}

func decodeObject(raw []byte) (*structpb.Struct, error) {
	p, err := decode(raw)
	if err != nil {
		return nil, err
	}
	m, ok := p.(map[string]any)
	if !ok {
		return nil, errors.New("it is no object")
	}
	return structpb.NewStruct(m)
}

func deep(v any, left int) bool {
	if left == 0 {
		return true
	}
	switch x := v.(type) {
	case map[string]any:
		for _, e := range x {
			if deep(e, left-1) {
				return true
			}
		}
	case []any:
		for _, e := range x {
			if deep(e, left-1) {
				return true
			}
		}
	}
	return false
}

// CheckArguments refuses arguments that cannot be recorded.
func CheckArguments(v any) error {
	if deep(v, maxDepth) {
		return fmt.Errorf("the arguments are nested more than %d levels deep", maxDepth)
	}
	return nil
}

// resultOf is a result as it is recorded: whole, or the beginning of what it says
// where it is too large.
func resultOf(res *sdk.CallToolResult) *structpb.Struct {
	raw, err := json.Marshal(res)
	var out *structpb.Struct
	if err == nil && len(raw) <= maxResult {
		out, err = decodeObject(raw)
	} else if err == nil {
		err = fmt.Errorf("it takes %d bytes, more than %d", len(raw), maxResult)
	}
	if err == nil {
		return out
	}
	said := fmt.Sprintf("(The result was left out: %v.)", err)
	for _, part := range res.Content {
		if t, ok := part.(*sdk.TextContent); ok {
			said += "\n" + strings.ToValidUTF8(t.Text[:min(len(t.Text), maxText)], "\uFFFD")
			break
		}
	}
	cut := map[string]any{"content": []any{map[string]any{"type": "text", "text": said}}}
	if res.IsError {
		cut["isError"] = true
	}
	out, err = structpb.NewStruct(cut)
	if err != nil {
		return &structpb.Struct{}
	}
	return out
}
