package artifact_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/artifact"
	"github.com/heddle-dev/heddle/proto/errdefs"
)

func blobs(t *testing.T, cfg artifact.BlobConfig) *artifact.Blobs {
	t.Helper()
	b, err := artifact.NewBlobs(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t *testing.T, b *artifact.Blobs, thread, owner, data string) string {
	t.Helper()
	sum, err := b.Put(thread, owner, []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	if want := sha256.Sum256([]byte(data)); sum != hex.EncodeToString(want[:]) {
		t.Fatalf("sum %s", sum)
	}
	return sum
}

func TestBlobsKeepBytes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "artifacts")
	b := blobs(t, artifact.BlobConfig{Dir: dir})
	sum := put(t, b, "th", "Turn/1", "0123456789")
	put(t, b, "th", "Turn/1", "0123456789")
	put(t, b, "th", "t2", "other")
	b = blobs(t, artifact.BlobConfig{Dir: dir})
	for _, c := range []struct {
		offset int64
		n      int
		want   string
	}{{0, 100, "0123456789"}, {3, 4, "3456"}, {10, 5, ""}, {99, 5, ""}, {-1, 5, ""}} {
		data, total, err := b.ReadAt("th", "Turn/1", sum, c.offset, c.n)
		if err != nil || string(data) != c.want || total != 10 {
			t.Errorf("read %d at %d: %q of %d, %v", c.n, c.offset, data, total, err)
		}
	}
	if _, _, err := b.ReadAt("th", "t2", sum, 0, 1); !errdefs.Is(err, errdefs.ArtifactNotFound) {
		t.Errorf("another owner's: %v", err)
	}
	if _, _, err := b.ReadAt("th", "t2", "../../../etc/passwd", 0, 1); !errdefs.Is(err, errdefs.InvalidArgument) {
		t.Errorf("no digest: %v", err)
	}
	// What a crash left of one owner goes, the rest stays.
	if err := os.WriteFile(filepath.Join(dir, "p-th", strings.Repeat("0", 64)+".p-t2.new"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.Discard("th", "t2"); err != nil {
		t.Fatal(err)
	}
	if left := files(t, dir); len(left) != 1 || !strings.HasPrefix(left[0], sum) {
		t.Errorf("left: %v", left)
	}
	if err := errors.Join(b.Discard("none", "t"), b.DeleteThread("none")); err != nil {
		t.Error(err)
	}
}

// A blob whose bytes were changed on the disk is not served.
func TestDamagedBlob(t *testing.T) {
	dir := t.TempDir()
	b := blobs(t, artifact.BlobConfig{Dir: dir})
	sum := put(t, b, "th", "t", "data")
	if err := os.WriteFile(filepath.Join(dir, "p-th", sum+".p-t"), []byte("dat4"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.ReadAt("th", "t", sum, 2, 1); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("read of a damaged blob: %v", err)
	}
}

func TestBlobBounds(t *testing.T) {
	dir := t.TempDir()
	b := blobs(t, artifact.BlobConfig{Dir: dir, Cap: 10, Quota: 15})
	if _, err := b.Put("th", "t", make([]byte, 11)); !errors.Is(err, artifact.ErrQuota) {
		t.Errorf("over the cap: %v", err)
	}
	put(t, b, "th", "t", "0123456789")
	b = blobs(t, artifact.BlobConfig{Dir: dir, Cap: 10, Quota: 15})
	if _, err := b.Put("th", "t2", []byte("abcdef")); !errors.Is(err, artifact.ErrQuota) {
		t.Errorf("over the quota: %v", err)
	}
	put(t, b, "th", "t2", "abcde")
	put(t, b, "other", "t2", "abcdef")
	if err := b.DeleteThread("th"); err != nil {
		t.Fatal(err)
	}
	put(t, b, "th", "t3", "abcdef")
}

func TestBlobSweep(t *testing.T) {
	dir := t.TempDir()
	b := blobs(t, artifact.BlobConfig{Dir: dir})
	for _, thread := range []string{"keep", "gone"} {
		put(t, b, thread, "t", "x")
	}
	n, err := b.Sweep(func(id string) (bool, error) { return id == "keep", nil })
	if left := files(t, dir); err != nil || n != 1 || len(left) != 1 {
		t.Errorf("swept %d, %v, left %v", n, err, left)
	}
}

func TestStat(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, 20_000)
	for _, size := range []int{0, 5, 9000, 20_010} {
		w := writer(t, s, "th", "it")
		data := strings.Repeat("x", size)
		if size > 0 {
			write(t, w, 0, data)
			if got, sealed, err := s.Stat("th", "it"); err != nil || sealed || got.Bytes != min(int64(size), 20_000) {
				t.Errorf("%d bytes, open: %+v %v %v", size, got, sealed, err)
			}
		}
		want, err := w.Seal()
		if err != nil {
			t.Fatal(err)
		}
		if size == 0 {
			want.SHA256 = ""
		}
		if got, sealed, err := open(t, dir, 20_000).Stat("th", "it"); err != nil || !sealed || got != want {
			t.Errorf("%d bytes: %+v %v %v, want %+v", size, got, sealed, err, want)
		}
		if err := s.DeleteThread("th"); err != nil {
			t.Fatal(err)
		}
	}
	// The control plane died before the seal.
	w := writer(t, s, "th", "it")
	write(t, w, 0, strings.Repeat("y", 9000))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got, sealed, err := s.Stat("th", "it"); err != nil || sealed || got.Bytes != 9000 {
		t.Errorf("without a seal: %+v %v %v", got, sealed, err)
	}
}
