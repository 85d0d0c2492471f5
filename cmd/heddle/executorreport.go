package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/executor"
	"github.com/heddle-dev/heddle/executor/runner"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/sandbox"
)

// reportRefresh is when a kept report is checked, off the way of first commands.
const reportRefresh = 5 * time.Second

// Probing takes longer than everything else in an executor's start. A report
// that says that containment works is therefore kept for the same boot, user and
// version, used at the next start, and checked while the executor runs. It only
// informs: whether a level is enforced is decided anew for each sandbox.

// reportKey names what a kept report is valid for.
func reportKey() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %d %s", strings.TrimSpace(string(boot)), os.Geteuid(), buildVersion()), nil
}

func reportPath(stateDir string) string { return filepath.Join(stateDir, "sandbox-report") }

// keptReport returns the report of an earlier start, if there is one to use.
func keptReport(stateDir string) (*heddlev1.SandboxReport, bool) {
	key, err := reportKey()
	if err != nil {
		return nil, false
	}
	data, err := os.ReadFile(reportPath(stateDir))
	if err != nil {
		return nil, false
	}
	first, body, ok := strings.Cut(string(data), "\n")
	report := &heddlev1.SandboxReport{}
	if !ok || first != key || protojson.Unmarshal([]byte(body), report) != nil || !contains(report) {
		return nil, false
	}
	return report, true
}

// contains reports whether commands can be contained according to a report.
func contains(r *heddlev1.SandboxReport) bool {
	return slices.Contains(r.GetLevels(), heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE)
}

// keepReport writes a report for the next start, or removes the kept one when
// commands cannot be contained: then the next start looks again.
func keepReport(stateDir string, r *heddlev1.SandboxReport, log *slog.Logger) {
	key, err := reportKey()
	if err == nil && !contains(r) {
		_ = os.Remove(reportPath(stateDir))
		return
	}
	var body []byte
	if err == nil {
		body, err = protojson.Marshal(r)
	}
	tmp := reportPath(stateDir) + ".new"
	if err == nil {
		err = os.WriteFile(tmp, append([]byte(key+"\n"), body...), 0o600)
	}
	if err == nil {
		err = os.Rename(tmp, reportPath(stateDir))
	}
	if err != nil {
		log.Warn("the sandbox report cannot be kept", "cause", err)
	}
}

// probeReport does the real thing once.
func probeReport(ctx context.Context, boxes sandbox.Config) *heddlev1.SandboxReport {
	return runner.ReportOf(sandbox.Probe(ctx, boxes))
}

// refreshReport checks a kept report once.
func refreshReport(ctx context.Context, ex *executor.Executor, boxes sandbox.Config, stateDir string, log *slog.Logger) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(reportRefresh):
	}
	boxes.Existing = true // a home that was deleted meanwhile stays so
	now := probeReport(ctx, boxes)
	if ctx.Err() != nil || proto.Equal(now, ex.Report()) {
		return
	}
	log.Warn("what the sandboxes enforce has changed", "backend", now.GetBackend(), "gaps", len(now.GetGaps()))
	keepReport(stateDir, now, log)
	ex.SetReport(now)
}
