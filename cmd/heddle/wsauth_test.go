package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestAuthFlags(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("s", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		args []string
		want string // of the error; "none" and "some" say who decides
	}{
		{nil, "none"},
		{[]string{"--ws-auth", "signed-bearer-token", "--ws-shared-secret-file", secret}, "some"},
		{[]string{"--ws-auth", "signed-bearer-token", "--ws-shared-secret-file", secret, "--ws-issuer", "i", "--ws-audience", "a", "--ws-max-clock-skew-seconds", "0"}, "some"},
		{[]string{"--ws-auth", "capability-token", "--ws-token-file", secret}, "some"},
		{[]string{"--ws-auth", "signed-bearer-token"}, "needs --ws-shared-secret-file"},
		{[]string{"--ws-auth", "signed-bearer-token", "--ws-shared-secret-file", secret, "--ws-token-file", secret}, "go with --ws-auth capability-token"},
		{[]string{"--ws-auth", "signed-bearer-token", "--ws-shared-secret-file", secret, "--ws-max-clock-skew-seconds", "99999999999999999"}, "at most 86400"},
		{[]string{"--ws-auth", "capability-token", "--ws-token-file", secret, "--ws-issuer", "i"}, "go with --ws-auth signed-bearer-token"},
		{[]string{"--ws-auth", "capability-token"}, "needs --ws-token-file"},
		{[]string{"--ws-shared-secret-file", secret}, "need --ws-auth"},
		{[]string{"--ws-max-clock-skew-seconds", "30"}, "need --ws-auth"},
		{[]string{"--ws-auth", "none"}, "want capability-token or signed-bearer-token"},
	} {
		var f authFlags
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.add(fs)
		if err := fs.Parse(row.args); err != nil {
			t.Fatal(err)
		}
		got, err := f.check()
		switch {
		case row.want == "none" || row.want == "some":
			if err != nil || (got == nil) != (row.want == "none") {
				t.Errorf("%v: %v, %v", row.args, got, err)
			}
		case err == nil || !strings.Contains(err.Error(), row.want):
			t.Errorf("%v: %v, want %q", row.args, err, row.want)
		}
	}
}
