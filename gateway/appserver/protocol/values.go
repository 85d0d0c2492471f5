package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
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

// SandboxMode is the short name of a sandbox policy.
type SandboxMode string

// Sandbox modes.
const (
	ModeReadOnly       SandboxMode = "read-only"
	ModeWorkspaceWrite SandboxMode = "workspace-write"
	ModeFullAccess     SandboxMode = "danger-full-access"
)

// Variants implements the enumeration.
func (SandboxMode) Variants() []string {
	return []string{string(ModeReadOnly), string(ModeWorkspaceWrite), string(ModeFullAccess)}
}

// SortDirection orders a page.
type SortDirection string

// Variants implements the enumeration.
func (SortDirection) Variants() []string { return []string{"asc", "desc"} }

// ThreadSortKey orders thread/list.
type ThreadSortKey string

// Variants implements the enumeration.
func (ThreadSortKey) Variants() []string {
	return []string{"created_at", "updated_at", "recency_at", "section_position"}
}

// SourceKind filters thread/list.
type SourceKind string

// Variants implements the enumeration.
func (SourceKind) Variants() []string {
	return []string{"cli", "vscode", "exec", "appServer", "subAgent", "subAgentReview", "subAgentCompact", "subAgentThreadSpawn", "subAgentOther", "unknown"}
}

// ItemsView says how much of a turn's items is wanted.
type ItemsView string

// Items views.
const (
	ViewNotLoaded ItemsView = "notLoaded"
	ViewSummary   ItemsView = "summary"
	ViewFull      ItemsView = "full"
)

// Variants implements the enumeration.
func (ItemsView) Variants() []string {
	return []string{string(ViewNotLoaded), string(ViewSummary), string(ViewFull)}
}

// Reviewer says who answers approvals.
type Reviewer string

// Variants implements the enumeration.
func (Reviewer) Variants() []string { return []string{"user", "auto_review", "guardian_subagent"} }

// Personality is the tone of the agent.
type Personality string

// Variants implements the enumeration.
func (Personality) Variants() []string { return []string{"none", "friendly", "pragmatic"} }

// Summary is the detail of reasoning summaries.
type Summary string

// Variants implements the enumeration.
func (Summary) Variants() []string { return []string{"auto", "concise", "detailed", "none"} }

// HistoryMode is how a thread's history is served.
type HistoryMode string

// Variants implements the enumeration.
func (HistoryMode) Variants() []string { return []string{"legacy", "paginated"} }

// StartSource says why a thread is started.
type StartSource string

// Variants implements the enumeration.
func (StartSource) Variants() []string { return []string{"startup", "clear"} }

// Approval is an approval policy: a name, or the flags of a granular one.
type Approval struct {
	Name     string
	Granular map[string]any
}

var approvalNames = []string{"untrusted", "on-request", "granular", "never"}

type granular struct {
	MCPElicitations    bool  `wire:"mcp_elicitations"`
	RequestPermissions *bool `wire:"request_permissions,default"`
	Rules              bool  `wire:"rules"`
	SandboxApproval    bool  `wire:"sandbox_approval"`
	SkillApproval      *bool `wire:"skill_approval,default"`
}

func (a *Approval) decodeWire(raw []byte) error {
	switch kindOf(raw) {
	case '"':
		if err := json.Unmarshal(raw, &a.Name); err != nil {
			return err
		}
		if a.Name == "granular" {
			return errors.New("invalid type: unit variant, expected struct variant")
		}
		return oneOf(a.Name, approvalNames)
	case '{':
		return members(raw, func(key string, value json.RawMessage) error {
			if key != "granular" {
				return UnknownVariant(key, approvalNames)
			}
			var g granular
			if err := decodeStruct(value, reflect.ValueOf(&g).Elem(), nil); err != nil {
				return err
			}
			a.Name = "granular"
			return json.Unmarshal(value, &a.Granular)
		})
	}
	return wrongType(raw, "string or map")
}

// MarshalJSON gives the policy its wire form.
func (a Approval) MarshalJSON() ([]byte, error) {
	if a.Name == "granular" {
		g := map[string]any{"mcp_elicitations": true, "rules": true, "sandbox_approval": true}
		for k, v := range a.Granular {
			g[k] = v
		}
		return json.Marshal(map[string]any{"granular": g})
	}
	return json.Marshal(a.Name)
}

// SandboxPolicy is the tagged form of a sandbox policy.
type SandboxPolicy struct {
	Type                string
	WritableRoots       []string
	NetworkAccess       bool
	ExcludeTmpdirEnvVar bool
	ExcludeSlashTmp     bool
}

var sandboxTypes = []string{"dangerFullAccess", "readOnly", "externalSandbox", "workspaceWrite"}

type readOnlyFields struct {
	NetworkAccess bool `wire:"networkAccess,default"`
}

type networkAccess string

func (networkAccess) Variants() []string { return []string{"restricted", "enabled"} }

type externalFields struct {
	NetworkAccess networkAccess `wire:"networkAccess,default"`
}

type workspaceFields struct {
	WritableRoots       []AbsPath `wire:"writableRoots,default"`
	NetworkAccess       bool      `wire:"networkAccess,default"`
	ExcludeTmpdirEnvVar bool      `wire:"excludeTmpdirEnvVar,default"`
	ExcludeSlashTmp     bool      `wire:"excludeSlashTmp,default"`
}

