package eventlog

import (
	"testing"

	"github.com/heddle-dev/heddle/controlplane/store"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// What became of a commit of unknown outcome is not asked of an append that
// leaves its thread's head as it was.
func TestTellingAppend(t *testing.T) {
	idle := store.Append{ThreadID: "idle", ExpectedSeq: 7}
	for name, c := range map[string]struct {
		batch []store.Append
		want  string
	}{
		"events":       {[]store.Append{idle, {ThreadID: "a", Events: []*heddlev1.Event{{}}}}, "a"},
		"a claim":      {[]store.Append{idle, {ThreadID: "b", Claim: true}}, "b"},
		"a new thread": {[]store.Append{idle, {ThreadID: "c", Create: true}}, "c"},
		"nothing else": {[]store.Append{idle}, "idle"},
	} {
		if got := telling(c.batch).ThreadID; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
