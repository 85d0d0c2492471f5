package protocol

import (
	"encoding/json"
	"errors"
	"strings"
)

// AbsPath is a path that must be absolute.
type AbsPath string

func (p *AbsPath) decodeWire(raw []byte) error {
	var s Path
	if err := s.decodeWire(raw); err != nil {
		return err
	}
	if !strings.HasPrefix(string(s), "/") {
		return errors.New("AbsolutePathBuf deserialized without a base path")
	}
	*p = AbsPath(s)
	return nil
}

// Path is a path of any form.
type Path string

func (p *Path) decodeWire(raw []byte) error {
	if kindOf(raw) != '"' {
		return wrongType(raw, "path string")
	}
	return json.Unmarshal(raw, (*string)(p))
}

// Object is a JSON object whose members are not looked at.
type Object json.RawMessage

func (o *Object) decodeWire(raw []byte) error {
	if kindOf(raw) != '{' {
		return wrongType(raw, "a map")
	}
	*o = append(Object(nil), raw...)
	return nil
}

// CwdFilter is one folder or a list of folders.
type CwdFilter []string

func (f *CwdFilter) decodeWire(raw []byte) error {
	var one string
	if json.Unmarshal(raw, &one) == nil && kindOf(raw) == '"' {
		*f = CwdFilter{one}
		return nil
	}
	var many []string
	if kindOf(raw) != '[' || json.Unmarshal(raw, &many) != nil {
		return errors.New("data did not match any variant of untagged enum ThreadListCwdFilter")
	}
	*f = many
	return nil
}

// ItemsCursor is an opaque cursor or the anchor at an item.
type ItemsCursor struct {
	Token string
	// Anchor says that it is an item, behind which the page begins.
	Anchor bool
	ItemID string
}

func (c *ItemsCursor) decodeWire(raw []byte) error {
	if kindOf(raw) == '"' {
		return json.Unmarshal(raw, &c.Token)
	}
	var anchor struct {
		Type   string `wire:"type"`
		ItemID string `wire:"itemId"`
	}
	if kindOf(raw) != '{' {
		return errors.New("data did not match any variant of untagged enum ThreadItemsListCursor")
	}
	if _, err := Decode(raw, &anchor); err != nil || anchor.Type != "item" {
		return errors.New("data did not match any variant of untagged enum ThreadItemsListCursor")
	}
	c.Anchor, c.ItemID = true, anchor.ItemID
	return nil
}

// CollaborationMode is a mode with its settings.
type CollaborationMode struct {
	Raw json.RawMessage
}

type modeKind string

func (modeKind) Variants() []string {
	return []string{"plan", "code", "custom", "default", "execute", "pair_programming"}
}

type modeSettings struct {
	Model                 string  `wire:"model"`
	ReasoningEffort       *string `wire:"reasoning_effort,opt"`
	DeveloperInstructions *string `wire:"developer_instructions,opt"`
}

type modeFields struct {
	Mode     modeKind     `wire:"mode"`
	Settings modeSettings `wire:"settings"`
}

func (c *CollaborationMode) decodeWire(raw []byte) error {
	var f modeFields
	if _, err := Decode(raw, &f); err != nil {
		return err
	}
	c.Raw = append(json.RawMessage(nil), raw...)
	return nil
}

// Effort is a reasoning effort, of any name.
type Effort string

func (e *Effort) decodeWire(raw []byte) error {
	if kindOf(raw) != '"' {
		return wrongType(raw, "a string")
	}
	if err := json.Unmarshal(raw, (*string)(e)); err != nil {
		return err
	}
	if *e == "" {
		return errors.New("reasoning_effort must not be empty")
	}
	return nil
}

// OutputDeferral says whose output is left out of a list of items.
type OutputDeferral struct {
	CommandExecution bool `wire:"commandExecution,default"`
	McpToolCall      bool `wire:"mcpToolCall,default"`
}
