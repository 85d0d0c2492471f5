package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/dispatch/dispatchtest"
	"github.com/heddle-dev/heddle/controlplane/server"
	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func tagged() context.Context {
	return metadata.AppendToOutgoingContext(context.Background(), server.SessionKey, "s")
}

// file does one operation over the service.
func (w *workspace) file(op *heddlev1.FileOperation, content ...string) (answers []*heddlev1.FileResponse, err error) {
	w.t.Helper()
	stream, err := w.client.File(tagged())
	if err != nil {
		w.t.Fatal(err)
	}
	_ = stream.Send(&heddlev1.FileRequest{Message: &heddlev1.FileRequest_Start{Start: &heddlev1.FileOperationStart{ConnectionId: "c", Operation: op}}})
	for _, c := range content {
		_ = stream.Send(&heddlev1.FileRequest{Message: &heddlev1.FileRequest_Content{Content: []byte(c)}})
	}
	_ = stream.CloseSend()
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return answers, nil
		}
		if err != nil {
			return answers, err
		}
		answers = append(answers, m)
	}
}

func writeOf(path string, size int) *heddlev1.FileOperation {
	return &heddlev1.FileOperation{Operation: &heddlev1.FileOperation_Write{Write: &heddlev1.FileWrite{Path: path, Size: int64(size)}}}
}

func listOf(path string) *heddlev1.FileOperation {
	return &heddlev1.FileOperation{Operation: &heddlev1.FileOperation_ListDirectory{ListDirectory: &heddlev1.DirectoryList{Path: path}}}
}

func filesDone(j *dispatchtest.Job) {
	j.End(&executorv1.ActionResult{Outcome: &executorv1.ActionResult_FileOutcome{
		FileOutcome: &heddlev1.FileOutcome{Outcome: &heddlev1.FileOutcome_Done{Done: &heddlev1.FileDone{}}}}})
}

// input reads a job's input to its end; ok is false when the job was ended.
func input(j *dispatchtest.Job) (data string, ok bool) {
	var b strings.Builder
	for c := range j.Controls {
		switch k := c.GetControl().(type) {
		case *executorv1.ActionControl_Stdin:
			b.Write(k.Stdin.GetData())
			if k.Stdin.GetClose() {
				return b.String(), true
			}
		case *executorv1.ActionControl_Terminate:
			return b.String(), false
		}
	}
	return b.String(), false
}

func TestFileWriteSendsContent(t *testing.T) {
	got := make(chan string, 1)
	withWorkspace(t, func(j *dispatchtest.Job) {
		if p := j.Action.GetPolicy(); p.GetLevel() != heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS || !p.GetHostTmp() {
			t.Errorf("policy %v", p)
		}
		j.Start(0)
		data, _ := input(j)
		got <- data
		filesDone(j)
	}, func(w *workspace) {
		big := strings.Repeat("b", 700_000)
		answers, err := w.file(writeOf("/f", 3+len(big)), "a\x00c", big)
		if err != nil || len(answers) != 1 || answers[0].GetOutcome().GetDone() == nil {
			t.Errorf("answers %v, %v", answers, err)
		}
		if data := <-got; data != "a\x00c"+big {
			t.Errorf("%d bytes came", len(data))
		}
	})
}

// Names of a folder come in messages of bounded size, however the output was cut.
func TestFileListIsPutTogether(t *testing.T) {
	const names = 2500
	withWorkspace(t, func(j *dispatchtest.Job) {
		j.Start(0)
		var b bytes.Buffer
		for i := range names {
			_, _ = protodelim.MarshalTo(&b, &heddlev1.DirectoryEntry{Name: fmt.Appendf(nil, "n%d", i), IsFile: true})
		}
		for b.Len() > 0 {
			j.Output(1, b.Next(7))
		}
		filesDone(j)
	}, func(w *workspace) {
		answers, err := w.file(listOf("/d"))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for i, a := range answers {
			for _, e := range a.GetEntries().GetEntries() {
				if want := fmt.Sprint("n", n); string(e.GetName()) != want {
					t.Fatalf("entry %q, want %q", e.GetName(), want)
				}
				n++
			}
			if (a.GetOutcome() != nil) != (i == len(answers)-1) {
				t.Error("the outcome is not the last message")
			}
		}
		if n != names || len(answers) != 4 {
			t.Errorf("%d names in %d messages", n, len(answers))
		}
	})
}

