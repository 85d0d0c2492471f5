//go:build clients

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// protocolFile lists what the reference's protocol has, for the coverage table.
const protocolFile = "../../../../gateway/appserver/testdata/reference.json"

// recordEnv makes the tests of the reference write what they find instead of
// comparing it with what is kept.
const recordEnv = "HEDDLE_RECORD"

// protocolFacts are the names of the protocol.
type protocolFacts struct {
	// Methods by name: whether they are experimental.
	Methods map[string]bool `json:"methods"`
	// Fields that are experimental, of methods that are not.
	Fields        map[string][]string `json:"experimentalFields"`
	Notifications []string            `json:"notifications"`
	Requests      []string            `json:"requests"`
}

// kept compares made with a file, or writes it.
func kept(t *testing.T, file string, made []byte) {
	t.Helper()
	if os.Getenv(recordEnv) != "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // a folder of sources
			t.Fatal(err)
		}
		if err := os.WriteFile(file, made, 0o644); err != nil { //nolint:gosec // a source
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, made) {
		t.Errorf("%s is not what the reference says; set %s=1 to write it", file, recordEnv)
	}
}

func readSchema(t *testing.T, name string) any {
	t.Helper()
	var doc any
	if err := json.Unmarshal(readFile(t, name), &doc); err != nil {
		t.Fatal(err)
	}
	return member(doc, "definitions")
}

// stableSchema is the reference's schema without what is experimental.
func stableSchema(t *testing.T) any {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "stable")
	codex := filepath.Join(npmClient(t, "tui"), "node_modules/.bin/codex")
	if out, err := runIn(t, filepath.Dir(dir), time.Minute, codex, "app-server", "generate-json-schema", "--out", dir); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return readSchema(t, filepath.Join(dir, "codex_app_server_protocol.schemas.json"))
}

// unionOf returns the parameters of each method of a union of messages.
func unionOf(t *testing.T, definitions any, union string) map[string]any {
	t.Helper()
	out := map[string]any{}
	b := schemaBundle{definitions: definitions}
	b.variants(union, func(_ int, method string, variant any) { out[method] = member(variant, "properties", "params") })
	if b.err != nil {
		t.Fatal(b.err)
	}
	return out
}

