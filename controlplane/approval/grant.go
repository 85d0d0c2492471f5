package approval

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Scopes of a grant.
const (
	ScopeTurn    = "turn"
	ScopeSession = "session"
)

// Bounds of what is asked for at once and of what holds in a thread.
const (
	MaxGrantPaths = 32
	MaxGrants     = 64
	maxPathBytes  = 4096
)

// protectedNames are never part of a folder that is granted for writing.
var protectedNames = []string{".git", ".codex", ".agents", ".heddle"}

// systemFolders are never granted as a whole: what is in them decides what other
// programs of the host do.
var systemFolders = []string{"/bin", "/boot", "/etc", "/home", "/lib", "/lib32", "/lib64", "/opt", "/root", "/sbin", "/srv", "/tmp", "/usr", "/var"}

// kernelFolders are never granted, nor is anything in them.
var kernelFolders = []string{"/boot", "/dev", "/proc", "/run", "/sys"}

// DecidePermissions says why a request for more permissions is refused without
// asking; empty when a person is asked.
func DecidePermissions(policy string, granular *structpb.Struct, level heddlev1.SandboxLevel) string {
	switch {
	case level == heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS, level == heddlev1.SandboxLevel_SANDBOX_LEVEL_EXTERNAL:
		return "there is no sandbox here that permissions could be added to"
	case policy == Never:
		return "the approval policy is never, so nobody is asked"
	case policy == Granular && !granularFlag(granular, "request_permissions"):
		return "the approval policy does not allow asking for permissions"
	}
	return ""
}

// Private are folders that neither a grant nor anything above it may cover.
type Private struct {
	// UserHome is not granted, nor what is above it; folders in it are. Where it is
	// not known, all folders in /home are taken for one.
	UserHome string
	// Home is the control plane's: not granted, nor what is above or in it.
	Home string
}

// CheckRoot says why a folder cannot be granted for writing. The path has to be
// absolute and clean with its links resolved: what it says is all that is looked
// at.
func (p Private) CheckRoot(path string) error {
	switch {
	case len(path) > maxPathBytes || strings.ContainsAny(path, "\x00\n\r"):
		return errors.New("a path that is too long or has control characters cannot be granted")
	case !filepath.IsAbs(path) || filepath.Clean(path) != path:
		return fmt.Errorf("%s is no absolute path", path)
	case path == "/" || slices.Contains(systemFolders, path) || p.UserHome == "" && filepath.Dir(path) == "/home":
		return fmt.Errorf("%s is too wide to be granted", path)
	}
	for _, k := range kernelFolders {
		if Within(path, k) {
			return fmt.Errorf("%s belongs to the system and cannot be granted", path)
		}
	}
	for _, part := range strings.Split(path, "/") {
		if slices.Contains(protectedNames, part) {
			return fmt.Errorf("%s is protected: nothing is granted in %s", path, part)
		}
	}
	if p.UserHome != "" && Within(filepath.Clean(p.UserHome), path) {
		return fmt.Errorf("%s holds the whole home folder and is too wide to be granted", path)
	}
	if home := filepath.Clean(p.Home); p.Home != "" && (Within(home, path) || Within(path, home)) {
		return fmt.Errorf("%s holds the data of the control plane and cannot be granted", path)
	}
	return nil
}

// Within reports whether a clean absolute path is dir or below it.
func Within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// Granted is what an answer allows of what was asked: never more than either of
// them says. Paths of the answer that are not clean and absolute grant nothing,
// as does one that is wider than what was asked for. Nil means nothing.
func Granted(asked *heddlev1.PermissionsRequest, answer *structpb.Value) *heddlev1.PermissionGrant {
	f := answer.GetStructValue().GetFields()
	g := &heddlev1.PermissionGrant{
		Scope: ScopeTurn, Write: narrowed(asked.GetWrite(), f["write"]), Read: narrowed(asked.GetRead(), f["read"]),
		Network: asked.GetNetwork() && f["network"].GetBoolValue(),
	}
	if f["scope"].GetStringValue() == ScopeSession {
		g.Scope = ScopeSession
	}
	if len(g.GetWrite())+len(g.GetRead()) == 0 && !g.GetNetwork() {
		return nil
	}
	return g
}

func narrowed(asked []string, answer *structpb.Value) []string {
	var out []string
	for _, v := range answer.GetListValue().GetValues() {
		path := v.GetStringValue()
		if len(path) > maxPathBytes || !filepath.IsAbs(path) || filepath.Clean(path) != path || slices.Contains(out, path) || len(out) == MaxGrantPaths {
			continue
		}
		if slices.ContainsFunc(asked, func(a string) bool { return Within(path, a) }) {
			out = append(out, path)
		}
	}
	return out
}

// Extend is the policy with grants laid over it; the policy itself when they
// change nothing. A grant never makes a level other than workspace-write: at
// read-only it takes the working folder itself for folders to be writable, and
// without a sandbox there is nothing to add to. A network with lists stays one.
func Extend(p *heddlev1.SandboxPolicy, cwd string, grants []*heddlev1.PermissionGrant) *heddlev1.SandboxPolicy {
	level := p.GetLevel()
	if len(grants) == 0 || level == heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS || level == heddlev1.SandboxLevel_SANDBOX_LEVEL_EXTERNAL {
		return p
	}
	out := proto.CloneOf(p)
	if out == nil {
		out = &heddlev1.SandboxPolicy{}
	}
	write, network := sum(grants)
	if Writes(level, cwd, write) {
		out.Level = heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE
		if level != out.Level {
			// What had no effect gets none by a grant.
			out.WritableRoots, out.HostTmp, out.Git = nil, false, heddlev1.GitMode_GIT_MODE_UNSPECIFIED
		}
		for _, path := range write {
			if path != cwd && !slices.Contains(out.GetWritableRoots(), path) {
				out.WritableRoots = append(out.WritableRoots, path)
			}
		}
	}
	if network && Networks(p.GetNetwork()) {
		out.Network = heddlev1.NetworkMode_NETWORK_MODE_FULL
	}
	return out
}

// Writes reports whether folders can be made writable under a level.
func Writes(level heddlev1.SandboxLevel, cwd string, write []string) bool {
	return len(write) > 0 && (level == heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE || slices.Contains(write, cwd))
}

// Networks reports whether a grant of the network changes a network: one with
// lists asks about each host by itself.
func Networks(m heddlev1.NetworkMode) bool {
	return m != heddlev1.NetworkMode_NETWORK_MODE_PROXIED
}

func sum(grants []*heddlev1.PermissionGrant) (write []string, network bool) {
	for _, g := range grants {
		write = append(write, g.GetWrite()...)
		network = network || g.GetNetwork()
	}
	return write, network
}
