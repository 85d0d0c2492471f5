package executor_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/executor/executortest"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// client makes an action with a client's own authority.
func (r *rig) client() *executorv1.Action {
	a := r.action()
	a.Workspace = "/"
	a.Policy = &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS, Network: heddlev1.NetworkMode_NETWORK_MODE_FULL, HostTmp: true}
	return a
}

func (r *rig) fileWrite(path string, size int) *executorv1.Action {
	a := r.client()
	a.Kind = &executorv1.Action_FileOperation{FileOperation: &heddlev1.FileOperation{Operation: &heddlev1.FileOperation_Write{
		Write: &heddlev1.FileWrite{Path: path, Size: int64(size)}}}}
	return a
}

// Content of any size travels in pieces, both ways.
func TestFileContentTravelsInPieces(t *testing.T) {
	r := newRig(t)
	path := filepath.Join(r.ws, "big")
	content := strings.Repeat("0123456789abcdef", 5<<16) // 5 MiB, past every window
	a := r.fileWrite(path, len(content))
	r.send(executortest.Do(a))
	const piece = 100_000
	seq := uint64(0)
	for rest := content; rest != ""; {
		n := min(piece, len(rest))
		seq++
		r.stdin(a.GetActionId(), seq, rest[:n], n == len(rest))
		rest = rest[n:]
	}
	if res := r.result(a.GetActionId()); res.GetFileOutcome().GetDone() == nil {
		t.Fatalf("write: %v", res)
	}
	if r.read(path) != content {
		t.Error("the file differs")
	}
	b := r.client()
	b.Kind = &executorv1.Action_FileOperation{FileOperation: &heddlev1.FileOperation{Operation: &heddlev1.FileOperation_Read{Read: &heddlev1.FileRead{Path: path}}}}
	if res := r.do(b); res.GetFileOutcome().GetDone() == nil {
		t.Fatalf("read: %v", res)
	}
	if r.output(b.GetActionId()) != content {
		t.Error("what was read differs")
	}
}

// A write whose content does not come in full changes nothing.
func TestFileWriteCutOff(t *testing.T) {
	r := newRig(t)
	r.write("f", "old")
	path := filepath.Join(r.ws, "f")
	short := r.fileWrite(path, 8)
	r.send(executortest.Do(short))
	r.stdin(short.GetActionId(), 1, "half", true)
	if res := r.result(short.GetActionId()); res.GetError() == nil {
		t.Errorf("short: %v", res)
	}
	long := r.fileWrite(path, 2)
	r.send(executortest.Do(long))
	r.stdin(long.GetActionId(), 1, "more", true)
	if res := r.result(long.GetActionId()); res.GetError() == nil {
		t.Errorf("long: %v", res)
	}
	ended := r.fileWrite(path, 8)
	r.send(executortest.Do(ended))
	r.stdin(ended.GetActionId(), 1, "half", false)
	r.control(ended.GetActionId(), &executorv1.ActionControl{Control: &executorv1.ActionControl_Terminate{Terminate: &executorv1.Terminate{}}})
	if res := r.result(ended.GetActionId()); res.GetError().GetCode() != "cancelled" {
		t.Errorf("ended: %v", res)
	}
	if got := r.read(path); got != "old" {
		t.Errorf("file: %q", got)
	}
}

func frame(t *testing.T, m proto.Message) string {
	t.Helper()
	var b bytes.Buffer
	if _, err := protodelim.MarshalTo(&b, m); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestWatchUntilInputEnds(t *testing.T) {
	r := newRig(t)
	a := r.client()
	a.Kind = &executorv1.Action_WatchFiles{WatchFiles: &executorv1.WatchFiles{}}
	r.send(executortest.Do(a))
	r.stdin(a.GetActionId(), 1, frame(t, &heddlev1.WatchCommand{Command: &heddlev1.WatchCommand_Add{Add: &heddlev1.WatchAdd{WatchId: "w", Path: r.ws}}}), false)
	events := func(want int) []*heddlev1.WatchEvent {
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
			in := strings.NewReader(r.output(a.GetActionId()))
			var list []*heddlev1.WatchEvent
			for e := new(heddlev1.WatchEvent); protodelim.UnmarshalFrom(in, e) == nil; e = new(heddlev1.WatchEvent) {
				list = append(list, e)
			}
			if len(list) >= want {
				return list
			}
		}
		t.Fatal("no event came")
		return nil
	}
	if e := events(1)[0].GetAdded(); e.GetFault() != nil || e.GetPath() != r.ws {
		t.Fatalf("added: %v", e)
	}
	r.write("f", "x")
	if e := events(2)[1].GetChanged(); e.GetWatchId() != "w" || len(e.GetPaths()) != 1 || e.GetPaths()[0] != filepath.Join(r.ws, "f") {
		t.Errorf("changed: %v", e)
	}
	r.stdin(a.GetActionId(), 2, "", true)
	if res := r.result(a.GetActionId()); res.GetEnded() == nil {
		t.Errorf("result: %v", res)
	}
}

func TestSearchAnswersTheLastQuery(t *testing.T) {
	r := newRig(t)
	r.write("needle.txt", "")
	a := r.client()
	a.Kind = &executorv1.Action_SearchFiles{SearchFiles: &executorv1.SearchFiles{Search: &heddlev1.SearchStart{Roots: []string{r.ws}}}}
	r.send(executortest.Do(a))
	r.stdin(a.GetActionId(), 1, frame(t, &heddlev1.SearchQuery{Number: 1, Text: "hay"})+frame(t, &heddlev1.SearchQuery{Number: 2, Text: "ndl"}), true)
	if res := r.result(a.GetActionId()); res.GetEnded() == nil {
		t.Fatalf("result: %v", res)
	}
	in := strings.NewReader(r.output(a.GetActionId()))
	var last *heddlev1.SearchResults
	for e := new(heddlev1.SearchResults); protodelim.UnmarshalFrom(in, e) == nil; e = new(heddlev1.SearchResults) {
		last = e
	}
	if last.GetNumber() != 2 || !last.GetComplete() || len(last.GetMatches()) != 1 || last.GetMatches()[0].GetPath() != "needle.txt" {
		t.Errorf("last answer: %v", last)
	}
	_ = os.Remove(filepath.Join(r.ws, "needle.txt"))

	bad := r.client()
	bad.Kind = &executorv1.Action_SearchFiles{SearchFiles: &executorv1.SearchFiles{Search: &heddlev1.SearchStart{Roots: []string{r.ws}}}}
	r.send(executortest.Do(bad))
	r.stdin(bad.GetActionId(), 1, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", true)
	if res := r.result(bad.GetActionId()); res.GetError() == nil {
		t.Errorf("garbage was taken: %v", res)
	}
}
