package tool

import (
	"errors"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
)

// RequestPermissions asks the person for more than the sandbox allows.
type RequestPermissions struct {
	Reason string
	// Read and Write are paths, absolute or relative to the turn's cwd.
	Read, Write []string
	Network     bool
}

func (*RequestPermissions) call() {}

func requestPermissionsSpec() model.Tool {
	paths := func(what string) map[string]any {
		return listOf(map[string]any{"type": "string"}, what)
	}
	part := func(description string, p props) map[string]any {
		o := object(p)
		delete(o, "required")
		o["description"] = description
		return o
	}
	return function(NameRequestPermissions, "Asks the user for folders to write in, or for the network, and waits for the answer, which may allow a part of it. What is "+
		"granted holds for later commands and patches of this turn, or of the session when the user says so. Ask for the narrowest folders that the task "+
		"needs; they must exist, and names such as .git are never granted.", object(props{
		"permissions": part("What to ask for; at least one.", props{
			"file_system": part("Files and folders.", props{
				"read":  paths("Paths to read. Everything that is not denied by the user can be read without asking."),
				"write": paths("Folders to write in, absolute or relative to the working folder."),
			}),
			"network": part("Network.", props{"enabled": typed("boolean", "True to ask for the network.")}),
		}),
		"reason": text("One short sentence to the user that says what it is for."),
	}, "permissions"))
}

func parseRequestPermissions(args string) (Call, error) {
	var a struct {
		Reason      string `json:"reason"`
		Permissions *struct {
			FileSystem struct {
				Read  []string `json:"read"`
				Write []string `json:"write"`
			} `json:"file_system"`
			Network struct {
				Enabled bool `json:"enabled"`
			} `json:"network"`
		} `json:"permissions"`
	}
	if err := decodeArgs(args, &a); err != nil {
		return nil, err
	}
	if a.Permissions == nil {
		return nil, missing("permissions")
	}
	fs := a.Permissions.FileSystem
	r := &RequestPermissions{Reason: a.Reason, Read: fs.Read, Write: fs.Write, Network: a.Permissions.Network.Enabled}
	if len(r.Read)+len(r.Write) == 0 && !r.Network {
		return nil, errors.New("request_permissions needs at least one permission")
	}
	return r, nil
}
