package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// DynamicTool is a tool of a client, kept as it was sent.
type DynamicTool struct{ Raw json.RawMessage }

type toolFields struct {
	Name         string          `wire:"name"`
	Description  string          `wire:"description"`
	InputSchema  json.RawMessage `wire:"inputSchema"`
	DeferLoading bool            `wire:"deferLoading,default"`
	Namespace    *string         `wire:"namespace,opt"`
}

type toolNamespace struct {
	Name        string          `wire:"name"`
	Description string          `wire:"description"`
	Tools       []namespaceTool `wire:"tools"`
}

type namespaceTool struct {
	Name         string          `wire:"name"`
	Description  string          `wire:"description"`
	InputSchema  json.RawMessage `wire:"inputSchema"`
	DeferLoading bool            `wire:"deferLoading,default"`
}

func (d *DynamicTool) decodeWire(raw []byte) error {
	switch kindOf(raw) {
	case '{':
	case '0':
		return errors.New("invalid type: number, expected struct LegacyDynamicToolSpec")
	default:
		return wrongType(raw, "struct LegacyDynamicToolSpec")
	}
	d.Raw = append(json.RawMessage(nil), raw...)
	var kind struct {
		Type json.RawMessage `wire:"type,default"`
	}
	if _, err := Decode(raw, &kind); err != nil {
		return err
	}
	tag := "function"
	if kind.Type != nil {
		var err error
		if tag, err = tagOf(raw, "DynamicToolSpec", []string{"function", "namespace"}); err != nil {
			return err
		}
	}
	var err error
	if tag == "namespace" {
		_, err = Decode(raw, &toolNamespace{})
	} else {
		_, err = Decode(raw, &toolFields{})
	}
	return err
}

// CapabilityRoot is a folder of skills or plugins that a client selected.
type CapabilityRoot struct {
	ID       string             `wire:"id"`
	Location CapabilityLocation `wire:"location"`
}

// CapabilityLocation says where such a folder is.
type CapabilityLocation struct {
	EnvironmentID, Path string
}

func (l *CapabilityLocation) decodeWire(raw []byte) error {
	if _, err := tagOf(raw, "CapabilityRootLocation", []string{"environment"}); err != nil {
		return err
	}
	var f struct {
		EnvironmentID string `wire:"environmentId"`
		Path          string `wire:"path"`
	}
	if _, err := Decode(raw, &f); err != nil {
		return err
	}
	if !strings.HasPrefix(f.Path, "/") {
		return fmt.Errorf("path `%s` is not absolute", f.Path)
	}
	l.EnvironmentID, l.Path = f.EnvironmentID, f.Path
	return nil
}
