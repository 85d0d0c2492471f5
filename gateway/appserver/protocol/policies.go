package protocol

import (
	"encoding/json"
	"errors"
	"reflect"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

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
		g := map[string]any{
			"mcp_elicitations": true, "rules": true, "sandbox_approval": true, "skill_approval": false, "request_permissions": false,
		}
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

// FromApproval makes the wire form of an approval policy.
func FromApproval(s *heddlev1.ThreadSettings) Approval {
	a := Approval{Name: s.GetApprovalPolicy()}
	if a.Name == "" {
		a.Name = "on-request"
	}
	if a.Name == "granular" {
		a.Granular = s.GetGranularApproval().AsMap()
	}
	return a
}

// FromSandbox makes the tagged form of a policy.
func FromSandbox(p *heddlev1.SandboxPolicy) SandboxPolicy {
	// A proxied network is access; which hosts can be reached is not in this shape.
	out := SandboxPolicy{NetworkAccess: p.GetNetwork() == heddlev1.NetworkMode_NETWORK_MODE_FULL ||
		p.GetNetwork() == heddlev1.NetworkMode_NETWORK_MODE_PROXIED}
	switch p.GetLevel() {
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS:
		out.Type = "dangerFullAccess"
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_EXTERNAL:
		out.Type = "externalSandbox"
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE:
		out.Type, out.WritableRoots = "workspaceWrite", p.GetWritableRoots()
		out.ExcludeSlashTmp, out.ExcludeTmpdirEnvVar = p.GetExcludeSlashTmp(), p.GetExcludeTmpdirEnvVar()
	default:
		out.Type = "readOnly"
	}
	return out
}

// ToSandbox reads the tagged form of a policy.
func ToSandbox(p *SandboxPolicy) *heddlev1.SandboxPolicy {
	if p == nil {
		return nil
	}
	out := &heddlev1.SandboxPolicy{Network: heddlev1.NetworkMode_NETWORK_MODE_OFF}
	if p.NetworkAccess {
		out.Network = heddlev1.NetworkMode_NETWORK_MODE_FULL
	}
	switch p.Type {
	case "dangerFullAccess":
		out.Level, out.Network = heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS, heddlev1.NetworkMode_NETWORK_MODE_FULL
	case "externalSandbox":
		out.Level = heddlev1.SandboxLevel_SANDBOX_LEVEL_EXTERNAL
	case "workspaceWrite":
		out.Level, out.WritableRoots = heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE, p.WritableRoots
		out.ExcludeSlashTmp, out.ExcludeTmpdirEnvVar = p.ExcludeSlashTmp, p.ExcludeTmpdirEnvVar
	default:
		out.Level = heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY
	}
	return out
}

// LevelOf reads the short name of a policy; the rest of the policy is left to
// the config.
func LevelOf(m SandboxMode) heddlev1.SandboxLevel {
	switch m {
	case ModeReadOnly:
		return heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY
	case ModeWorkspaceWrite:
		return heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE
	case ModeFullAccess:
		return heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS
	}
	return heddlev1.SandboxLevel_SANDBOX_LEVEL_UNSPECIFIED
}
