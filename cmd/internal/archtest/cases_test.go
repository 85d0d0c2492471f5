package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// cases says how many cases each group of reports has.
var cases = map[string]int{"P": 18, "X": 5, "D": 7, "C": 20, "S": 18, "F": 8}

var (
	caseID   = regexp.MustCompile(`\b[PXDCSF][0-9]{1,2}\b`)
	testName = regexp.MustCompile("`(Test[A-Za-z0-9_]+)`")
	rowName  = regexp.MustCompile("`([A-Z][0-9]{2}[a-z]?)`")
	function = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9_]+)\(`)
	row      = regexp.MustCompile(`(?m)^\s*\{"([A-Z][0-9]{2}[a-z]?)", "`)
)

// TestCasesHaveTests: docs/testing.md has every case, and what it names exists
// and carries the case's id.
func TestCasesHaveTests(t *testing.T) {
	root := moduleRoot(t)
	doc, err := os.ReadFile(filepath.Join(root, "docs/testing.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests, rows := named(t, root)
	if len(tests) < 300 || len(rows) < 50 {
		t.Fatalf("found %d tests and %d rows in the tree; the walk is broken", len(tests), len(rows))
	}
	for _, problem := range checkCases(string(doc), tests, rows) {
		t.Error(problem)
	}
	_, promises, found := strings.Cut(string(doc), "## Promises")
	names := testName.FindAllStringSubmatch(promises, -1)
	if !found || len(names) < 20 {
		t.Errorf("%d tests of promises in docs/testing.md", len(names))
	}
	for _, m := range names {
		if _, ok := tests[m[1]]; !ok {
			t.Errorf("promises: %s is not in the tree", m[1])
		}
	}
}

func TestCheckCasesCatches(t *testing.T) {
	tests := map[string]string{"TestP1OneEnd": "func TestP1OneEnd(", "TestOther": "// says nothing\nfunc TestOther("}
	for what, doc := range map[string]string{
		"a missing test": "| P1 one end | `TestP1Gone` (e2e) |", "no test": "| P1 one end | none |",
		"a missing row": "| P1 one end | row `P01` |", "no id": "| P1 one end | `TestOther` (e2e) |",
	} {
		found := false
		for _, problem := range checkCases(doc, tests, nil) {
			found = found || strings.HasPrefix(problem, "P1: ") && !strings.HasSuffix(problem, "no line")
		}
		if !found {
			t.Errorf("%s was let through", what)
		}
	}
	for _, problem := range checkCases("| P1 one end | `TestP1OneEnd` (e2e) |", tests, nil) {
		if strings.HasPrefix(problem, "P1: ") {
			t.Error(problem)
		}
	}
}

// checkCases compares the document with the texts of the files that hold each
// test and each row.
func checkCases(doc string, tests, rows map[string]string) (problems []string) {
	seen := map[string]bool{}
	for line := range strings.Lines(doc) {
		cells := strings.Split(strings.Trim(line, "|\n "), " | ")
		if len(cells) != 2 || !caseID.MatchString(cells[0]) || caseID.FindStringIndex(cells[0])[0] != 0 {
			continue
		}
		var texts []string
		for _, ref := range []struct {
			names *regexp.Regexp
			in    map[string]string
		}{{testName, tests}, {rowName, rows}} {
			for _, m := range ref.names.FindAllStringSubmatch(cells[1], -1) {
				if text, ok := ref.in[m[1]]; ok {
					texts = append(texts, text)
				} else {
					problems = append(problems, caseID.FindString(cells[0])+": "+m[1]+" is not in the tree")
				}
			}
		}
		for _, id := range caseID.FindAllString(cells[0], -1) {
			seen[id] = true
			carried := regexp.MustCompile(`(^|[^A-Z0-9])([a-z]*|Test|TestCase|Test[A-Z0-9]*)` + id[:1] + "0?" + id[1:] + `([^0-9]|$)`)
			if !carried.MatchString(strings.Join(texts, "\n")) {
				problems = append(problems, id+": its tests do not carry the id")
			}
		}
	}
	for group, n := range cases {
		for i := 1; i <= n; i++ {
			if id := group + strconv.Itoa(i); !seen[id] && id != "D5" {
				problems = append(problems, id+": no line")
			}
		}
	}
	return problems
}

// named finds the tests and the rows of the attack table, each with the text of
// its file.
func named(t *testing.T, root string) (tests, rows map[string]string) {
	t.Helper()
	tests, rows = map[string]string{}, map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != root && strings.HasPrefix(d.Name(), ".") {
				return filepath.SkipDir
			}
			return nil
		}
		table := filepath.Base(filepath.Dir(path)) == "sandboxtest" && strings.HasSuffix(path, ".go")
		if !table && !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		into := func(m map[string]string, names *regexp.Regexp) {
			for _, name := range names.FindAllStringSubmatch(string(text), -1) {
				m[name[1]] += string(text)
			}
		}
		into(tests, function)
		if table {
			into(rows, row)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests, rows
}
