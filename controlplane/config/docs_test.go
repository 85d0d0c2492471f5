package config

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every key that heddle reads is described: those at the top and the features in
// docs/config.md, those of tables there or on the page that it leads to.
func TestKeysAreDocumented(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no documentation: %v", err)
	}
	var all strings.Builder
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	page, err := os.ReadFile("../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	named := func(text, name string) bool {
		return regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`).MatchString(text)
	}

	root := schema()
	elsewhere := strings.Fields(knownElsewhere)
	for name, n := range root.children {
		if name == "profiles" || slices.Contains(elsewhere, name) {
			continue
		}
		if !named(string(page), name) {
			t.Errorf("docs/config.md does not name %s", name)
		}
		for _, key := range slices.Sorted(maps.Keys(keysIn(n))) {
			if !named(all.String(), key) {
				t.Errorf("no page of docs names %s of %s", key, name)
			}
		}
	}
	for _, f := range Features() {
		if !strings.Contains(string(page), "| `"+f.Name+"` |") {
			t.Errorf("docs/config.md does not describe the feature %s", f.Name)
		}
	}
}

// keysIn collects the names of keys below a node.
func keysIn(n *node) map[string]bool {
	out := map[string]bool{}
	for _, below := range []*node{n.each, n.orTable} {
		if below != nil {
			maps.Copy(out, keysIn(below))
		}
	}
	for name, child := range n.children {
		out[name] = true
		maps.Copy(out, keysIn(child))
	}
	return out
}

// A session may do without rules; a file may not say so.
func TestIgnoresRules(t *testing.T) {
	h := home(t, "ignore_rules = true\n")
	for _, over := range []map[string]any{nil, {"ignore_rules": true}, {"ignore_rules": false}} {
		c := load(t, Options{Home: h, Overrides: over})
		if got, want := c.IgnoresRules(), over["ignore_rules"] == true; got != want {
			t.Errorf("overrides %v: %v, want %v", over, got, want)
		}
	}
}
