package protocol

import heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"

// SandboxReport says to clients that asked for it which mechanism contains a thread's commands and what it cannot
// guarantee.
type SandboxReport struct {
	Backend     string       `json:"backend"`
	CgroupKill  bool         `json:"cgroupKill"`
	LandlockABI int32        `json:"landlockAbi"`
	Levels      []string     `json:"levels"`
	Gaps        []SandboxGap `json:"gaps"`
}

// SandboxGap is one guarantee that does not hold.
type SandboxGap struct {
	Guarantee string `json:"guarantee"`
	Why       string `json:"why"`
	Fix       string `json:"fix"`
}

var levelNames = map[heddlev1.SandboxLevel]string{
	heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY: "read-only", heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE: "workspace-write",
	heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS: "danger-full-access", heddlev1.SandboxLevel_SANDBOX_LEVEL_EXTERNAL: "external-sandbox",
}

// FromSandboxReport makes the wire form; nil before there is one.
func FromSandboxReport(r *heddlev1.SandboxReport) *SandboxReport {
	if r == nil {
		return nil
	}
	out := &SandboxReport{Backend: r.GetBackend(), CgroupKill: r.GetCgroupKill(), LandlockABI: r.GetLandlockAbi(), Levels: []string{}, Gaps: []SandboxGap{}}
	for _, l := range r.GetLevels() {
		if name := levelNames[l]; name != "" {
			out.Levels = append(out.Levels, name)
		}
	}
	for _, g := range r.GetGaps() {
		out.Gaps = append(out.Gaps, SandboxGap{g.GetGuarantee(), g.GetWhy(), g.GetFix()})
	}
	return out
}
