package gateway_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
)

// fileWork is how a test's control plane answers file work.
type fileWork struct {
	file   func(op *heddlev1.FileOperation, content []byte) []*heddlev1.FileResponse
	watch  func(stream grpc.BidiStreamingServer[heddlev1.WatchFilesRequest, heddlev1.WatchFilesResponse]) error
	search func(stream grpc.BidiStreamingServer[heddlev1.SearchFilesRequest, heddlev1.SearchFilesResponse]) error
	config func(*heddlev1.WriteConfigRequest) (*heddlev1.WriteConfigResponse, error)
}

func (f *fake) File(stream grpc.BidiStreamingServer[heddlev1.FileRequest, heddlev1.FileResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	var content []byte
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		content = append(content, m.GetContent()...)
	}
	for _, m := range f.files.file(first.GetStart().GetOperation(), content) {
		if err := stream.Send(m); err != nil {
			return err
		}
	}
	return nil
}

func (f *fake) WatchFiles(stream grpc.BidiStreamingServer[heddlev1.WatchFilesRequest, heddlev1.WatchFilesResponse]) error {
	return f.files.watch(stream)
}

func (f *fake) SearchFiles(stream grpc.BidiStreamingServer[heddlev1.SearchFilesRequest, heddlev1.SearchFilesResponse]) error {
	return f.files.search(stream)
}

func (f *fake) WriteConfig(_ context.Context, r *heddlev1.WriteConfigRequest) (*heddlev1.WriteConfigResponse, error) {
	return f.files.config(r)
}

func fileOutcome(o *heddlev1.FileOutcome) []*heddlev1.FileResponse {
	return []*heddlev1.FileResponse{{Message: &heddlev1.FileResponse_Outcome{Outcome: o}}}
}

func fileFault(kind heddlev1.FileFault_Kind, errno int32, text string) []*heddlev1.FileResponse {
	return fileOutcome(&heddlev1.FileOutcome{Outcome: &heddlev1.FileOutcome_Fault{Fault: &heddlev1.FileFault{Kind: kind, Errno: errno, Message: text}}})
}

func fileDone() []*heddlev1.FileResponse {
	return fileOutcome(&heddlev1.FileOutcome{Outcome: &heddlev1.FileOutcome_Done{Done: &heddlev1.FileDone{}}})
}

func filePeer(t *testing.T, w fileWork) *peer {
	t.Helper()
	f := newFake(t)
	f.files = w
	p := stdioPeer(t, newGateway(t, f, nil))
	p.initialize()
	return p
}

func TestFileRequestsBecomeOperations(t *testing.T) {
	var got *heddlev1.FileOperation
	var body []byte
	p := filePeer(t, fileWork{file: func(op *heddlev1.FileOperation, content []byte) []*heddlev1.FileResponse {
		got, body = op, content
		return fileDone()
	}})
	big := strings.Repeat("x", 1<<20)
	for _, c := range []struct {
		method string
		params message
		want   string
	}{
		{"fs/createDirectory", message{"path": "/d"}, `create_directory:{path:"/d" recursive:true}`},
		{"fs/createDirectory", message{"path": "/d", "recursive": false}, `create_directory:{path:"/d"}`},
		{"fs/remove", message{"path": "/d"}, `remove:{path:"/d" recursive:true force:true}`},
		{"fs/remove", message{"path": "/d", "recursive": false, "force": nil}, `remove:{path:"/d" force:true}`},
		{"fs/copy", message{"sourcePath": "/a", "destinationPath": "/b"}, `copy:{source:"/a" destination:"/b"}`},
		{"fs/copy", message{"sourcePath": "/a", "destinationPath": "/b", "recursive": true}, `copy:{source:"/a" destination:"/b" recursive:true}`},
		{"fs/writeFile", message{"path": "/f", "dataBase64": base64.StdEncoding.EncodeToString([]byte(big))}, fmt.Sprintf(`write:{path:"/f" size:%d}`, len(big))},
	} {
		if r := p.result(c.method, c.params); len(r) != 0 {
			t.Errorf("%s: %v", c.method, r)
		}
		if text := strings.Join(strings.Fields(got.String()), " "); text != c.want {
			t.Errorf("%s became %s", c.method, text)
		}
	}
	if string(body) != big {
		t.Errorf("%d bytes of content came", len(body))
	}
}

