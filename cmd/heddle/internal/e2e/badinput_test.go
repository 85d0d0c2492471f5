package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	// inputFile holds what the reference answers to parameters that are made from
	// its schema, most of them wrong; see TestClientReferenceAnswers.
	inputFile = "testdata/badinput.tsv"
	// longText stands for a text that is far longer than any name.
	longText     = "@long@"
	longTextSize = 70_000
)

// inputCase is one request and the reference's answer to it.
type inputCase struct {
	method       string
	experimental bool   // whether the connection asked for experimental methods
	params       string // JSON; empty means none
	code         int    // 0 means that it was accepted
	text         string
}

// request is the message with which the case is tried.
func (c inputCase) request(id int) []byte {
	params := ""
	if c.params != "" {
		params = `,"params":` + strings.ReplaceAll(c.params, longText, strings.Repeat("x", longTextSize))
	}
	return fmt.Appendf(nil, `{"id":%d,"method":%q%s}`, id, c.method, params)
}

func (c inputCase) String() string {
	return fmt.Sprintf("%s %s (experimental: %t)", c.method, c.params, c.experimental)
}

func readInputCases(t *testing.T) []inputCase {
	t.Helper()
	data, err := os.ReadFile(inputFile)
	if err != nil {
		t.Fatal(err)
	}
	var out []inputCase
	for line := range bytes.Lines(data) {
		f := strings.Split(strings.TrimSuffix(string(line), "\n"), "\t")
		if len(f) != 5 {
			t.Fatalf("%s: %q", inputFile, line)
		}
		c := inputCase{method: f[0], experimental: f[1] == "true", params: f[2]}
		if c.code, err = strconv.Atoi(f[3]); err == nil {
			c.text, err = strconv.Unquote(f[4])
		}
		if err != nil {
			t.Fatalf("%s: %q: %v", inputFile, line, err)
		}
		out = append(out, c)
	}
	return out
}

// answers asks all cases of one connection and returns what comes back, by
// position; cases without an answer in time are left out. check, when it is not
// nil, sees all messages.
func answers(t *testing.T, in interface{ Write([]byte) (int, error) }, out *bufio.Reader, cases []inputCase, check *wireCheck, within time.Duration) map[int]message {
	t.Helper()
	const window = 64 // requests under way
	got := map[int]message{}
	lines, failed := make(chan message), make(chan error, 1)
	go func() {
		for {
			line, err := out.ReadBytes('\n')
			var m message
			if err == nil {
				err = json.Unmarshal(line, &m)
			}
			if err != nil {
				failed <- err
				return
			}
			if check != nil {
				check.received(line)
			}
			if m.Method == "" {
				lines <- m
			}
		}
	}()
	for start := 0; start < len(cases); start += window {
		batch := cases[start:min(start+window, len(cases))]
		for i, c := range batch {
			line := c.request(start + i)
			if check != nil {
				check.sent(line)
			}
			if _, err := in.Write(append(line, '\n')); err != nil {
				t.Fatalf("write: %v", err)
			}
		}
		timeout := time.After(within)
		for waiting := len(batch); waiting > 0; {
			select {
			case m := <-lines:
				if id, err := strconv.Atoi(string(m.ID)); err == nil && id >= 0 {
					got[id] = m
					if id >= start {
						waiting--
					}
				}
			case err := <-failed:
				t.Fatalf("the connection ended within %v ... %v: %v", batch[0], batch[len(batch)-1], err)
			case <-timeout:
				waiting = 0
			}
		}
	}
	go func() {
		for range lines { // what comes late is dropped
		}
	}()
	return got
}

func errorOf(m message) (code int, text string) {
	if m.Error == nil {
		return 0, ""
	}
	n, _ := m.Error["code"].(float64)
	return int(n), strings.ReplaceAll(fmt.Sprint(m.Error["message"]), strings.Repeat("x", longTextSize), longText)
}

// exactText says that clients may match on the words of an error: those about
// the form of a request. What is said about its meaning may be said better.
func exactText(text string) bool {
	return strings.HasPrefix(text, "Invalid request: ") || strings.HasSuffix(text, " requires experimentalApi capability")
}

