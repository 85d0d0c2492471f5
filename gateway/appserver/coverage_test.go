package appserver

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
)

//go:generate go test -run TestCoverageOfTheProtocol -update .

var update = flag.Bool("update", false, "rewrite the tables of docs/protocol.md")

const (
	coverageDoc   = "../../docs/protocol.md"
	coverageBegin = "<!-- tables: made by go generate ./gateway/appserver -->\n"
	coverageEnd   = "<!-- end of tables -->\n"
)

// coverageOf says what is done for a method.
func coverageOf(method string) string {
	if _, ok := absent(method); ok {
		return "empty"
	}
	if _, ok := table(method); ok {
		return "full"
	}
	return "unsupported"
}

// literals are the strings that the code of this package holds.
func literals(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				s, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				found[s] = true
			}
			return true
		})
	}
	return found
}

// section makes one table; rows with the same mark stand together.
func section(title string, marks []string, rows map[string][]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n| | number | names |\n|---|---|---|\n", title)
	for _, m := range marks {
		names := "-"
		if len(rows[m]) > 0 {
			names = "`" + strings.Join(rows[m], "`, `") + "`"
		}
		fmt.Fprintf(&b, "| %s | %d | %s |\n", m, len(rows[m]), names)
	}
	return b.String() + "\n"
}

func tables(t *testing.T) string {
	t.Helper()
	methods := map[string][]string{}
	for _, m := range protocol.Methods() {
		c := coverageOf(m)
		methods[c] = append(methods[c], m)
	}
	said := literals(t)
	sent := func(names []string) map[string][]string {
		rows := map[string][]string{}
		for _, n := range names {
			mark := "never sent"
			if said[n] {
				mark = "sent"
			}
			rows[mark] = append(rows[mark], n)
		}
		return rows
	}
	return section("Methods", []string{"full", "empty", "unsupported"}, methods) +
		section("Notifications", []string{"sent", "never sent"}, sent(protocol.Notifications())) +
		section("Requests to the client", []string{"sent", "never sent"}, sent(protocol.ServerRequests()))
}

// The tables of the document are those of the code; go generate rewrites them.
func TestCoverageOfTheProtocol(t *testing.T) {
	raw, err := os.ReadFile(coverageDoc)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), coverageBegin)
	written, after, ok2 := strings.Cut(rest, coverageEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the tables", coverageDoc)
	}
	want := "\n" + tables(t)
	if written == want {
		return
	}
	if *update {
		if err := os.WriteFile(coverageDoc, []byte(before+coverageBegin+want+coverageEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("the tables of %s are not those of the code; run go generate ./gateway/appserver", coverageDoc)
}

// A method that is not there says so with one typed error, and a bad call of any
// method that is there is refused without a panic.
func TestEveryMethodTakesBadParams(t *testing.T) {
	for _, m := range protocol.Methods() {
		for _, raw := range []string{`{}`, `{"threadId":7}`, `{"threadId":null}`, `[]`, `"x"`, `null`, `{"threadId":"no-uuid"}`} {
			_, _, err := lookup(m, []byte(raw), true, false)
			if coverageOf(m) != "unsupported" {
				continue
			}
			if failure(err) == nil || failure(err).Message != m+" is not supported by this server" {
				t.Errorf("%s %s: %v", m, raw, err)
			}
		}
	}
}

// TestTheProtocolIsThatOfTheReference: the lists of names, which the table is made
// of, are those of the reference's own schema. TestClientReferenceProtocol keeps
// the file.
func TestTheProtocolIsThatOfTheReference(t *testing.T) {
	raw, err := os.ReadFile("testdata/reference.json")
	if err != nil {
		t.Fatal(err)
	}
	var want struct {
		Methods       map[string]bool
		Notifications []string
		Requests      []string
	}
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	same := func(what string, got, want []string) {
		t.Helper()
		for _, n := range got {
			if !slices.Contains(want, n) {
				t.Errorf("the reference has no %s %s", what, n)
			}
		}
		for _, n := range want {
			if !slices.Contains(got, n) {
				t.Errorf("the %s %s of the reference is missing", what, n)
			}
		}
	}
	same("method", protocol.Methods(), slices.Collect(maps.Keys(want.Methods)))
	same("notification", protocol.Notifications(), want.Notifications)
	same("request", protocol.ServerRequests(), want.Requests)
	for name, experimental := range want.Methods {
		if _, got := protocol.Known(name); got != experimental {
			t.Errorf("%s: experimental is %t", name, got)
		}
	}
}
