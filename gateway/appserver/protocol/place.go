package protocol

import (
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// LocalEnvironment is the id of the one environment that threads have.
const LocalEnvironment = "local"

// Profile is the wire form of the named permissions that a policy is.
type Profile struct {
	ID      string  `json:"id"`
	Extends *string `json:"extends"`
}

// Environment is the wire form of a place where a thread's commands run.
type Environment struct {
	ID    string   `json:"environmentId"`
	Cwd   string   `json:"cwd"`
	Roots []string `json:"runtimeWorkspaceRoots"`
}

// multiAgentMode is the only mode there is: sub-agents are made when the person
// or the instructions ask for them.
const multiAgentMode = "explicitRequestOnly"

// FromProfile names the built-in profile that a policy is, nil for any other.
func FromProfile(p *heddlev1.SandboxPolicy) *Profile {
	wire := FromSandbox(p)
	switch {
	case wire.Type == "dangerFullAccess":
		return &Profile{ID: ":danger-full-access"}
	case wire.NetworkAccess || len(wire.WritableRoots) > 0 || wire.ExcludeSlashTmp || wire.ExcludeTmpdirEnvVar:
		return nil
	case wire.Type == "readOnly":
		return &Profile{ID: ":read-only"}
	case wire.Type == "workspaceWrite":
		return &Profile{ID: ":workspace"}
	}
	return nil
}

// FromEnvironments says where a thread's commands run: nowhere when it was
// started without an environment.
func FromEnvironments(s *heddlev1.ThreadSettings) []Environment {
	roots := workspaceRoots(s)
	if len(roots) == 0 {
		return []Environment{}
	}
	return []Environment{{ID: LocalEnvironment, Cwd: s.GetCwd(), Roots: roots}}
}

// workspaceRoots are a thread's folder and what else its policy lets it write.
func workspaceRoots(s *heddlev1.ThreadSettings) []string {
	features := s.GetConfig().GetFields()["features"].GetStructValue().GetFields()
	if shell, ok := features["shell_tool"]; ok && !shell.GetBoolValue() {
		return []string{}
	}
	return append([]string{s.GetCwd()}, FromSandbox(s.GetSandbox()).WritableRoots...)
}