func TestFileRefusals(t *testing.T) {
	withWorkspace(t, func(j *dispatchtest.Job) {
		j.Start(0)
		if j.Action.GetFileOperation().GetListDirectory().GetPath() == "/garbage" {
			j.Output(1, []byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
			input(j) // the dispatcher ends it
			j.Fail("cancelled", "")
			return
		}
		j.End(&executorv1.ActionResult{Outcome: &executorv1.ActionResult_Error{Error: &heddlev1.ActionError{Code: "sandbox_lost", Message: "gone"}}})
	}, func(w *workspace) {
		for name, c := range map[string]struct {
			op     *heddlev1.FileOperation
			reason errdefs.Reason
		}{
			"no operation":    {nil, errdefs.InvalidArgument},
			"empty operation": {&heddlev1.FileOperation{}, errdefs.InvalidArgument},
			"relative path":   {listOf("d"), errdefs.InvalidArgument},
			"zero byte":       {listOf("/d\x00"), errdefs.InvalidArgument},
			"too large":       {writeOf("/f", 1<<30), errdefs.InvalidArgument},
			"negative":        {writeOf("/f", -1), errdefs.InvalidArgument},
			"sandbox lost":    {listOf("/d"), errdefs.ExecutorLost},
			"garbage":         {listOf("/garbage"), errdefs.Internal},
		} {
			if answers, err := w.file(c.op); !errdefs.Is(err, c.reason) || len(answers) > 0 {
				t.Errorf("%s: %v, %v", name, answers, err)
			}
		}
		stream, err := w.client.File(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&heddlev1.FileRequest{Message: &heddlev1.FileRequest_Start{Start: &heddlev1.FileOperationStart{ConnectionId: "c", Operation: listOf("/d")}}})
		if _, err := stream.Recv(); !errdefs.Is(err, errdefs.SessionUnknown) {
			t.Errorf("without a session: %v", err)
		}
	})
}

// The end of a client ends its write before it is done.
func TestFileWriteEndsWithItsClient(t *testing.T) {
	ended := make(chan bool, 1)
	withWorkspace(t, func(j *dispatchtest.Job) {
		j.Start(0)
		_, whole := input(j)
		ended <- whole
		j.End(&executorv1.ActionResult{Outcome: &executorv1.ActionResult_Error{Error: &heddlev1.ActionError{Code: "cancelled"}}})
	}, func(w *workspace) {
		ctx, cancel := context.WithCancel(tagged())
		stream, err := w.client.File(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&heddlev1.FileRequest{Message: &heddlev1.FileRequest_Start{Start: &heddlev1.FileOperationStart{ConnectionId: "c", Operation: writeOf("/f", 10)}}})
		_ = stream.Send(&heddlev1.FileRequest{Message: &heddlev1.FileRequest_Content{Content: []byte("half")}})
		synctest.Wait()
		cancel()
		if whole := <-ended; whole {
			t.Error("the executor took the half for the whole")
		}
	})
}

func TestWatchAndSearchRelay(t *testing.T) {
	withWorkspace(t, func(j *dispatchtest.Job) {
		j.Start(0)
		data, _ := input(j)
		in := strings.NewReader(data)
		send := func(m proto.Message) {
			var b bytes.Buffer
			_, _ = protodelim.MarshalTo(&b, m)
			j.Output(1, b.Bytes())
		}
		for in.Len() > 0 {
			if j.Action.GetWatchFiles() != nil {
				c := &heddlev1.WatchCommand{}
				_ = protodelim.UnmarshalFrom(in, c)
				send(&heddlev1.WatchEvent{Event: &heddlev1.WatchEvent_Added{Added: &heddlev1.WatchAdded{WatchId: c.GetAdd().GetWatchId(), Path: c.GetAdd().GetPath()}}})
				continue
			}
			q := &heddlev1.SearchQuery{}
			_ = protodelim.UnmarshalFrom(in, q)
			send(&heddlev1.SearchResults{Number: q.GetNumber(), Complete: true})
		}
		j.End(&executorv1.ActionResult{Outcome: &executorv1.ActionResult_Ended{Ended: &executorv1.Ended{}}})
	}, func(w *workspace) {
		ws, err := w.client.WatchFiles(tagged())
		if err != nil {
			t.Fatal(err)
		}
		_ = ws.Send(&heddlev1.WatchFilesRequest{Message: &heddlev1.WatchFilesRequest_Start{Start: &heddlev1.WatchStart{ConnectionId: "c"}}})
		for i := range 3 {
			_ = ws.Send(&heddlev1.WatchFilesRequest{Message: &heddlev1.WatchFilesRequest_Command{Command: &heddlev1.WatchCommand{
				Command: &heddlev1.WatchCommand_Add{Add: &heddlev1.WatchAdd{WatchId: fmt.Sprint(i), Path: "/p"}}}}})
		}
		_ = ws.CloseSend()
		for i := range 3 {
			if m, err := ws.Recv(); err != nil || m.GetEvent().GetAdded().GetWatchId() != fmt.Sprint(i) {
				t.Errorf("event %d: %v, %v", i, m, err)
			}
		}
		if _, err := ws.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("end of the watch: %v", err)
		}
		ss, err := w.client.SearchFiles(tagged())
		if err != nil {
			t.Fatal(err)
		}
		_ = ss.Send(&heddlev1.SearchFilesRequest{Message: &heddlev1.SearchFilesRequest_Start{Start: &heddlev1.SearchOpen{ConnectionId: "c", Search: &heddlev1.SearchStart{Roots: []string{"/r"}}}}})
		_ = ss.Send(&heddlev1.SearchFilesRequest{Message: &heddlev1.SearchFilesRequest_Query{Query: &heddlev1.SearchQuery{Number: 9}}})
		_ = ss.CloseSend()
		if m, err := ss.Recv(); err != nil || m.GetResults().GetNumber() != 9 {
			t.Errorf("results %v, %v", m, err)
		}
		bad, err := w.client.SearchFiles(tagged())
		if err != nil {
			t.Fatal(err)
		}
		_ = bad.Send(&heddlev1.SearchFilesRequest{})
		if _, err := bad.Recv(); !errdefs.Is(err, errdefs.InvalidArgument) {
			t.Errorf("no start: %v", err)
		}
	})
}