func TestFileFaults(t *testing.T) {
	var answer []*heddlev1.FileResponse
	p := filePeer(t, fileWork{file: func(*heddlev1.FileOperation, []byte) []*heddlev1.FileResponse { return answer }})
	path, twoPaths := message{"path": "/p"}, message{"sourcePath": "/p", "destinationPath": "/q"}
	for _, c := range []struct {
		method string
		params message
		answer []*heddlev1.FileResponse
		code   int
		text   string
	}{
		{"fs/readFile", path, fileFault(heddlev1.FileFault_KIND_SYSTEM, 2, "No such file or directory"), -32603, "No such file or directory (os error 2)"},
		{"fs/readFile", path, fileFault(heddlev1.FileFault_KIND_NOT_A_FILE, 0, ""), -32600, "path `/p` is not a file"},
		{"fs/readFile", path, fileFault(heddlev1.FileFault_KIND_TOO_LARGE, 0, "file is too large"), -32600, "file is too large"},
		{"fs/readDirectory", path, fileFault(heddlev1.FileFault_KIND_SYSTEM, 20, "Not a directory"), -32603, "Not a directory (os error 20)"},
		{"fs/createDirectory", path, fileFault(heddlev1.FileFault_KIND_SYSTEM, 17, "File exists"), -32603, "File exists (os error 17)"},
		{"fs/remove", path, fileFault(heddlev1.FileFault_KIND_SYSTEM, 39, "Directory not empty"), -32603, "Directory not empty (os error 39)"},
		{"fs/getMetadata", path, fileFault(heddlev1.FileFault_KIND_SYSTEM, 13, "Permission denied"), -32603, "Permission denied (os error 13)"},
		{"fs/copy", twoPaths, fileFault(heddlev1.FileFault_KIND_NOT_RECURSIVE, 0, ""), -32600, "fs/copy requires recursive: true when sourcePath is a directory"},
		{"fs/copy", twoPaths, fileFault(heddlev1.FileFault_KIND_INTO_ITSELF, 0, ""), -32600, "fs/copy cannot copy a directory to itself or one of its descendants"},
		{"fs/copy", twoPaths, fileFault(heddlev1.FileFault_KIND_SPECIAL_FILE, 0, ""), -32600, "fs/copy only supports regular files, directories, and symlinks"},
		{"fs/writeFile", message{"path": "/p", "dataBase64": "!!"}, nil, -32600, "fs/writeFile requires valid base64 dataBase64: Invalid byte 33, offset 0."},
		{"fs/writeFile", message{"path": "/p", "dataBase64": "eA"}, nil, -32600, "fs/writeFile requires valid base64 dataBase64: Invalid padding"},
		{"fs/writeFile", message{"path": "/p", "dataBase64": "eA==\n"}, nil, -32600, "fs/writeFile requires valid base64 dataBase64: Invalid byte 10, offset 4."},
		{"fs/writeFile", message{"path": "/p"}, nil, -32600, "Invalid request: missing field `dataBase64`"},
		{"fs/readFile", message{"path": "p"}, nil, -32600, "Invalid request: AbsolutePathBuf deserialized without a base path"},
		{"fs/copy", message{"sourcePath": "/p", "destinationPath": "/q", "recursive": nil}, nil, -32600, "Invalid request: invalid type: null, expected a boolean"},
	} {
		answer = c.answer
		if code, text := p.refused(c.method, c.params); code != c.code || text != c.text {
			t.Errorf("%s %v: %d %q, want %d %q", c.method, c.params, code, text, c.code, c.text)
		}
	}
}

func TestFileAnswers(t *testing.T) {
	p := filePeer(t, fileWork{file: func(op *heddlev1.FileOperation, _ []byte) []*heddlev1.FileResponse {
		switch {
		case op.GetRead() != nil:
			piece := func(s string) *heddlev1.FileResponse {
				return &heddlev1.FileResponse{Message: &heddlev1.FileResponse_Content{Content: []byte(s)}}
			}
			return append([]*heddlev1.FileResponse{piece("\x00\x01"), piece("\xff\xe0")}, fileDone()...)
		case op.GetListDirectory() != nil:
			return append([]*heddlev1.FileResponse{{Message: &heddlev1.FileResponse_Entries{Entries: &heddlev1.DirectoryEntries{Entries: []*heddlev1.DirectoryEntry{
				{Name: []byte("d"), IsDirectory: true}, {Name: []byte("odd\xff"), IsFile: true},
			}}}}}, fileDone()...)
		}
		return fileOutcome(&heddlev1.FileOutcome{Outcome: &heddlev1.FileOutcome_Status{Status: &heddlev1.FileStatus{IsFile: true, IsSymlink: true, ModifiedMs: 7}}})
	}})
	for method, want := range map[string]string{
		"fs/readFile":      "map[dataBase64:AAH/4A==]",
		"fs/readDirectory": "map[entries:[map[fileName:d isDirectory:true isFile:false] map[fileName:odd\uFFFD isDirectory:false isFile:true]]]",
		"fs/getMetadata":   "map[createdAtMs:0 isDirectory:false isFile:true isSymlink:true modifiedAtMs:7]",
	} {
		if got := fmt.Sprint(p.result(method, message{"path": "/p"})); got != want {
			t.Errorf("%s: %s", method, got)
		}
	}
}

