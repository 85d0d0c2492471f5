package appserver

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	"github.com/heddle-dev/heddle/gateway/jsonrpc"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/grpc"
)

// contentChunk is how much of a file goes in one message.
const contentChunk = 256 << 10

// fileAnswer is what came of an operation on files.
type fileAnswer struct {
	content []byte
	entries []*heddlev1.DirectoryEntry
	outcome *heddlev1.FileOutcome
}

// file does one operation with the client's own authority.
func (s *Server) file(ctx context.Context, c *client, op *heddlev1.FileOperation, content []byte) (fileAnswer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var a fileAnswer
	var stream grpc.BidiStreamingClient[heddlev1.FileRequest, heddlev1.FileResponse]
	err := s.session.Stream(ctx, func(ctx context.Context, cc grpc.ClientConnInterface) (err error) {
		stream, err = heddlev1.NewWorkspaceServiceClient(cc).File(ctx)
		return err
	})
	if err != nil {
		return a, err
	}
	start := &heddlev1.FileRequest{Message: &heddlev1.FileRequest_Start{
		Start: &heddlev1.FileOperationStart{ConnectionId: c.id, Operation: op}}}
	// An error of Send is explained by Recv.
	go func() {
		err := stream.Send(start)
		for err == nil && len(content) > 0 {
			part := content[:min(len(content), contentChunk)]
			content = content[len(part):]
			err = stream.Send(&heddlev1.FileRequest{Message: &heddlev1.FileRequest_Content{Content: part}})
		}
		if err == nil {
			_ = stream.CloseSend()
		}
	}()
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) && a.outcome != nil {
			return a, nil
		}
		if err != nil {
			return a, err
		}
		switch m := m.GetMessage().(type) {
		case *heddlev1.FileResponse_Content:
			a.content = append(a.content, m.Content...)
		case *heddlev1.FileResponse_Entries:
			a.entries = append(a.entries, m.Entries.GetEntries()...)
		case *heddlev1.FileResponse_Outcome:
			a.outcome = m.Outcome
		}
	}
}

// do is file for operations that answer nothing but an error.
func (s *Server) do(ctx context.Context, c *client, op *heddlev1.FileOperation, content []byte) (any, error) {
	a, err := s.file(ctx, c, op, content)
	if err != nil {
		return nil, err
	}
	if f := a.outcome.GetFault(); f != nil {
		return nil, faultError(f)
	}
	return list{}, nil
}

// faultError is the wire form of a fault that has no text of its own.
func faultError(f *heddlev1.FileFault) error {
	if f.GetKind() == heddlev1.FileFault_KIND_SYSTEM {
		return &jsonrpc.Error{Code: jsonrpc.CodeInternal, Message: fmt.Sprintf("%s (os error %d)", f.GetMessage(), f.GetErrno())}
	}
	return invalid(f.GetMessage())
}

func (s *Server) fsReadFile(ctx context.Context, r *call, p *protocol.PathParams) (any, error) {
	a, err := s.file(ctx, r.client, &heddlev1.FileOperation{Operation: &heddlev1.FileOperation_Read{Read: &heddlev1.FileRead{Path: string(p.Path)}}}, nil)
	if err != nil {
		return nil, err
	}
	if f := a.outcome.GetFault(); f.GetKind() == heddlev1.FileFault_KIND_NOT_A_FILE {
		return nil, invalid(fmt.Sprintf("path `%s` is not a file", p.Path))
	} else if f != nil {
		return nil, faultError(f)
	}
	return list{"dataBase64": base64.StdEncoding.EncodeToString(a.content)}, nil
}

func (s *Server) fsWriteFile(ctx context.Context, r *call, p *protocol.FsWriteFileParams) (any, error) {
	data, err := decodeBase64(p.DataBase64)
	if err != nil {
		return nil, invalid("fs/writeFile requires valid base64 dataBase64: " + err.Error())
	}
	return s.do(ctx, r.client, &heddlev1.FileOperation{Operation: &heddlev1.FileOperation_Write{
		Write: &heddlev1.FileWrite{Path: string(p.Path), Size: int64(len(data))}}}, data)
}

