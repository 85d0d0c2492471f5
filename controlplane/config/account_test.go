package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAccountKeepsItsKeyToItself(t *testing.T) {
	home := Home{Dir: t.TempDir()}
	a := NewAccount(home)
	if key, err := a.Key(); key != "" || err != nil {
		t.Fatalf("key %q, %v", key, err)
	}
	if err := a.Prepare(); err != nil {
		t.Fatal(err)
	}
	// What is in the way must not get the key.
	elsewhere := filepath.Join(t.TempDir(), "readable")
	if err := os.WriteFile(elsewhere, []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, a.Path()); err != nil {
		t.Fatal(err)
	}
	if err := a.Login("  sk-secret\n"); err != nil {
		t.Fatal(err)
	}
	if key, err := a.Key(); key != "sk-secret" || err != nil {
		t.Errorf("key %q, %v", key, err)
	}
	info, err := os.Lstat(a.Path())
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if data, err := os.ReadFile(elsewhere); string(data) != "{}" || err != nil {
		t.Errorf("the linked file holds %q, %v", data, err)
	}
	for _, bad := range []string{"", " ", "a b", "a\nb", "\u00fc", strings.Repeat("k", maxKey+1)} {
		if err := a.Login(bad); err == nil || (len(bad) > 3 && strings.Contains(err.Error(), bad)) {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
	if err := os.WriteFile(a.Path(), []byte("sk-secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Key(); err == nil || strings.Contains(err.Error(), "sk-") {
		t.Errorf("a broken file: %v", err)
	}
	for _, want := range []bool{true, false} {
		if was, err := a.Logout(); was != want || err != nil {
			t.Errorf("logout: %t, %v", was, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(home.Dir, AccountDir, "*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestProvidersThatTakeTheLogin(t *testing.T) {
	home := Home{Dir: t.TempDir()}
	write := "[model_providers.mine]\nbase_url = \"http://h/v1\"\nrequires_openai_auth = true\n[model_providers.other]\nbase_url = \"http://h/v1\"\n"
	if err := os.WriteFile(home.Path(), []byte(write), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(Options{Home: home})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{"openai": true, "mine": true, "other": false, "anthropic": false, "ollama": false, "scripted": false} {
		p, err := c.Provider(id)
		if err != nil || p.TakesLogin != want {
			t.Errorf("%s: takes the login %t, %v", id, p.TakesLogin, err)
		}
	}
}