// Watching goes on after the control plane is lost, and says that something may
// have been missed.
func TestWatchOutlivesTheControlPlane(t *testing.T) {
	f := newFake(t)
	f.files.watch = func(stream grpc.BidiStreamingServer[heddlev1.WatchFilesRequest, heddlev1.WatchFilesResponse]) error {
		for {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			a := m.GetCommand().GetAdd()
			if a == nil {
				continue
			}
			added := &heddlev1.WatchAdded{WatchId: a.GetWatchId(), Path: a.GetPath()}
			if a.GetPath() == "/denied" {
				added.Fault = &heddlev1.FileFault{Kind: heddlev1.FileFault_KIND_SYSTEM, Errno: 13, Message: "Permission denied"}
			}
			events := []*heddlev1.WatchEvent{{Event: &heddlev1.WatchEvent_Added{Added: added}}}
			if a.GetPath() == "/busy" {
				events = append(events, &heddlev1.WatchEvent{Event: &heddlev1.WatchEvent_Changed{Changed: &heddlev1.FilesChanged{WatchId: "b", Paths: []string{"/busy/x"}}}})
			}
			for _, e := range events {
				if err := stream.Send(&heddlev1.WatchFilesResponse{Event: e}); err != nil {
					return err
				}
			}
		}
	}
	p := stdioPeer(t, newGateway(t, f, nil))
	p.initialize()
	if r := p.result("fs/watch", message{"watchId": "w", "path": "/quiet"}); r["path"] != "/quiet" {
		t.Errorf("answer %v", r)
	}
	if code, text := p.refused("fs/watch", message{"watchId": "w", "path": "/other"}); code != -32600 || text != "watchId already exists: w" {
		t.Errorf("twice: %d %q", code, text)
	}
	if code, text := p.refused("fs/watch", message{"watchId": "d", "path": "/denied"}); code != -32603 || text != "Permission denied (os error 13)" {
		t.Errorf("denied: %d %q", code, text)
	}
	p.result("fs/watch", message{"watchId": "d", "path": "/allowed"}) // the id is free again
	p.result("fs/watch", message{"watchId": "b", "path": "/busy"})
	if e := params(p.event("fs/changed")); fmt.Sprint(e) != "map[changedPaths:[/busy/x] watchId:b]" {
		t.Errorf("changed %v", e)
	}
	p.result("fs/unwatch", message{"watchId": "b"})
	p.result("fs/unwatch", message{"watchId": "d"})
	p.result("fs/unwatch", message{"watchId": "never"})
	f.stop()
	f.start()
	if e := params(p.event("fs/changed")); fmt.Sprint(e) != "map[changedPaths:[/quiet] watchId:w]" {
		t.Errorf("after the loss: %v", e)
	}
}