// decodeBase64 takes the canonical form only: no line ends, padded.
func decodeBase64(s string) ([]byte, error) {
	if i := strings.IndexAny(s, "\r\n"); i >= 0 {
		return nil, fmt.Errorf("Invalid byte %d, offset %d.", s[i], i) //nolint:staticcheck // the words that clients know
	}
	data, err := base64.StdEncoding.Strict().DecodeString(s)
	var at base64.CorruptInputError
	if !errors.As(err, &at) {
		return data, err
	}
	if i := int(at); i < len(s) && s[i] != '=' && !isBase64(s[i]) {
		return nil, fmt.Errorf("Invalid byte %d, offset %d.", s[i], i) //nolint:staticcheck // as above
	}
	return nil, errors.New("Invalid padding") //nolint:staticcheck // as above
}

func isBase64(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/'
}

func (s *Server) fsCreateDirectory(ctx context.Context, r *call, p *protocol.FsCreateDirectoryParams) (any, error) {
	return s.do(ctx, r.client, &heddlev1.FileOperation{Operation: &heddlev1.FileOperation_CreateDirectory{
		CreateDirectory: &heddlev1.DirectoryCreate{Path: string(p.Path), Recursive: orTrue(p.Recursive)}}}, nil)
}

func orTrue(b *bool) bool { return b == nil || *b }

func (s *Server) fsGetMetadata(ctx context.Context, r *call, p *protocol.PathParams) (any, error) {
	a, err := s.file(ctx, r.client, &heddlev1.FileOperation{Operation: &heddlev1.FileOperation_Stat{Stat: &heddlev1.FileStat{Path: string(p.Path)}}}, nil)
	if err != nil {
		return nil, err
	}
	if f := a.outcome.GetFault(); f != nil {
		return nil, faultError(f)
	}
	st := a.outcome.GetStatus()
	return list{
		"isDirectory": st.GetIsDirectory(), "isFile": st.GetIsFile(), "isSymlink": st.GetIsSymlink(),
		"createdAtMs": st.GetCreatedMs(), "modifiedAtMs": st.GetModifiedMs(),
	}, nil
}

type wireEntry struct {
	FileName    string `json:"fileName"`
	IsDirectory bool   `json:"isDirectory"`
	IsFile      bool   `json:"isFile"`
}

func (s *Server) fsReadDirectory(ctx context.Context, r *call, p *protocol.PathParams) (any, error) {
	a, err := s.file(ctx, r.client, &heddlev1.FileOperation{Operation: &heddlev1.FileOperation_ListDirectory{
		ListDirectory: &heddlev1.DirectoryList{Path: string(p.Path)}}}, nil)
	if err != nil {
		return nil, err
	}
	if f := a.outcome.GetFault(); f != nil {
		return nil, faultError(f)
	}
	entries := make([]wireEntry, 0, len(a.entries))
	for _, e := range a.entries {
		entries = append(entries, wireEntry{FileName: validText(e.GetName()), IsDirectory: e.GetIsDirectory(), IsFile: e.GetIsFile()})
	}
	return list{"entries": entries}, nil
}

func (s *Server) fsRemove(ctx context.Context, r *call, p *protocol.FsRemoveParams) (any, error) {
	return s.do(ctx, r.client, &heddlev1.FileOperation{Operation: &heddlev1.FileOperation_Remove{
		Remove: &heddlev1.FileRemove{Path: string(p.Path), Recursive: orTrue(p.Recursive), Force: orTrue(p.Force)}}}, nil)
}

func (s *Server) fsCopy(ctx context.Context, r *call, p *protocol.FsCopyParams) (any, error) {
	a, err := s.file(ctx, r.client, &heddlev1.FileOperation{Operation: &heddlev1.FileOperation_Copy{
		Copy: &heddlev1.FileCopy{Source: string(p.SourcePath), Destination: string(p.DestinationPath), Recursive: p.Recursive}}}, nil)
	if err != nil {
		return nil, err
	}
	switch f := a.outcome.GetFault(); f.GetKind() {
	case heddlev1.FileFault_KIND_NOT_RECURSIVE:
		return nil, invalid("fs/copy requires recursive: true when sourcePath is a directory")
	case heddlev1.FileFault_KIND_INTO_ITSELF:
		return nil, invalid("fs/copy cannot copy a directory to itself or one of its descendants")
	case heddlev1.FileFault_KIND_SPECIAL_FILE:
		return nil, invalid("fs/copy only supports regular files, directories, and symlinks")
	default:
		if f != nil {
			return nil, faultError(f)
		}
	}
	return list{}, nil
}
