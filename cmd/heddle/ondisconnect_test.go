package main

import (
	"os"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/config"
)

// What becomes of turns whose client is gone follows the home's config and what
// the session brings over it.
func TestOnDisconnectOfTheConfig(t *testing.T) {
	home := config.Home{Dir: t.TempDir()}
	if err := os.WriteFile(home.Path(), []byte("on_disconnect = \"continue\"\n[profiles.p]\non_disconnect = \"interrupt\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		flags     sessionFlags
		home      config.Home
		overrides map[string]any
		want      string
	}{
		"file":    {sessionFlags{}, home, nil, "continue"},
		"session": {sessionFlags{}, home, map[string]any{"on_disconnect": "interrupt"}, "interrupt"},
		"profile": {sessionFlags{profile: "p"}, home, nil, "interrupt"},
		"ignored": {sessionFlags{ignoreUserConfig: true}, home, nil, ""},
		"unset":   {sessionFlags{}, config.Home{Dir: t.TempDir()}, nil, ""},
		"unknown": {sessionFlags{}, home, map[string]any{"on_disconnect": "forget"}, ""},
	} {
		if got := tt.flags.onDisconnect(tt.home, "/", tt.overrides); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
