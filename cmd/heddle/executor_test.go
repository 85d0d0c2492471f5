package main

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func TestExecutorFlagMistakes(t *testing.T) {
	dir := t.TempDir()
	for args, part := range map[string]string{
		"":                    "--connect is missing",
		"--connect unix:///s": "--state-dir is missing",
		"--connect unix:///s --state-dir " + dir + " --label x":                           "not key=value",
		"--connect unix:///s --state-dir " + dir + " --capacity -1":                       "--capacity",
		"--connect unix:///s --state-dir " + dir + " --tls-cert c":                        "go together",
		"--connect unix:///s --state-dir " + dir + " --join-token-file /no/such":          "--join-token-file",
		"--connect unix:///s --state-dir " + dir + " --log-level loud":                    "--log-level",
		"--connect unix:///s --state-dir " + dir + " --tls-cert a --tls-key b --tls-ca c": "load TLS certificate",
	} {
		var out, errs bytes.Buffer
		code := run(append([]string{"executor"}, strings.Fields(args)...), strings.NewReader(""), &out, &errs)
		if code != exitUsage || !strings.Contains(errs.String(), part) {
			t.Errorf("%q: exit %d, %q, want %q", args, code, errs.String(), part)
		}
	}
}

func TestKeptReport(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	if _, ok := keptReport(dir); ok {
		t.Fatal("a report was kept by nobody")
	}
	good := &heddlev1.SandboxReport{Backend: "runc-root", Levels: []heddlev1.SandboxLevel{heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE},
		Gaps: []*heddlev1.SandboxGap{{Guarantee: "g", Why: "w", Fix: "f"}}}
	keepReport(dir, good, log)
	if r, ok := keptReport(dir); !ok || !proto.Equal(r, good) {
		t.Fatalf("kept: %v, %v", r, ok)
	}
	path := filepath.Join(dir, "sandbox-report")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append([]byte("another boot "), data...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok := keptReport(dir); ok {
		t.Error("the report of another boot is used")
	}
	keepReport(dir, good, log)
	keepReport(dir, &heddlev1.SandboxReport{Backend: "none"}, log)
	if _, ok := keptReport(dir); ok {
		t.Error("a report without containment is kept")
	}
}

func closedWithin(c <-chan struct{}, d time.Duration) bool {
	select {
	case <-c:
		return true
	case <-time.After(d):
		return false
	}
}

func TestOrphaned(t *testing.T) {
	if c, err := (executorFlags{}).orphaned(strings.NewReader("")); c != nil || err != nil {
		t.Fatalf("without a parent: %v, %v", c, err)
	}
	r, w := io.Pipe()
	c, err := executorFlags{parentStdin: true}.orphaned(r)
	if err != nil || closedWithin(c, 20*time.Millisecond) {
		t.Fatalf("stdin is open: %v", err)
	}
	w.Close()
	if !closedWithin(c, 5*time.Second) {
		t.Error("stdin has ended")
	}
	parent := exec.Command("sleep", "60")
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	c, err = executorFlags{parentPID: parent.Process.Pid}.orphaned(nil)
	if err != nil || closedWithin(c, 20*time.Millisecond) {
		t.Fatalf("the parent lives: %v", err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // killed
	if !closedWithin(c, 5*time.Second) {
		t.Error("the parent is gone")
	}
	if c, err = (executorFlags{parentPID: parent.Process.Pid}).orphaned(nil); err != nil || !closedWithin(c, 5*time.Second) {
		t.Errorf("the parent was gone before: %v", err)
	}
}
