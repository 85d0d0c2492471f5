package actionhash_test

import (
	"bytes"
	"testing"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/proto/heddle/v1/actionhash"
)

// Each part of a request, and each part of the policy, is in its hash.
func TestPermissions(t *testing.T) {
	type request = heddlev1.PermissionsRequest
	policy := &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE}
	seen := [][]byte{}
	for _, h := range [][]byte{
		actionhash.Permissions(&request{Cwd: "/w", Write: []string{"/a"}}, policy),
		actionhash.Permissions(&request{Cwd: "/x", Write: []string{"/a"}}, policy),
		actionhash.Permissions(&request{Cwd: "/w", Read: []string{"/a"}}, policy),
		actionhash.Permissions(&request{Cwd: "/w", Write: []string{"/a", "/b"}}, policy),
		actionhash.Permissions(&request{Cwd: "/w", Write: []string{"/a"}, Read: []string{"/b"}}, policy),
		actionhash.Permissions(&request{Cwd: "/w", Write: []string{"/a"}, Network: true}, policy),
		actionhash.Permissions(&request{Cwd: "/w", Write: []string{"/a"}}, &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY}),
	} {
		for _, other := range seen {
			if bytes.Equal(h, other) {
				t.Errorf("two requests have the hash %x", h)
			}
		}
		seen = append(seen, h)
	}
	again := actionhash.Permissions(&request{Cwd: "/w", Write: []string{"/a"}}, policy)
	if !bytes.Equal(again, seen[0]) {
		t.Errorf("the same request has the hash %x, and %x", seen[0], again)
	}
}
