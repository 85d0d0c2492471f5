package agent

import (
	"strings"
	"testing"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func TestFacts(t *testing.T) {
	if got := facts(nil); len(got) > 0 {
		t.Errorf("without a verdict: %q", got)
	}
	v := &heddlev1.ProcessVerdict{OomKilled: true, DiskLow: true}
	for range maxViolations + 3 {
		v.Violations = append(v.Violations, &heddlev1.PathViolation{Path: "/s", What: "refused"})
	}
	got := facts(v)
	if len(got) != 2+maxViolations+1 || !strings.Contains(got[0], "memory") || got[2] != "/s: refused" || got[len(got)-1] != "3 more refusals" {
		t.Errorf("%q", got)
	}
}

func TestViolationWarning(t *testing.T) {
	if got := violationWarning("t", "make", &heddlev1.ProcessVerdict{TimedOut: true}); got != nil {
		t.Errorf("without a violation: %v", got)
	}
	v := &heddlev1.ProcessVerdict{Violations: []*heddlev1.PathViolation{{Path: "/w/.git/hooks/pre-commit", What: "moved to /q"}}}
	got := violationWarning("t", "make", v)
	if len(got) != 1 || got[0].GetTurnId() != "t" || !strings.Contains(got[0].GetWarningRaised().GetMessage(), "`make`: /w/.git/hooks/pre-commit: moved to /q") {
		t.Errorf("%v", got)
	}
}