// TestBadInput tries each method with parameters that are made from the schema
// of the reference: missing, null, of another type, unknown, oversized and
// hostile ones. Each is answered with the code of the reference, and with its
// words where they are about the form; nothing half-done is left; and the
// connection lives.
func TestBadInput(t *testing.T) {
	w := newWorld(t, newModel(t, nil))
	all := readInputCases(t)
	missing := map[string]bool{} // methods that heddle does not have
	for _, experimental := range []bool{true, false} {
		var cases []inputCase
		for _, c := range all {
			if c.experimental == experimental {
				cases = append(cases, c)
			}
		}
		last := inputCase{method: "thread/loaded/list", params: "{}"}
		check := newWireCheck(t)
		check.wrong = true
		in, out, done := w.bare(experimental, check)
		got := answers(t, in, out, append(cases, last), check, 30*time.Second)
		check.finish()
		made := 0
		for i, c := range cases {
			m, ok := got[i]
			if !ok {
				t.Errorf("no answer to %v", c)
				continue
			}
			if _, text := errorOf(m); text == c.method+" is not supported by this server" {
				missing[c.method] = true
			}
			if why := differs(c, m); why != "" && !betterThanReference(c) && !missing[c.method] {
				t.Errorf("%v\n%s", c, why)
			}
			if m.Error == nil && c.method == "thread/start" {
				made++
			}
		}
		if loaded, _ := got[len(cases)].Result["data"].([]any); len(loaded) != made {
			t.Errorf("%d threads are loaded, %d were made", len(loaded), made)
		}
		done()
	}
}

// betterThanReference says that heddle answers otherwise on purpose.
func betterThanReference(c inputCase) bool {
	for _, row := range []struct{ method, params, why string }{
		{"", "[]", "a list is no structure, also where all members may be left out"},
		{"command/exec", `{"command":[""]}`, "there is no program without a name"},
		{"process/spawn", `"processHandle":"sample"`, "the requests before it are still under way with the same handle"},
		{"thread/items/list", "", "a thread that is not there is told as such, not as a lack of the server"},
		{"thread/items/read", "", "the same"},
		{"thread/timeline/list", "", "the same"},
		{"thread/searchOccurrences", "", "the same"},
		{"thread/loaded/list", `"cursor":`, "a cursor that was never given out is refused"},
		{"thread/list", `"originators":`, "the filter works"},
		{"thread/readState/update", `"threadId":""`, "the thread is looked at first"},
		{"thread/readState/update", `"threadId":"../`, "the same"},
		{"thread/readState/update", `"threadId":"@`, "the same"},
		{"thread/metadata/update", `"projectId":""`, "a thread that is not there is no failure of the server"},
		{"thread/resume", `"history":`, "items that no model is shown are refused"},
		{"thread/sample/cancel", "noSuchMember", "members that are not known are ignored everywhere"},
		{"threadSection/create", `"name":"@long@"`, "names are bounded"},
		{"project/create", `"name":"@long@"`, "the same"},
		{"project/import", `"name":"@long@"`, "the same"},
		{"thread/queue/", "", "a thread that is not there is the client's mistake"},
		{"thread/search", `"searchTerm":"@long@"`, "search terms are bounded"},
	} {
		switch {
		case row.method == "" && c.params == row.params:
			return true
		case strings.HasSuffix(row.method, "/") && strings.HasPrefix(c.method, row.method):
			return true
		case row.method == c.method && strings.Contains(c.params, row.params):
			return true
		}
	}
	return false
}

// differs says how an answer is not what is wanted.
func differs(c inputCase, m message) string {
	code, text := errorOf(m)
	switch {
	case code == -32600 && strings.HasSuffix(text, " is not supported by this server"):
		return ""
	case code != c.code:
	case exactText(c.text) && essence(text) != essence(c.text):
	default:
		return ""
	}
	return fmt.Sprintf(" got %d %s\nwant %d %s", code, text, c.code, c.text)
}

// The words of the reference name its own types, take a list for a structure and
// tell of numbers that are too large by the way in which they are read. None of
// that is for a client to match on.
var (
	typeName   = regexp.MustCompile(`(struct|internally tagged enum|any variant of untagged enum) \w+`)
	asSequence = regexp.MustCompile(`invalid length \d+, expected (struct) with \d+ elements?`)
	hugeNumber = regexp.MustCompile("invalid (type|value): integer `99999999999999999999999999`.*")
)

// essence is what an error says to a client.
func essence(text string) string {
	text = typeName.ReplaceAllString(text, "$1")
	text = asSequence.ReplaceAllString(text, "invalid type: sequence, expected $1")
	return hugeNumber.ReplaceAllString(text, "a number that is too large")
}

// bare starts an app-server for a caller that speaks to it itself.
func (w *world) bare(experimental bool, check *wireCheck) (in io.Writer, out *bufio.Reader, done func()) {
	w.t.Helper()
	cmd := w.command(context.WithoutCancel(w.t.Context()), "app-server")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	check.sent(fmt.Appendf(nil, helloLine, experimental))
	if _, err := fmt.Fprintf(stdin, helloLine, experimental); err != nil {
		w.t.Fatal(err)
	}
	return stdin, bufio.NewReader(stdout), func() {
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil {
			w.t.Errorf("app-server: %v", err)
		}
	}
}

// helloLine opens a connection.
const helloLine = `{"id":-1,"method":"initialize","params":{"clientInfo":{"name":"e2e","version":"1"},"capabilities":{"experimentalApi":%t}}}` + "\n"