// tagOf reads the type tag of an internally tagged union.
func tagOf(raw []byte, union string, names []string) (string, error) {
	if kindOf(raw) != '{' {
		return "", wrongType(raw, "internally tagged enum "+union)
	}
	var tag struct {
		Type json.RawMessage `wire:"type"`
	}
	if _, err := Decode(raw, &tag); err != nil {
		return "", err
	}
	switch kindOf(tag.Type) {
	case '"':
	case '0':
		return "", fmt.Errorf("invalid value: %s, expected variant index 0 <= i < %d", found(tag.Type), len(names))
	default:
		return "", wrongType(tag.Type, "variant identifier")
	}
	var s string
	if err := json.Unmarshal(tag.Type, &s); err != nil {
		return "", err
	}
	return s, oneOf(s, names)
}

func (p *SandboxPolicy) decodeWire(raw []byte) error {
	tag, err := tagOf(raw, "SandboxPolicy", sandboxTypes)
	if err != nil {
		return err
	}
	p.Type = tag
	switch tag {
	case "readOnly":
		var f readOnlyFields
		_, err = Decode(raw, &f)
		p.NetworkAccess = f.NetworkAccess
	case "externalSandbox":
		var f externalFields
		_, err = Decode(raw, &f)
		p.NetworkAccess = f.NetworkAccess == "enabled"
	case "workspaceWrite":
		var f workspaceFields
		_, err = Decode(raw, &f)
		for _, r := range f.WritableRoots {
			p.WritableRoots = append(p.WritableRoots, string(r))
		}
		p.NetworkAccess, p.ExcludeSlashTmp, p.ExcludeTmpdirEnvVar = f.NetworkAccess, f.ExcludeSlashTmp, f.ExcludeTmpdirEnvVar
	}
	return err
}

// MarshalJSON gives the policy its wire form.
func (p SandboxPolicy) MarshalJSON() ([]byte, error) {
	switch p.Type {
	case "readOnly":
		return json.Marshal(struct {
			Type          string `json:"type"`
			NetworkAccess bool   `json:"networkAccess"`
		}{p.Type, p.NetworkAccess})
	case "externalSandbox":
		access := "restricted"
		if p.NetworkAccess {
			access = "enabled"
		}
		return json.Marshal(map[string]string{"type": p.Type, "networkAccess": access})
	case "workspaceWrite":
		roots := p.WritableRoots
		if roots == nil {
			roots = []string{}
		}
		return json.Marshal(struct {
			Type                string   `json:"type"`
			WritableRoots       []string `json:"writableRoots"`
			NetworkAccess       bool     `json:"networkAccess"`
			ExcludeTmpdirEnvVar bool     `json:"excludeTmpdirEnvVar"`
			ExcludeSlashTmp     bool     `json:"excludeSlashTmp"`
		}{p.Type, roots, p.NetworkAccess, p.ExcludeTmpdirEnvVar, p.ExcludeSlashTmp})
	}
	return json.Marshal(map[string]string{"type": p.Type})
}

// UserInput is one part of a turn's input.
type UserInput struct {
	Type         string
	Text         string
	TextElements json.RawMessage
	URL          string
	Path         string
	Name         string
}

var inputTypes = []string{"text", "image", "localImage", "audio", "localAudio", "skill", "mention"}

func (u *UserInput) decodeWire(raw []byte) error {
	tag, err := tagOf(raw, "UserInput", inputTypes)
	if err != nil {
		return err
	}
	u.Type = tag
	switch tag {
	case "text":
		var f struct {
			Text     string            `wire:"text"`
			Elements []json.RawMessage `wire:"text_elements,default"`
		}
		_, err = Decode(raw, &f)
		u.Text = f.Text
		if len(f.Elements) > 0 {
			u.TextElements, _ = json.Marshal(f.Elements)
		}
	case "image", "audio":
		var f struct {
			URL string `wire:"url"`
		}
		_, err = Decode(raw, &f)
		u.URL = f.URL
	case "localImage", "localAudio":
		var f struct {
			Path string `wire:"path"`
		}
		_, err = Decode(raw, &f)
		u.Path = f.Path
	case "skill", "mention":
		var f struct {
			Name string `wire:"name"`
			Path string `wire:"path"`
		}
		_, err = Decode(raw, &f)
		u.Name, u.Path = f.Name, f.Path
	}
	return err
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

// MultiAgentMode says whether the model hands work on. It has no effect here.
type MultiAgentMode struct{}

func (*MultiAgentMode) decodeWire(raw []byte) error {
	names := []string{"none", "custom", "explicitRequestOnly", "proactive"}
	switch kindOf(raw) {
	case '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
		return oneOf(s, names)
	case '{':
		return members(raw, func(key string, value json.RawMessage) error {
			if key != "custom" {
				return oneOf(key, names)
			}
			if kindOf(value) != '"' {
				return wrongType(value, "a string")
			}
			return nil
		})
	}
	return wrongType(raw, "string or map")
}

// CyberAccess is a treatment that a vendor's server gives to a turn. It has no
// effect here.
type CyberAccess string

// Variants implements the enumeration.
func (CyberAccess) Variants() []string { return []string{"standard", "daybreakBlue", "daybreakRed"} }

// OutputDeferral says whose output is left out of a list of items.
type OutputDeferral struct {
	CommandExecution bool `wire:"commandExecution,default"`
	McpToolCall      bool `wire:"mcpToolCall,default"`
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
