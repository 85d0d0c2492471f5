package actionhash_test

import (
	"encoding/hex"
	"testing"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/proto/heddle/v1/actionhash"
)

func policy() *heddlev1.SandboxPolicy {
	return &heddlev1.SandboxPolicy{
		Level:         heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE,
		WritableRoots: []string{"/srv/a"},
		Network:       heddlev1.NetworkMode_NETWORK_MODE_OFF,
	}
}

// The golden values were computed from the encoding in the package comment by
// an independent program; they must never change under one Tag.
func TestGoldenVectors(t *testing.T) {
	cases := map[string]struct {
		got  []byte
		want string
	}{
		"process": {actionhash.Process([]string{"/bin/bash", "-lc", "true"}, "/w", []string{"A=1"}, false, policy(), "/w"), goldenProcess},
		"patch":   {actionhash.Patch("*** Begin Patch\n*** End Patch\n", "/w", map[string][]byte{"/w/b": {2}, "/w/a": {1}}, policy(), "/w"), goldenPatch},
		"stdin":   {actionhash.Stdin("act-1", []byte("y\n")), goldenStdin},
	}
	for name, c := range cases {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s: hash %s, want %s", name, got, c.want)
		}
	}
}

func TestEveryFieldCounts(t *testing.T) {
	base := actionhash.Process([]string{"a", "b"}, "/w", []string{"A=1"}, false, policy(), "/w")
	loose := policy()
	loose.Network = heddlev1.NetworkMode_NETWORK_MODE_FULL
	others := map[string][]byte{
		"argv split": actionhash.Process([]string{"ab"}, "/w", []string{"A=1"}, false, policy(), "/w"),
		"cwd":        actionhash.Process([]string{"a", "b"}, "/w/", []string{"A=1"}, false, policy(), "/w"),
		"env":        actionhash.Process([]string{"a", "b"}, "/w", []string{"A=2"}, false, policy(), "/w"),
		"tty":        actionhash.Process([]string{"a", "b"}, "/w", []string{"A=1"}, true, policy(), "/w"),
		"policy":     actionhash.Process([]string{"a", "b"}, "/w", []string{"A=1"}, false, loose, "/w"),
		"workspace":  actionhash.Process([]string{"a", "b"}, "/w", []string{"A=1"}, false, policy(), "/v"),
	}
	for name, h := range others {
		if string(h) == string(base) {
			t.Errorf("%s: a different action has the same hash", name)
		}
	}
}
