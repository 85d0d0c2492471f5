package patch_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/heddle-dev/heddle/executor/patch"
)

// FuzzMake checks that no patch panics, that a failure is a reason for its
// author, that a failed plan leaves no trace, and that a plan can be committed
// and is refused the second time when it changed its base.
func FuzzMake(f *testing.F) {
	for _, s := range []string{allKinds, "*** Update File: a.txt\n@@ one\n+x", "*** Update File: a.txt\n\n\n@@\n-two", "*** Add File: x\n+", "*** Update File: a.txt\n@@\n three\n+\n*** End of File"} {
		f.Add("one\ntwo\nthree\n", wrap(s))
	}
	f.Add("a\r\nb", wrap("*** Update File: a.txt\n@@\n-b\n+c"))
	f.Add("\xff\n", wrap("*** Update File: a.txt\n@@\n \xff\n+\xc3\xa9"))
	f.Fuzz(func(t *testing.T, content, text string) {
		files := map[string]string{"/w/a.txt": content, "/w/b.txt": "b\n", "/w/c.txt": "c\n"}
		m := newFS(files)
		p, err := patch.Make(t.Context(), m, text, "/w")
		if !maps.Equal(m.texts(), files) {
			t.Fatal("planning wrote")
		}
		if err != nil {
			if _, ok := errors.AsType[*patch.RejectedError](err); !ok {
				t.Fatalf("error is %T: %v", err, err)
			}
			return
		}
		for _, c := range p.Changes {
			if c.Kind != "update" {
				continue
			}
			if got, err := undiff(string(c.Before.Data), c.Diff()); err != nil || got != string(c.After.Data) {
				t.Fatalf("diff of %s does not rebuild it: %q, %v", c.Path, got, err)
			}
		}
		if err := patch.Commit(t.Context(), m, p); err != nil {
			t.Fatalf("commit: %v", err)
		}
	})
}
