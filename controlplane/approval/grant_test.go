package approval

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func TestCheckRoot(t *testing.T) {
	p := Private{UserHome: "/home/u", Home: "/srv/plane/home"}
	for path, ok := range map[string]bool{
		"/data": true, "/home/u/work/out": true, "/srv/other": true, "/home/user": true, "/etc/app": true, "/var/lib/x": true,
		"/": false, "/home": false, "/home/u": false, "/etc": false, "/usr": false, "/tmp": false, "/proc/self": false, "/dev/shm": false, "/sys": false, "/run/x": false,
		"/srv": false, "/srv/plane": false, "/srv/plane/home": false, "/srv/plane/home/threads": false,
		"/home/u/repo/.git": false, "/home/u/repo/.git/hooks": false, "/home/u/.heddle": false, "/home/u/.codex/x": false, "/w/.agents": false,
		"": false, "rel": false, "../up": false, "/a/../b": false, "/a/": false, "/a//b": false, "/a/./b": false, "/a\x00b": false, "/a\nb": false,
	} {
		if err := p.CheckRoot(path); (err == nil) != ok {
			t.Errorf("CheckRoot(%q) = %v", path, err)
		}
	}
}

// Commands that are given no HOME have a home folder all the same.
func TestCheckRootWithoutKnownHome(t *testing.T) {
	for path, ok := range map[string]bool{"/home/u": false, "/home/u/work": true, "/root": false} {
		if err := (Private{}).CheckRoot(path); (err == nil) != ok {
			t.Errorf("CheckRoot(%q) = %v", path, err)
		}
	}
}

// A grant at read-only makes nothing count that the policy holds for another level.
func TestExtendRevivesNothing(t *testing.T) {
	p := &heddlev1.SandboxPolicy{
		Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY, WritableRoots: []string{"/old"}, HostTmp: true, Git: heddlev1.GitMode_GIT_MODE_COMMIT,
	}
	got := Extend(p, "/w", []*heddlev1.PermissionGrant{{Write: []string{"/w"}}})
	if want := (&heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE}); !proto.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestGrantedIsAnIntersection(t *testing.T) {
	asked := &heddlev1.PermissionsRequest{Write: []string{"/w/out", "/x"}, Read: []string{"/r"}, Network: true}
	for _, row := range []struct {
		name   string
		asked  *heddlev1.PermissionsRequest
		answer map[string]any
		want   *heddlev1.PermissionGrant
	}{
		{"all", asked, map[string]any{"write": []any{"/w/out", "/x"}, "read": []any{"/r"}, "network": true, "scope": "session"},
			&heddlev1.PermissionGrant{Scope: "session", Write: []string{"/w/out", "/x"}, Read: []string{"/r"}, Network: true}},
		{"a part", asked, map[string]any{"write": []any{"/x"}}, &heddlev1.PermissionGrant{Scope: "turn", Write: []string{"/x"}}},
		{"narrower", asked, map[string]any{"write": []any{"/w/out/deep"}, "scope": "turn"}, &heddlev1.PermissionGrant{Scope: "turn", Write: []string{"/w/out/deep"}}},
		{"repeated", asked, map[string]any{"write": []any{"/x", "/x"}}, &heddlev1.PermissionGrant{Scope: "turn", Write: []string{"/x"}}},
		{"wider", asked, map[string]any{"write": []any{"/w", "/", "/w/outside", "/w/out/..", "/w/out/../..", "x", ""}}, nil},
		{"read is not write", asked, map[string]any{"write": []any{"/r"}}, nil},
		{"not asked", &heddlev1.PermissionsRequest{Write: []string{"/x"}}, map[string]any{"network": true, "read": []any{"/x"}}, nil},
		{"other types", asked, map[string]any{"write": "/x", "read": map[string]any{"/r": true}, "network": "true"}, nil},
		{"other scope", asked, map[string]any{"network": true, "scope": "forever"}, &heddlev1.PermissionGrant{Scope: "turn", Network: true}},
		{"nothing", asked, map[string]any{}, nil},
	} {
		answer, err := structpb.NewValue(row.answer)
		if err != nil {
			t.Fatal(err)
		}
		if got := Granted(row.asked, answer); !proto.Equal(got, row.want) {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
	}
	if got := Granted(asked, nil); got != nil {
		t.Errorf("no answer grants %v", got)
	}
}

func TestExtend(t *testing.T) {
	const (
		readOnly = heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY
		write    = heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE
		full     = heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS
		off      = heddlev1.NetworkMode_NETWORK_MODE_OFF
		host     = heddlev1.NetworkMode_NETWORK_MODE_FULL
		proxied  = heddlev1.NetworkMode_NETWORK_MODE_PROXIED
	)
	policy := func(l heddlev1.SandboxLevel, n heddlev1.NetworkMode, roots ...string) *heddlev1.SandboxPolicy {
		return &heddlev1.SandboxPolicy{Level: l, Network: n, WritableRoots: roots, DenyRead: []string{"/secret"}}
	}
	grant := func(network bool, roots ...string) *heddlev1.PermissionGrant {
		return &heddlev1.PermissionGrant{Write: roots, Network: network}
	}
	for _, row := range []struct {
		name     string
		in, want *heddlev1.SandboxPolicy
		grant    *heddlev1.PermissionGrant
	}{
		{"folder", policy(write, off, "/a"), policy(write, off, "/a", "/x"), grant(false, "/x", "/a", "/ws")},
		{"network", policy(write, off), policy(write, host), grant(true)},
		{"a network with lists stays one", policy(write, proxied), policy(write, proxied), grant(true)},
		{"read-only without the working folder", policy(readOnly, off, "/a"), policy(readOnly, off, "/a"), grant(false, "/x")},
		{"read-only with it", policy(readOnly, off, "/a"), policy(write, off, "/x"), grant(false, "/ws", "/x")},
		{"read-only, network", policy(readOnly, off), policy(readOnly, host), grant(true)},
		{"no sandbox", policy(full, off), policy(full, off), grant(true, "/x")},
	} {
		before := proto.CloneOf(row.in)
		if got := Extend(row.in, "/ws", []*heddlev1.PermissionGrant{row.grant}); !proto.Equal(got, row.want) {
			t.Errorf("%s: %v, want %v", row.name, got, row.want)
		}
		if !proto.Equal(row.in, before) {
			t.Errorf("%s: the policy itself was changed", row.name)
		}
	}
}

func TestDecidePermissions(t *testing.T) {
	flags := func(on bool) *structpb.Struct {
		return &structpb.Struct{Fields: map[string]*structpb.Value{"request_permissions": structpb.NewBoolValue(on), "sandbox_approval": structpb.NewBoolValue(true)}}
	}
	contained, full := heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE, heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS
	for _, row := range []struct {
		policy string
		flags  *structpb.Struct
		level  heddlev1.SandboxLevel
		asks   bool
	}{
		{OnRequest, nil, contained, true}, {Untrusted, nil, contained, true}, {Never, nil, contained, false}, {OnRequest, nil, full, false},
		{Granular, flags(true), contained, true}, {Granular, flags(false), contained, false}, {Granular, nil, contained, false},
	} {
		if why := DecidePermissions(row.policy, row.flags, row.level); (why == "") != row.asks {
			t.Errorf("%s %v %v: %q", row.policy, row.flags, row.level, why)
		}
	}
}
