package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/heddle-dev/heddle/controlplane/artifact"
	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// artifacts reads all pages of a listing.
func (r *rig) artifacts(ctx context.Context, req *heddlev1.ListArtifactsRequest) []*heddlev1.Artifact {
	r.t.Helper()
	var out []*heddlev1.Artifact
	for {
		page, err := heddlev1.NewArtifactServiceClient(r.conn).ListArtifacts(ctx, req)
		if err != nil {
			r.t.Fatal(err)
		}
		out = append(out, page.GetArtifacts()...)
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return out
		}
	}
}

// read returns all bytes of an artifact, in ranges of n, checked against its
// digest.
func (r *rig) read(ctx context.Context, thread, id string, n int64) string {
	r.t.Helper()
	var out []byte
	for {
		resp, err := heddlev1.NewArtifactServiceClient(r.conn).ReadArtifact(ctx, &heddlev1.ReadArtifactRequest{ThreadId: thread, ArtifactId: id, Offset: int64(len(out)), Length: n})
		if err != nil {
			r.t.Fatal(err)
		}
		out = append(out, resp.GetData()...)
		if int64(len(out)) < resp.GetTotal() {
			continue
		}
		if sum := sha256.Sum256(out); hex.EncodeToString(sum[:]) != resp.GetArtifact().GetSha256() || resp.GetArtifact().GetBytes() != int64(len(out)) {
			r.t.Errorf("%s: %d bytes, not those of %v", id, len(out), resp.GetArtifact())
		}
		return string(out)
	}
}

const addedPatch = "diff --git a/n.txt b/n.txt\nnew file mode 100644\nindex 0000000000000000000000000000000000000000..587be6b4c3f93f93c489c0111bba5596147a26cb\n--- /dev/null\n+++ b/n.txt\n@@ -0,0 +1 @@\n+x\n"