func TestSearchSession(t *testing.T) {
	f := newFake(t)
	f.files.search = func(stream grpc.BidiStreamingServer[heddlev1.SearchFilesRequest, heddlev1.SearchFilesResponse]) error {
		first, err := stream.Recv()
		if err != nil {
			return err
		}
		root := first.GetStart().GetSearch().GetRoots()[0]
		for {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			q := m.GetQuery()
			stale := &heddlev1.SearchResults{Number: q.GetNumber() - 1, Complete: true}
			res := &heddlev1.SearchResults{Number: q.GetNumber(), Complete: true, Matches: []*heddlev1.SearchMatch{{
				Root: root, Path: "sub/" + q.GetText(), Score: 9, Indices: []uint32{4}}}}
			for _, r := range []*heddlev1.SearchResults{stale, res} {
				if err := stream.Send(&heddlev1.SearchFilesResponse{Results: r}); err != nil {
					return err
				}
			}
		}
	}
	p := stdioPeer(t, newGateway(t, f, nil))
	p.initialize()
	const match = "map[file_name:q indices:[4] match_type:file path:sub/q root:/r score:9]"
	if got := fmt.Sprint(p.result("fuzzyFileSearch", message{"query": "q", "roots": []string{"/r"}, "cancellationToken": "t"})); got != "map[files:["+match+"]]" {
		t.Errorf("once: %s", got)
	}
	p.result("fuzzyFileSearch/sessionStart", message{"sessionId": "s", "roots": []string{"/r"}})
	for range 2 {
		p.result("fuzzyFileSearch/sessionUpdate", message{"sessionId": "s", "query": "q"})
		if e := params(p.event("fuzzyFileSearch/sessionUpdated")); fmt.Sprint(e) != "map[files:["+match+"] query:q sessionId:s]" {
			t.Errorf("updated: %v", e)
		}
		if e := params(p.event("fuzzyFileSearch/sessionCompleted")); fmt.Sprint(e) != "map[sessionId:s]" {
			t.Errorf("completed: %v", e)
		}
		f.stop() // the second round is over another control plane
		f.start()
	}
	p.result("fuzzyFileSearch/sessionStop", message{"sessionId": "s"})
	p.result("fuzzyFileSearch/sessionStop", message{"sessionId": "s"})
	for method, ps := range map[string]message{
		"fuzzyFileSearch/sessionUpdate": {"sessionId": "s", "query": "q"},
	} {
		if code, text := p.refused(method, ps); code != -32600 || text != "fuzzy file search session not found: s" {
			t.Errorf("%s: %d %q", method, code, text)
		}
	}
	if code, text := p.refused("fuzzyFileSearch/sessionStart", message{"sessionId": "", "roots": []string{}}); code != -32600 || text != "sessionId must not be empty" {
		t.Errorf("no id: %d %q", code, text)
	}
}

func TestConfigWrites(t *testing.T) {
	var got *heddlev1.WriteConfigRequest
	var fail error
	resp := &heddlev1.WriteConfigResponse{Version: "sha256:1", File: "/home/config.toml"}
	p := filePeer(t, fileWork{config: func(r *heddlev1.WriteConfigRequest) (*heddlev1.WriteConfigResponse, error) {
		got = r
		return resp, fail
	}})
	r := p.result("config/batchWrite", message{"expectedVersion": "v", "edits": []message{
		{"keyPath": "a.b", "value": message{"c": 1}, "mergeStrategy": "upsert"}, {"keyPath": "d", "value": nil, "mergeStrategy": "replace"},
	}})
	if fmt.Sprint(r) != "map[filePath:/home/config.toml overriddenMetadata:<nil> status:ok version:sha256:1]" {
		t.Errorf("answer %v", r)
	}
	if e := got.GetEdits(); len(e) != 2 || !e[0].GetUpsert() || e[0].GetValue().GetStructValue().AsMap()["c"] != 1.0 || e[1].GetUpsert() || e[1].GetValue().AsInterface() != nil || got.GetExpectedVersion() != "v" {
		t.Errorf("request %v", got)
	}
	resp.Overridden = &heddlev1.ConfigOverridden{Key: "a", Layer: &heddlev1.ConfigLayer{Kind: "session", Version: "sha256:2"}}
	r = p.result("config/value/write", message{"keyPath": "a", "value": true, "mergeStrategy": "replace"})
	if r["status"] != "okOverridden" || fmt.Sprint(r["overriddenMetadata"].(message)["overridingLayer"]) != "map[name:map[type:sessionFlags] version:sha256:2]" {
		t.Errorf("overridden: %v", r)
	}
	fail = errdefs.New(errdefs.InvalidConfig, "Configuration was modified").With("config_write_error_code", "configVersionConflict")
	m := p.request("config/value/write", message{"keyPath": "a", "value": true, "mergeStrategy": "replace"})["error"].(message)
	if m["code"] != -32600.0 || m["message"] != "Configuration was modified" || fmt.Sprint(m["data"]) != "map[config_write_error_code:configVersionConflict]" {
		t.Errorf("refused: %v", m)
	}
	if code, text := p.refused("config/value/write", message{"keyPath": "a", "value": 1, "mergeStrategy": "merge"}); code != -32600 || text != "Invalid request: unknown variant `merge`, expected `replace` or `upsert`" {
		t.Errorf("strategy: %d %q", code, text)
	}
}
