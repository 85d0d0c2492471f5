package files_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/heddle-dev/heddle/executor/files"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/sandbox"
	"github.com/heddle-dev/heddle/sandbox/sandboxtest"
)

// rig does operations in a real sandbox of the client's level.
type rig struct {
	t   *testing.T
	fs  sandbox.FS
	dir string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	base, err := os.MkdirTemp("/var/tmp", "heddle-files-") //nolint:usetesting // not under /tmp, as an environment asks
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	e := sandboxtest.NewEnv(t, base, sandbox.FullAccess, "", sandboxtest.Host{})
	return &rig{t: t, fs: e.S.FS(), dir: e.WS}
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

func (r *rig) do(op *heddlev1.FileOperation, content []byte) (*heddlev1.FileOutcome, []byte) {
	r.t.Helper()
	var out bytes.Buffer
	res, err := files.Do(context.Background(), r.fs, op, func() ([]byte, error) { return content, nil }, &out)
	if err != nil {
		r.t.Fatalf("%v: %v", op, err)
	}
	return res, out.Bytes()
}

func read(p string) *heddlev1.FileOperation {
	return &heddlev1.FileOperation{Operation: &heddlev1.FileOperation_Read{Read: &heddlev1.FileRead{Path: p}}}
}

func write(p string, size int) *heddlev1.FileOperation {
	return &heddlev1.FileOperation{Operation: &heddlev1.FileOperation_Write{Write: &heddlev1.FileWrite{Path: p, Size: int64(size)}}}
}

func mkdir(p string, recursive bool) *heddlev1.FileOperation {
	return &heddlev1.FileOperation{Operation: &heddlev1.FileOperation_CreateDirectory{CreateDirectory: &heddlev1.DirectoryCreate{Path: p, Recursive: recursive}}}
}

func list(p string) *heddlev1.FileOperation {
	return &heddlev1.FileOperation{Operation: &heddlev1.FileOperation_ListDirectory{ListDirectory: &heddlev1.DirectoryList{Path: p}}}
}

func stat(p string) *heddlev1.FileOperation {
	return &heddlev1.FileOperation{Operation: &heddlev1.FileOperation_Stat{Stat: &heddlev1.FileStat{Path: p}}}
}

func remove(p string, recursive, force bool) *heddlev1.FileOperation {
	return &heddlev1.FileOperation{Operation: &heddlev1.FileOperation_Remove{Remove: &heddlev1.FileRemove{Path: p, Recursive: recursive, Force: force}}}
}

func cp(from, to string, recursive bool) *heddlev1.FileOperation {
	return &heddlev1.FileOperation{Operation: &heddlev1.FileOperation_Copy{Copy: &heddlev1.FileCopy{Source: from, Destination: to, Recursive: recursive}}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// layout makes what the tables below work on.
func (r *rig) layout() {
	r.t.Helper()
	must(r.t, os.MkdirAll(r.path("d/sub"), 0o755))
	must(r.t, os.WriteFile(r.path("d/sub/deep"), []byte("deep"), 0o640))
	must(r.t, os.WriteFile(r.path("f"), []byte("content"), 0o600))
	must(r.t, os.Symlink("f", r.path("to-f")))
	must(r.t, os.Symlink("d", r.path("to-d")))
	must(r.t, os.Symlink("nowhere", r.path("broken")))
	must(r.t, os.Symlink("loop", r.path("loop")))
	must(r.t, os.Symlink("/etc/hostname", r.path("d/sub/out")))
	must(r.t, syscall.Mkfifo(r.path("pipe"), 0o600))
}

func TestFaults(t *testing.T) {
	r := newRig(t)
	r.layout()
	for name, c := range map[string]struct {
		op   *heddlev1.FileOperation
		kind heddlev1.FileFault_Kind
		no   syscall.Errno
		text string
	}{
		"read nothing":             {read(r.path("none")), heddlev1.FileFault_KIND_SYSTEM, syscall.ENOENT, "No such file or directory"},
		"read a folder":            {read(r.path("d")), heddlev1.FileFault_KIND_NOT_A_FILE, 0, ""},
		"read a pipe":              {read(r.path("pipe")), heddlev1.FileFault_KIND_NOT_A_FILE, 0, ""},
		"read below a file":        {read(r.path("f/x")), heddlev1.FileFault_KIND_SYSTEM, syscall.ENOTDIR, "Not a directory"},
		"read a loop":              {read(r.path("loop")), heddlev1.FileFault_KIND_SYSTEM, syscall.ELOOP, "Too many levels of symbolic links"},
		"write without a parent":   {write(r.path("no/f"), 0), heddlev1.FileFault_KIND_SYSTEM, syscall.ENOENT, ""},
		"write a folder":           {write(r.path("d"), 0), heddlev1.FileFault_KIND_SYSTEM, syscall.EISDIR, "Is a directory"},
		"mkdir again":              {mkdir(r.path("d"), false), heddlev1.FileFault_KIND_SYSTEM, syscall.EEXIST, "File exists"},
		"mkdir over a file":        {mkdir(r.path("f"), true), heddlev1.FileFault_KIND_SYSTEM, syscall.EEXIST, "File exists"},
		"mkdir without a parent":   {mkdir(r.path("no/d"), false), heddlev1.FileFault_KIND_SYSTEM, syscall.ENOENT, ""},
		"mkdir below a file":       {mkdir(r.path("f/d"), true), heddlev1.FileFault_KIND_SYSTEM, syscall.ENOTDIR, ""},
		"mkdir of the root":        {mkdir("/", false), heddlev1.FileFault_KIND_SYSTEM, syscall.EEXIST, ""},
		"list a file":              {list(r.path("f")), heddlev1.FileFault_KIND_SYSTEM, syscall.ENOTDIR, "Not a directory"},
		"list nothing":             {list(r.path("none")), heddlev1.FileFault_KIND_SYSTEM, syscall.ENOENT, ""},
		"stat a broken link":       {stat(r.path("broken")), heddlev1.FileFault_KIND_SYSTEM, syscall.ENOENT, ""},
		"remove nothing":           {remove(r.path("none"), true, false), heddlev1.FileFault_KIND_SYSTEM, syscall.ENOENT, ""},
		"remove a full folder":     {remove(r.path("d"), false, true), heddlev1.FileFault_KIND_SYSTEM, syscall.ENOTEMPTY, "Directory not empty"},
		"copy nothing":             {cp(r.path("none"), r.path("n"), true), heddlev1.FileFault_KIND_SYSTEM, syscall.ENOENT, ""},
		"copy a folder plainly":    {cp(r.path("d"), r.path("n"), false), heddlev1.FileFault_KIND_NOT_RECURSIVE, 0, ""},
		"copy into itself":         {cp(r.path("d"), r.path("d/sub/n"), true), heddlev1.FileFault_KIND_INTO_ITSELF, 0, ""},
		"copy onto itself":         {cp(r.path("d"), r.path("d"), true), heddlev1.FileFault_KIND_INTO_ITSELF, 0, ""},
		"copy into itself by link": {cp(r.path("d"), r.path("to-d/n"), true), heddlev1.FileFault_KIND_INTO_ITSELF, 0, ""},
		"copy a pipe":              {cp(r.path("pipe"), r.path("n"), true), heddlev1.FileFault_KIND_SPECIAL_FILE, 0, ""},
		"copy onto the same file":  {cp(r.path("f"), r.path("to-f"), false), heddlev1.FileFault_KIND_SYSTEM, syscall.EINVAL, ""},
		"copy onto a folder":       {cp(r.path("f"), r.path("d"), false), heddlev1.FileFault_KIND_SYSTEM, syscall.EISDIR, ""},
		"no operation":             {&heddlev1.FileOperation{}, heddlev1.FileFault_KIND_UNSPECIFIED, 0, ""},
	} {
		res, _ := r.do(c.op, nil)
		f := res.GetFault()
		if f == nil || f.GetKind() != c.kind || f.GetErrno() != int32(c.no) || !strings.Contains(f.GetMessage(), c.text) {
			t.Errorf("%s: %v", name, res)
		}
	}
	if data, _ := os.ReadFile(r.path("f")); string(data) != "content" {
		t.Errorf("a refused operation changed the file: %q", data)
	}
	if _, err := os.Lstat(r.path("n")); err == nil {
		t.Error("a refused copy left something")
	}
}

func TestWriteReadStat(t *testing.T) {
	r := newRig(t)
	r.layout()
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	must(t, os.Link(r.path("f"), r.path("second")))
	for _, c := range []struct{ write, read, content string }{
		{"new", "new", "\x00\xff"}, {"to-f", "f", "by link"}, {"f", "second", "both names"}, {"broken", "nowhere", "made"}, {"large", "large", string(big)},
	} {
		res, _ := r.do(write(r.path(c.write), len(c.content)), []byte(c.content))
		if res.GetDone() == nil {
			t.Errorf("write %s: %v", c.write, res)
		}
		if _, got := r.do(read(r.path(c.read)), nil); string(got) != c.content {
			t.Errorf("read %s: %d bytes, want %d", c.read, len(got), len(c.content))
		}
	}
	if info, _ := os.Lstat(r.path("to-f")); info.Mode()&os.ModeSymlink == 0 {
		t.Error("the link was replaced")
	}
	if info, _ := os.Stat(r.path("f")); info.Mode().Perm() != 0o600 {
		t.Errorf("mode became %v", info.Mode())
	}
	res, _ := r.do(stat(r.path("to-d")), nil)
	if st := res.GetStatus(); !st.GetIsDirectory() || st.GetIsFile() || !st.GetIsSymlink() || st.GetModifiedMs() == 0 {
		t.Errorf("stat: %v", res)
	}
	for _, e := range listDir(r, r.dir) {
		if strings.HasPrefix(e, ".heddle-") {
			t.Errorf("left over: %s", e)
		}
	}
}

// Content that does not have the announced size is not written at all.
func TestWriteNeedsAllContent(t *testing.T) {
	r := newRig(t)
	must(t, os.WriteFile(r.path("f"), []byte("old"), 0o600))
	cut := errors.New("cut off")
	for _, content := range []func() ([]byte, error){
		func() ([]byte, error) { return []byte("half"), nil },
		func() ([]byte, error) { return nil, cut },
	} {
		if _, err := files.Do(context.Background(), r.fs, write(r.path("f"), 8), content, &bytes.Buffer{}); err == nil {
			t.Error("accepted")
		}
	}
	if data, _ := os.ReadFile(r.path("f")); string(data) != "old" {
		t.Errorf("file: %q", data)
	}
}

func TestWriteWhereTheFolderIsReadOnly(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("as root every folder is writable; the in-place way is not taken")
	}
	r := newRig(t)
	must(t, os.Mkdir(r.path("ro"), 0o755))
	must(t, os.WriteFile(r.path("ro/f"), []byte("a"), 0o644))
	must(t, os.Chmod(r.path("ro"), 0o555))
	defer os.Chmod(r.path("ro"), 0o755)
	if res, _ := r.do(write(r.path("ro/f"), 3), []byte("new")); res.GetDone() == nil {
		t.Errorf("write: %v", res)
	}
	if data, _ := os.ReadFile(r.path("ro/f")); string(data) != "new" {
		t.Errorf("file: %q", data)
	}
}

func listDir(r *rig, dir string) []string {
	_, out := r.do(list(dir), nil)
	in := bytes.NewReader(out)
	var names []string
	for in.Len() > 0 {
		e := &heddlev1.DirectoryEntry{}
		if err := protodelim.UnmarshalFrom(in, e); err != nil {
			r.t.Fatal(err)
		}
		names = append(names, fmt.Sprintf("%s %v %v", e.GetName(), e.GetIsDirectory(), e.GetIsFile()))
	}
	return names
}

func TestListFollowsLinks(t *testing.T) {
	r := newRig(t)
	r.layout()
	want := []string{".git true false", "broken false false", "d true false", "f false true", "loop false false", "pipe false false", "to-d true false", "to-f false true"}
	if got := listDir(r, r.dir); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if got := listDir(r, r.path("to-d")); !slices.Equal(got, []string{"sub true false"}) {
		t.Errorf("through a link: %q", got)
	}
}

func TestCopyTree(t *testing.T) {
	r := newRig(t)
	r.layout()
	must(t, os.WriteFile(r.path("d/script"), []byte("#!"), 0o755))
	must(t, os.MkdirAll(r.path("there/sub"), 0o755))
	must(t, os.WriteFile(r.path("there/script"), []byte("older and longer"), 0o600))
	must(t, os.WriteFile(r.path("there/kept"), nil, 0o600))
	for _, to := range []string{"fresh", "there"} {
		if res, _ := r.do(cp(r.path("d"), r.path(to), true), nil); res.GetDone() == nil {
			t.Fatalf("copy to %s: %v", to, res)
		}
		if data, _ := os.ReadFile(r.path(to + "/sub/deep")); string(data) != "deep" {
			t.Errorf("%s: %q", to, data)
		}
		if info, err := os.Stat(r.path(to + "/script")); err != nil || info.Mode().Perm() != 0o755 || info.Size() != 2 {
			t.Errorf("%s: %v %v", to, info, err)
		}
		if link, _ := os.Readlink(r.path(to + "/sub/out")); link != "/etc/hostname" {
			t.Errorf("%s: the link became %q", to, link)
		}
	}
	if _, err := os.Stat(r.path("there/kept")); err != nil {
		t.Error("a file of the target went missing")
	}
	if res, _ := r.do(cp(r.path("to-f"), r.path("link2"), false), nil); res.GetDone() == nil {
		t.Errorf("copy of a link: %v", res)
	}
	if link, _ := os.Readlink(r.path("link2")); link != "f" {
		t.Errorf("link became %q", link)
	}
}

func TestRemove(t *testing.T) {
	r := newRig(t)
	r.layout()
	for _, op := range []*heddlev1.FileOperation{
		remove(r.path("none"), true, true), remove(r.path("to-d"), true, false), remove(r.path("d/sub"), true, false),
		remove(r.path("d"), false, false), remove(r.path("pipe"), false, false), remove(r.path("broken"), false, false),
	} {
		if res, _ := r.do(op, nil); res.GetDone() == nil {
			t.Errorf("%v: %v", op, res)
		}
	}
	if got := listDir(r, r.dir); !slices.Equal(got, []string{".git true false", "f false true", "loop false false", "to-f false true"}) {
		t.Errorf("left: %q", got)
	}
	if _, err := os.Stat("/etc/hostname"); err != nil {
		t.Error("a link's target was removed")
	}
}

// A link that is exchanged while it is written through never makes a write fail
// or land anywhere but whole in one of the two files it led to.
func TestWriteWhileTheLinkIsSwapped(t *testing.T) {
	r := newRig(t)
	targets := []string{r.path("one"), r.path("two")}
	const size = 200_000
	for _, p := range targets {
		must(t, os.WriteFile(p, make([]byte, size), 0o600))
	}
	link := r.path("link")
	must(t, os.Symlink(targets[0], link))
	var stop atomic.Bool
	swapped := make(chan int)
	go func() {
		n := 0
		for ; !stop.Load(); n++ {
			tmp := r.path("link.tmp")
			if os.Symlink(targets[n%2], tmp) != nil || os.Rename(tmp, link) != nil {
				break
			}
		}
		swapped <- n
	}()
	for i := range 150 {
		data := bytes.Repeat([]byte{byte(i + 1)}, size)
		if res, _ := r.do(write(link, size), data); res.GetDone() == nil {
			t.Errorf("write %d: %v", i, res)
			break
		}
		hits := 0
		for _, p := range targets {
			got, err := os.ReadFile(p)
			if err != nil || len(got) != size || bytes.Count(got, got[:1]) != size {
				t.Fatalf("write %d: %s is torn: %d bytes, %v", i, p, len(got), err)
			}
			if got[0] == data[0] {
				hits++
			}
		}
		if hits != 1 {
			t.Fatalf("write %d landed in %d files", i, hits)
		}
	}
	stop.Store(true)
	if n := <-swapped; n < 100 {
		t.Errorf("only %d swaps", n)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced by %v (%v)", info, err)
	}
	if left, _ := filepath.Glob(r.path(".heddle-*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}
