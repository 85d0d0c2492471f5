package skill

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"syscall"

	"google.golang.org/protobuf/encoding/protodelim"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Remote reads files through operations that an executor does. The function
// returns the operation's whole output and how it ended.
type Remote func(ctx context.Context, op *heddlev1.FileOperation) ([]byte, *heddlev1.FileOutcome, error)

// do runs an operation; what failed in it is an error.
func (r Remote) do(ctx context.Context, op *heddlev1.FileOperation) ([]byte, error) {
	out, outcome, err := r(ctx, op)
	if err != nil {
		return nil, err
	}
	switch f := outcome.GetFault(); {
	case f == nil:
		return out, nil
	case f.GetErrno() == int32(syscall.ENOENT) || f.GetErrno() == int32(syscall.ENOTDIR):
		return nil, fs.ErrNotExist
	default:
		return nil, errors.New(f.GetMessage())
	}
}

// Folders implements FS.
func (r Remote) Folders(ctx context.Context, dir string) ([]string, error) {
	out, err := r.do(ctx, &heddlev1.FileOperation{Operation: &heddlev1.FileOperation_ListDirectory{ListDirectory: &heddlev1.DirectoryList{Path: dir}}})
	if err != nil {
		return nil, err
	}
	var names []string
	for in := bufio.NewReader(bytes.NewReader(out)); ; {
		e := &heddlev1.DirectoryEntry{}
		err := protodelim.UnmarshalFrom(in, e)
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the names in %s: %w", dir, err)
		}
		if e.GetIsDirectory() {
			names = append(names, string(e.GetName()))
		}
	}
}

// Read implements FS.
func (r Remote) Read(ctx context.Context, path string, limit int64) ([]byte, error) {
	out, err := r.do(ctx, &heddlev1.FileOperation{Operation: &heddlev1.FileOperation_Read{Read: &heddlev1.FileRead{Path: path, MaxBytes: limit}}})
	return out, err
}

// Exists implements FS.
func (r Remote) Exists(ctx context.Context, path string) (bool, error) {
	_, err := r.do(ctx, &heddlev1.FileOperation{Operation: &heddlev1.FileOperation_Stat{Stat: &heddlev1.FileStat{Path: path}}})
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
