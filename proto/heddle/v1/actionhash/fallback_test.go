package actionhash

import (
	"crypto/sha256"
	"testing"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// TestFallbackIsApproved: an approval without the weaker containment is not one with it.
func TestFallbackIsApproved(t *testing.T) {
	sum := func(p *heddlev1.SandboxPolicy) string {
		e := encoder{h: sha256.New()}
		e.policy(p)
		return string(e.h.Sum(nil))
	}
	p := &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE}
	before := sum(p)
	p.LandlockFallback = true
	if sum(p) == before {
		t.Error("the fallback does not change the hash")
	}
}
