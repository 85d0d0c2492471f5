//go:build clients

package e2e

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var helpFlag = regexp.MustCompile(`(?m)^ {2,6}(?:(-\w), )?(--[a-z0-9-]+)(?:[ =\[<]|$)`)

// TestClientReferenceFlags holds the table of the reference's flags, against
// which heddle's are tested, to what the reference itself says.
func TestClientReferenceFlags(t *testing.T) {
	codex := filepath.Join(npmClient(t, "tui"), "node_modules/.bin/codex")
	table, command := map[string][]string{}, ""
	for line := range strings.Lines(string(readFile(t, "../../testdata/reference-flags.txt"))) {
		switch line = strings.TrimSpace(line); {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			command = strings.Trim(line, "[]")
		default:
			table[command] = append(table[command], line)
		}
	}
	home := t.TempDir()
	for _, command := range slices.Sorted(maps.Keys(table)) {
		out, err := runIn(t, home, time.Minute, codex, append(strings.Fields(command), "--help")...)
		if err != nil {
			t.Fatalf("codex %s --help: %v\n%s", command, err, out)
		}
		var said []string
		for _, m := range helpFlag.FindAllStringSubmatch(string(out), -1) {
			said = append(said, strings.TrimSpace(m[1]+" "+m[2]))
		}
		slices.Sort(said)
		slices.Sort(table[command])
		if !slices.Equal(said, table[command]) {
			t.Errorf("codex %s has\n%s\nthe table\n%s", command, strings.Join(said, " "), strings.Join(table[command], " "))
		}
	}
	if len(table) < 6 {
		t.Errorf("the table has %d subcommands", len(table))
	}
}