// TestClientReferenceProtocol keeps the names of the protocol, so that the table
// of what is covered can forget none.
func TestClientReferenceProtocol(t *testing.T) {
	all, stable := readSchema(t, referenceSchema(t)), stableSchema(t)
	facts := protocolFacts{Methods: map[string]bool{}, Fields: map[string][]string{}}
	allMethods, stableMethods := unionOf(t, all, "ClientRequest"), unionOf(t, stable, "ClientRequest")
	whole, part := inputMaker{definitions: all}, inputMaker{definitions: stable}
	for method, params := range allMethods {
		known, isStable := stableMethods[method]
		facts.Methods[method] = !isStable
		if !isStable {
			continue
		}
		for name := range properties(whole.resolve(params)) {
			if _, ok := properties(part.resolve(known))[name]; !ok {
				facts.Fields[method] = append(facts.Fields[method], name)
			}
		}
		slices.Sort(facts.Fields[method])
	}
	facts.Notifications = slices.Sorted(maps.Keys(unionOf(t, all, "ServerNotification")))
	facts.Requests = slices.Sorted(maps.Keys(unionOf(t, all, "ServerRequest")))
	made, err := json.MarshalIndent(facts, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	kept(t, protocolFile, append(made, '\n'))
}

// untouched says that a method reaches out of its machine, or into the state of
// the machine, when it is called rightly. It is called wrongly only.
func untouched(method string) bool {
	for _, prefix := range []string{
		"account/", "accountSession/", "app/", "externalAgentConfig/", "feedback/", "marketplace/", "plugin/", "remoteControl/", "thread/realtime/",
		"userVerification/", "windowsSandbox/", "mcpServer/oauth/", "config/mcpServer/", "memory/", "rollout/", "skills/extraRoots/", "environment/", "model/list",
	} {
		if strings.HasPrefix(method, prefix) {
			return true
		}
	}
	return false
}

// inputCases makes all requests that are tried, without their answers.
func inputCases(t *testing.T) []inputCase {
	t.Helper()
	var facts protocolFacts
	if err := json.Unmarshal(readFile(t, protocolFile), &facts); err != nil {
		t.Fatal(err)
	}
	definitions := readSchema(t, referenceSchema(t))
	g := inputMaker{definitions: definitions}
	requests := requestSchemas(t)
	var out []inputCase
	for method, schema := range unionOf(t, definitions, "ClientRequest") {
		valid := func(params string) bool {
			text := fmt.Sprintf(`{"id":1,"method":%q}`, method)
			if params != "" {
				text = fmt.Sprintf(`{"id":1,"method":%q,"params":%s}`, method, params)
			}
			v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
			return err == nil && requests[method].Validate(v) == nil
		}
		add := func(params string, experimental bool) {
			if method == "initialize" || untouched(method) && valid(params) {
				return
			}
			out = append(out, inputCase{method: method, experimental: experimental, params: params})
		}
		rows := g.paramsOf(schema)
		for _, params := range rows {
			add(params, true)
		}
		if facts.Methods[method] {
			add(rows[0], false)
			add("{}", false)
		}
		for _, field := range facts.Fields[method] {
			right, _ := g.right("", schema).(map[string]any)
			value := g.right(field, properties(g.resolve(schema))[field])
			if value == false {
				value = true
			}
			right[field] = value
			add(toJSON(right), false)
			right[field] = nil
			add(toJSON(right), false)
		}
	}
	slices.SortStableFunc(out, func(a, b inputCase) int { return strings.Compare(a.method, b.method) })
	return out
}

func requestSchemas(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	schemas, err := readWireSchemas(referenceSchema(t))
	if err != nil {
		t.Fatal(err)
	}
	return schemas.calls
}

// TestClientReferenceAnswers keeps what the reference answers to all kinds of
// parameters, made from its schema for every method.
func TestClientReferenceAnswers(t *testing.T) {
	cases := inputCases(t)
	for _, experimental := range []bool{true, false} {
		var part []int
		for i, c := range cases {
			if c.experimental == experimental {
				part = append(part, i)
			}
		}
		asked := make([]inputCase, len(part))
		for i, at := range part {
			asked[i] = cases[at]
		}
		got := askReference(t, experimental, asked)
		for i, at := range part {
			m, ok := got[i]
			if !ok {
				t.Logf("no answer: %v", cases[at])
				cases[at].code = -1
				continue
			}
			cases[at].code, cases[at].text = errorOf(m)
			if !exactText(cases[at].text) {
				cases[at].text = "" // its words may name this machine, and need not be the same
			}
		}
	}
	var made bytes.Buffer
	for _, c := range cases {
		if c.code == -1 {
			continue
		}
		made.WriteString(c.line())
	}
	kept(t, inputFile, made.Bytes())
}

// askReference runs the reference in an empty home.
func askReference(t *testing.T, experimental bool, cases []inputCase) map[int]message {
	t.Helper()
	home := t.TempDir()
	work := filepath.Join(home, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(npmClient(t, "tui"), "node_modules/.bin/codex"), "app-server")
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "CODEX_HOME="+home, "HOME="+home)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		_ = cmd.Wait()
	}()
	r := bufio.NewReader(out)
	if _, err := fmt.Fprintf(in, helloLine, experimental); err != nil {
		t.Fatal(err)
	}
	return answers(t, in, r, cases, nil, 20*time.Second)
}

// line is the row of the table.
func (c inputCase) line() string {
	return fmt.Sprintf("%s\t%t\t%s\t%d\t%s\n", c.method, c.experimental, c.params, c.code, strconv.Quote(c.text))
}
