package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/config"
)

func TestPrintStartupConfig(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HEDDLE_HOME", home)
	account := config.NewAccount(config.Home{Dir: home})
	if err := account.Login("sk-key"); err != nil {
		t.Fatal(err)
	}
	ask := func(want int, args ...string) map[string]any {
		t.Helper()
		var out, errs strings.Builder
		args = append([]string{"app-server", "--print-startup-config", "--startup-client-info", `{"name":"x","version":"1","title":null}`}, args...)
		if code := run(args, strings.NewReader(""), &out, &errs); code != want {
			t.Fatalf("exit %d: %s", code, errs.String())
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(out.String()), &got); err != nil || strings.Count(out.String(), "\n") != 1 {
			t.Fatalf("%v: %q", err, out.String())
		}
		return got
	}
	got := ask(exitOK)
	requirements, ok := got["configRequirements"].(map[string]any)
	if text, _ := got["appServerVersion"].(string); text == "" || !ok || requirements["requirements"] != nil {
		t.Errorf("printed %v", got)
	}
	if key, err := account.Key(); err != nil || key != "sk-key" {
		t.Errorf("the key is %q, %v", key, err)
	}
	ask(exitOK, "--startup-sign-out")
	if key, err := account.Key(); err != nil || key != "" {
		t.Errorf("after signing out the key is %q, %v", key, err)
	}
	path := filepath.Join(home, "config.toml")
	for _, row := range []struct {
		text string
		line any
		args []string
	}{{"\nmodel = 3\n", 2.0, nil}, {"modell = 'x'\n", 1.0, []string{"--strict-config"}}} {
		if err := os.WriteFile(path, []byte(row.text), 0o600); err != nil {
			t.Fatal(err)
		}
		failure, _ := ask(exitFailed, row.args...)["error"].(map[string]any)
		data, _ := failure["data"].(map[string]any)
		if data["reason"] != "configLoad" || data["filePath"] != path || data["line"] != row.line {
			t.Errorf("%q: %v", row.text, failure)
		}
	}
}
