package protocol

import (
	"encoding/json"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/protobuf/types/known/structpb"
)

// PermissionsAsked is what item/permissions/requestApproval asks for.
func PermissionsAsked(p *heddlev1.PermissionsRequest) any {
	permissions := map[string]any{"network": nil, "fileSystem": nil}
	if p.GetNetwork() {
		permissions["network"] = map[string]any{"enabled": true}
	}
	if len(p.GetRead())+len(p.GetWrite()) > 0 {
		entries := []any{}
		add := func(access string, paths []string) {
			for _, path := range paths {
				entries = append(entries, map[string]any{"path": map[string]any{"type": "path", "path": path}, "access": access})
			}
		}
		add("read", p.GetRead())
		add("write", p.GetWrite())
		permissions["fileSystem"] = map[string]any{"read": nullable(p.GetRead()), "write": nullable(p.GetWrite()), "entries": entries}
	}
	return permissions
}

func nullable(list []string) any {
	if len(list) == 0 {
		return nil
	}
	return list
}

// ToGranted reads the answer to item/permissions/requestApproval; nil when it is
// unusable, which grants nothing. Names count only as they are written: a name
// that merely looks like one permits nothing. An answer with what cannot be
// enforced (a denied path, a path that is none, the review of every command) is
// unusable as a whole, since a part of it is not what was answered.
func ToGranted(result json.RawMessage) *structpb.Value {
	body, ok := object(result)
	permissions, ok2 := object(body["permissions"])
	if !ok || !ok2 {
		return nil
	}
	scope := "turn"
	if raw, set := body["scope"]; set {
		if json.Unmarshal(raw, &scope) != nil || scope != "turn" && scope != "session" {
			return nil
		}
	}
	var strict *bool
	if raw, set := body["strictAutoReview"]; set && (json.Unmarshal(raw, &strict) != nil || strict != nil && *strict) {
		return nil
	}
	network, ok := optional(permissions["network"])
	if !ok {
		return nil
	}
	var enabled *bool
	if raw, set := network["enabled"]; set && json.Unmarshal(raw, &enabled) != nil {
		return nil
	}
	read, write, ok := grantedFiles(permissions["fileSystem"])
	if !ok {
		return nil
	}
	v, err := structpb.NewValue(map[string]any{"scope": scope, "read": read, "write": write, "network": enabled != nil && *enabled})
	if err != nil {
		return nil
	}
	return v
}

func grantedFiles(raw json.RawMessage) (read, write []any, ok bool) {
	files, ok := optional(raw)
	if !ok {
		return nil, nil, false
	}
	read, write = []any{}, []any{}
	for name, list := range map[string]*[]any{"read": &read, "write": &write} {
		var paths []string
		if raw, set := files[name]; set && json.Unmarshal(raw, &paths) != nil {
			return nil, nil, false
		}
		for _, path := range paths {
			*list = append(*list, path)
		}
	}
	var entries []json.RawMessage
	if raw, set := files["entries"]; set && json.Unmarshal(raw, &entries) != nil {
		return nil, nil, false
	}
	for _, raw := range entries {
		access, path, ok := grantedEntry(raw)
		if !ok {
			return nil, nil, false
		}
		if access == "write" {
			write = append(write, path)
		} else {
			read = append(read, path)
		}
	}
	return read, write, true
}

func grantedEntry(raw json.RawMessage) (access, path string, ok bool) {
	entry, ok := object(raw)
	at, ok2 := object(entry["path"])
	var kind string
	if !ok || !ok2 || json.Unmarshal(entry["access"], &access) != nil || json.Unmarshal(at["type"], &kind) != nil || json.Unmarshal(at["path"], &path) != nil {
		return "", "", false
	}
	return access, path, kind == "path" && (access == "read" || access == "write")
}

// object reads a JSON object with its exact names.
func object(raw json.RawMessage) (map[string]json.RawMessage, bool) {
	var m map[string]json.RawMessage
	return m, json.Unmarshal(raw, &m) == nil && m != nil
}

// optional is object for one that may be left out or null.
func optional(raw json.RawMessage) (map[string]json.RawMessage, bool) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, true
	}
	return object(raw)
}