// The first file that exists is read; what else goes wrong is an error.
func TestReadFirst(t *testing.T) {
	withWorkspace(t, func(j *dispatchtest.Job) {
		j.Start(0)
		fault := func(errno int32) {
			j.End(&executorv1.ActionResult{Outcome: &executorv1.ActionResult_FileOutcome{FileOutcome: &heddlev1.FileOutcome{
				Outcome: &heddlev1.FileOutcome_Fault{Fault: &heddlev1.FileFault{Kind: heddlev1.FileFault_KIND_SYSTEM, Errno: errno}}}}})
		}
		switch j.Action.GetFileOperation().GetRead().GetPath() {
		case "/denied":
			fault(13)
		case "/there":
			j.Output(1, []byte("content"))
			filesDone(j)
		default:
			fault(2)
		}
	}, func(w *workspace) {
		path, data, err := w.svc.ReadFirst(context.Background(), "s", []string{"/none", "/there", "/denied"})
		if path != "/there" || string(data) != "content" || err != nil {
			t.Errorf("%q %q %v", path, data, err)
		}
		if path, _, err := w.svc.ReadFirst(context.Background(), "", []string{"/none"}); path != "" || err != nil {
			t.Errorf("none: %q %v", path, err)
		}
		if _, _, err := w.svc.ReadFirst(context.Background(), "s", []string{"/denied", "/there"}); err == nil {
			t.Error("an unreadable file was passed over")
		}
	})
}