// Every turn with file changes leaves its patch, in the commit of its end, and
// every command its output; both are listed and read, also by a fork and after a
// restart, and go with the thread.
func TestArtifacts(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Store = "bolt" })
	r.model.script(calls(shell("c1", "echo hello"), patchOf("p1", "n.txt")), speak("m1", "done"), calls(shell("c2", "echo again")), speak("m2", "done"), calls(patchOf("p2", "m.txt")), speak("m3", "done"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	var turns []string
	for range 3 {
		turns = append(turns, r.startTurn(ctx, th.GetId(), "go").GetId())
		end := f.turnEnd()
		if d := end.GetDiff(); (d != nil) != (len(turns) != 2) {
			t.Fatalf("turn %d ended with the diff %v", len(turns), d)
		}
	}
	list := r.artifacts(ctx, &heddlev1.ListArtifactsRequest{ThreadId: th.GetId(), PageSize: 1})
	if len(list) != 4 {
		t.Fatalf("artifacts: %v", list)
	}
	d := list[0].GetDiff()
	if d.GetTurnId() != turns[0] || d.GetBaseCommit() != "c0ffee" || d.GetPatch() != list[0].GetId() || d.GetSha256() != list[0].GetSha256() || len(d.GetFiles()) != 1 ||
		d.GetFiles()[0].GetPath() != "n.txt" || d.GetFiles()[0].GetKind() != "add" || d.GetTruncated() || d.GetMissing() != "" {
		t.Errorf("diff %v", d)
	}
	if got := r.read(ctx, th.GetId(), list[0].GetId(), 7); got != addedPatch {
		t.Errorf("patch %q", got)
	}
	if out := list[2]; out.GetKind() != heddlev1.ArtifactKind_ARTIFACT_KIND_OUTPUT || !out.GetSealed() || out.GetTurnId() != turns[0] || r.read(ctx, th.GetId(), out.GetId(), 2) != "hello\n" {
		t.Errorf("output %v", out)
	}
	for _, c := range []struct {
		req  *heddlev1.ListArtifactsRequest
		want int
	}{
		{&heddlev1.ListArtifactsRequest{TurnId: turns[1]}, 1}, {&heddlev1.ListArtifactsRequest{TurnId: turns[2]}, 1}, {&heddlev1.ListArtifactsRequest{TurnId: turns[0]}, 2},
		{&heddlev1.ListArtifactsRequest{Kind: heddlev1.ArtifactKind_ARTIFACT_KIND_DIFF}, 2}, {&heddlev1.ListArtifactsRequest{Kind: heddlev1.ArtifactKind_ARTIFACT_KIND_OUTPUT}, 2},
	} {
		c.req.ThreadId = th.GetId()
		if got := r.artifacts(ctx, c.req); len(got) != c.want {
			t.Errorf("%v: %v", c.req, got)
		}
	}
	for _, id := range []string{"diff-" + turns[1], "diff-none", "output-none", "output-m1", "x", ""} {
		if _, err := heddlev1.NewArtifactServiceClient(r.conn).ReadArtifact(ctx, &heddlev1.ReadArtifactRequest{ThreadId: th.GetId(), ArtifactId: id}); !errdefs.Is(err, errdefs.ArtifactNotFound) {
			t.Errorf("artifact %q: %v", id, err)
		}
	}
	forked, err := r.threads.ForkThread(ctx, &heddlev1.ForkThreadRequest{ThreadId: th.GetId()})
	if err != nil {
		t.Fatal(err)
	}
	fork := forked.GetThread().GetId()
	for _, a := range list {
		if r.read(ctx, fork, a.GetId(), 0) != r.read(ctx, th.GetId(), a.GetId(), 0) {
			t.Errorf("the fork has other bytes of %s", a.GetId())
		}
	}
	for _, id := range []string{fork, th.GetId()} {
		if _, err := r.threads.DeleteThread(ctx, &heddlev1.DeleteThreadRequest{ThreadId: id}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := heddlev1.NewArtifactServiceClient(r.conn).ListArtifacts(ctx, &heddlev1.ListArtifactsRequest{ThreadId: th.GetId()}); !errdefs.Is(err, errdefs.ThreadNotFound) {
		t.Errorf("list of a deleted thread: %v", err)
	}
	for _, dir := range []string{"artifacts", "streams"} {
		if left, _ := os.ReadDir(filepath.Join(r.home, dir)); len(left) != 0 {
			t.Errorf("%s has %v", dir, left)
		}
	}
}

// What deleted threads left because a process died goes at the next start; what
// belongs to a thread that is there stays.
func TestSweepAtStart(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Store = "bolt" })
	r.model.script(calls(shell("c1", "echo hello"), patchOf("p1", "n.txt")), speak("m1", "done"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	turn := r.startTurn(ctx, th.GetId(), "go").GetId()
	f.turnEnd()
	r.stop()
	for _, name := range []string{"artifacts/p-gone/x", "streams/p-gone/p-item", "streams/unknown/kept"} {
		path := filepath.Join(r.home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	next := newRig(t, func(c *Config) { c.Store, c.Home.Dir = "bolt", r.home })
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		_, first := os.Stat(filepath.Join(r.home, "streams/p-gone"))
		_, second := os.Stat(filepath.Join(r.home, "artifacts/p-gone"))
		if first != nil && second != nil {
			break
		}
	}
	next.stop()
	for _, dir := range []string{"artifacts", "streams"} {
		if _, err := os.Stat(filepath.Join(r.home, dir, "p-gone")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s of the deleted thread: %v", dir, err)
		}
	}
	if _, err := os.Stat(filepath.Join(r.home, "streams/unknown/kept")); err != nil {
		t.Error(err)
	}
	last := newRig(t, func(c *Config) { c.Store, c.Home.Dir = "bolt", r.home })
	ctx, _ = last.attach("s9", heddlev1.OnDisconnect_ON_DISCONNECT_CONTINUE)
	if got := last.read(ctx, th.GetId(), "diff-"+turn, 0); got != addedPatch {
		t.Errorf("patch %q", got)
	}
}

// A patch past the thread's bound is not kept, and its record says so.
func TestArtifactQuota(t *testing.T) {
	r := newRig(t)
	var err error
	if r.cp.outputs.durable.blobs, err = artifact.NewBlobs(artifact.BlobConfig{Dir: t.TempDir(), Quota: 10}); err != nil {
		t.Fatal(err)
	}
	r.model.script(calls(patchOf("p1", "n.txt")), speak("m1", "done"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	r.startTurn(ctx, th.GetId(), "go")
	end := f.turnEnd()
	d := end.GetDiff()
	if end.GetStatus() != heddlev1.TurnStatus_TURN_STATUS_COMPLETED || d.GetPatch() != "" || d.GetSha256() != "" || !strings.Contains(d.GetMissing(), "reached their bound") || len(d.GetFiles()) != 1 {
		t.Errorf("turn %v", end)
	}
}

// A turn that goes on after a restart leaves one patch of all it changed, also
// of what was being written when the control plane died.
func TestArtifactOfARestartedTurn(t *testing.T) {
	r, restart := durable(t)
	r.exec.commits = make(chan struct{}, 10)
	r.exec.commits <- struct{}{}
	r.model.script(calls(patchOf("p1", "n.txt")), calls(patchOf("p2", "m.txt")), calls(patchOf("p3", "o.txt")), speak("m", "done"))
	ctx, th := r.thread(workspaceWrite("never"))
	f := r.follow(th.GetId(), 1)
	turn := r.startTurn(ctx, th.GetId(), "go").GetId()
	f.until(func(e *heddlev1.Event) bool { return e.GetItemStarted().GetItem().GetId() == "p2" })
	for r.exec.did(func(a *executorv1.Action) bool { return a.GetCommitPatch() != nil }) < 2 {
		time.Sleep(time.Millisecond)
	}
	restart()
	r.exec.commits <- struct{}{}
	r.exec.commits <- struct{}{}
	ctx, _ = r.attach("s1", heddlev1.OnDisconnect_ON_DISCONNECT_INTERRUPT)
	f = r.follow(th.GetId(), 1)
	d := f.turnEnd().GetDiff()
	once(t, f)
	if n := r.exec.did(func(a *executorv1.Action) bool { return a.GetCommitPatch() != nil }); n != 3 {
		t.Fatalf("%d patches were written", n)
	}
	if len(d.GetFiles()) != 3 || d.GetTruncated() || d.GetBaseCommit() != "c0ffee" {
		t.Errorf("diff %v", d)
	}
	var want strings.Builder
	for _, name := range []string{"m.txt", "n.txt", "o.txt"} {
		want.WriteString(strings.ReplaceAll(addedPatch, "n.txt", name))
	}
	if got := r.read(ctx, th.GetId(), "diff-"+turn, 0); got != want.String() {
		t.Errorf("patch\n%s", got)
	}
	if left, _ := filepath.Glob(filepath.Join(r.home, "artifacts/*/draft.*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
