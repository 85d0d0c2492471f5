package journal

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Whatever is in the file, a journal opens, and what it kept it keeps.
func FuzzOpen(f *testing.F) {
	f.Add(encode(encode(nil, kindBoot, []byte("boot")), kindAcked, []byte("a")))
	f.Add(encode(nil, kindAccepted, []byte{10, 1, 'a'}))
	f.Add([]byte("garbage"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for rest := data; len(rest) > 0; {
			rec, n, err := decode(rest)
			if err != nil {
				break
			}
			if n <= 0 || n > len(rest) || !bytes.Equal(encode(nil, rec.kind, rec.payload), rest[:n]) {
				t.Fatalf("a record of %d bytes is not what was decoded", n)
			}
			rest = rest[n:]
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, fileName), data, 0o600); err != nil {
			t.Fatal(err)
		}
		var kept []string
		for range 2 {
			j, err := Open(Config{Dir: dir, BootID: "boot"})
			if err != nil {
				t.Fatal(err)
			}
			ids := j.Unacked()
			if kept != nil && len(ids) != len(kept) {
				t.Fatalf("kept %q, then %q", kept, ids)
			}
			kept = ids
			for _, id := range ids {
				if j.Result(id) == nil {
					t.Fatalf("action %q has no result", id)
				}
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
