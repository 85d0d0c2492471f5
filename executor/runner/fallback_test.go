package runner

import (
	"testing"

	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/sandbox"
)

// TestFallbackReport: a thread whose policy needs the fallback is told its backend and its gaps; every other gets
// the host's report as it is.
func TestFallbackReport(t *testing.T) {
	host := ReportOf(sandbox.Report{Backend: sandbox.BackendNone, Cause: "no namespaces", Levels: map[string]bool{"danger-full-access": true},
		Gaps:     []sandbox.Gap{{Guarantee: sandbox.GapLevels, Why: "no namespaces"}, {Guarantee: sandbox.GapCgroup, Why: "no cgroup"}},
		Fallback: &sandbox.FallbackReport{Levels: map[string]bool{"read-only": true, "workspace-write": true}, Gaps: sandbox.LandlockGaps(7)}})
	policy := func(level heddlev1.SandboxLevel, fallback bool) sandbox.Policy {
		return policyOf(&executorv1.Action{Policy: &heddlev1.SandboxPolicy{Level: level, LandlockFallback: fallback}})
	}
	got := reportFor(host, policy(heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE, true))
	if got.GetBackend() != "landlock" || len(got.GetLevels()) != 3 || len(got.GetFallbackGaps()) != 0 {
		t.Errorf("report %v", got)
	}
	if n := len(got.GetGaps()); n != len(sandbox.LandlockGaps(7))+1 || got.GetGaps()[n-1].GetGuarantee() != sandbox.GapCgroup {
		t.Errorf("gaps %v", got.GetGaps())
	}
	for _, p := range []sandbox.Policy{policy(heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE, false), policy(heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS, true)} {
		if reportFor(host, p) != host {
			t.Errorf("policy %+v: not the host's report", p)
		}
	}
}
