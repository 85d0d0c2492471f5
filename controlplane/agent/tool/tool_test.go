package tool

import (
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func fn(name, args string) *heddlev1.ToolCall {
	return &heddlev1.ToolCall{CallId: "c1", Name: name, Arguments: args}
}

func TestParse(t *testing.T) {
	tests := []struct {
		name string
		call *heddlev1.ToolCall
		want Call
	}{
		{"exec defaults", fn("exec_command", `{"cmd":"ls"}`), &ExecCommand{Cmd: "ls", Login: true, Yield: 10 * time.Second, MaxOutputTokens: 10000}},
		{"exec all", fn("exec_command", `{"cmd":"x","workdir":"d","yield_time_ms":1,"max_output_tokens":7,"tty":true,"login":false,"shell":"/bin/sh","sandbox_permissions":"require_escalated","justification":"why","prefix_rule":["a","b"],"extra":1}`),
			&ExecCommand{Cmd: "x", Workdir: "d", Yield: 250 * time.Millisecond, MaxOutputTokens: 7, TTY: true, Shell: "/bin/sh", Escalated: true, Justification: "why", PrefixRule: []string{"a", "b"}}},
		{"exec huge yield", fn("exec_command", `{"cmd":"x","yield_time_ms":1e300,"max_output_tokens":-5}`), &ExecCommand{Cmd: "x", Login: true, Yield: 30 * time.Second, MaxOutputTokens: 10000}},
		{"exec nulls", fn("exec_command", `{"cmd":"x","yield_time_ms":null,"tty":null,"login":null,"prefix_rule":null}`), &ExecCommand{Cmd: "x", Login: true, Yield: 10 * time.Second, MaxOutputTokens: 10000}},
		{"stdin", fn("write_stdin", `{"session_id":12,"chars":"a\n","yield_time_ms":400}`), &WriteStdin{SessionID: 12, Chars: "a\n", Yield: 400 * time.Millisecond, MaxOutputTokens: 10000}},
		{"stdin poll", fn("write_stdin", `{"session_id":12.0}`), &WriteStdin{SessionID: 12, Yield: 5 * time.Second, MaxOutputTokens: 10000}},
		{"patch freeform", &heddlev1.ToolCall{Name: "apply_patch", Freeform: true, Arguments: "*** Begin Patch\n"}, &ApplyPatch{Patch: "*** Begin Patch\n"}},
		{"patch function", fn("apply_patch", `{"input":"p"}`), &ApplyPatch{Patch: "p"}},
		{"plan", fn("update_plan", `{"explanation":"why","plan":[{"step":"a","status":"in_progress"}]}`), &UpdatePlan{Explanation: "why", Steps: []*heddlev1.PlanStep{{Step: "a", Status: "inProgress"}}}},
		{"image", fn("view_image", `{"path":"i.png"}`), &ViewImage{Path: "i.png"}},
		{"input", fn("request_user_input", `{"questions":[{"id":"q","header":"H","question":"?","options":[{"label":"l","description":"d"},null]}]}`),
			&RequestUserInput{Questions: []Question{{ID: "q", Header: "H", Question: "?", Options: []QuestionOption{{Label: "l", Description: "d"}}}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Parse(tt.call)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %#v, want %#v", got, tt.want)
			}
		})
	}
}

func TestParseErrors(t *testing.T) {
	tests := []struct {
		call *heddlev1.ToolCall
		want string
	}{
		{fn("exec_command", `{not json`), "failed to parse function arguments: "},
		{fn("exec_command", ``), "failed to parse function arguments: the JSON ends too early"},
		{fn("exec_command", `{"command":"x"}`), "failed to parse function arguments: missing field `cmd`"},
		{fn("exec_command", `{"cmd":7}`), "failed to parse function arguments: invalid type: number for `cmd`, expected a string"},
		{fn("exec_command", `{"cmd":["a"]}`), "failed to parse function arguments: invalid type: array for `cmd`, expected a string"},
		{fn("exec_command", `[]`), "failed to parse function arguments: invalid type: array, expected an object"},
		{fn("exec_command", `{"cmd":"a"} {"cmd":"b"}`), "failed to parse function arguments: trailing characters"},
		{fn("exec_command", `{"cmd":"a","sandbox_permissions":"all"}`), "failed to parse function arguments: unknown variant `all`"},
		{fn("exec_command", `{"cmd":"a\u0000b"}`), "failed to parse function arguments: a command cannot contain a zero byte"},
		{fn("exec_command", `{"cmd":"a","yield_time_ms":"soon"}`), "failed to parse function arguments: invalid type"},
		{fn("write_stdin", `{}`), "failed to parse function arguments: missing field `session_id`"},
		{fn("write_stdin", `{"session_id":1.5}`), "failed to parse function arguments: invalid session id"},
		{fn("update_plan", `{"plan":[{"step":"a","status":"done"}]}`), "failed to parse function arguments: unknown variant `done`"},
		{fn("request_user_input", `{"questions":[]}`), "failed to parse function arguments: 0 questions"},
		{fn("no_such_tool", `{}`), "unsupported call: no_such_tool"},
		{&heddlev1.ToolCall{Name: "exec_command", Namespace: "ns", Arguments: `{"cmd":"x"}`}, "unsupported call: exec_command"},
		{&heddlev1.ToolCall{Name: "other", Freeform: true}, "unsupported custom tool call: other"},
		{&heddlev1.ToolCall{Name: "exec_command", Freeform: true, Arguments: "ls"}, "unsupported custom tool call: exec_command"},
	}
	for _, tt := range tests {
		call, err := Parse(tt.call)
		var te *Error
		if !errors.As(err, &te) || call != nil || !strings.HasPrefix(te.Output, tt.want) {
			t.Errorf("Parse(%v) = %v, %v; want %q", tt.call, call, err, tt.want)
		}
	}
}

func TestPatchInCommand(t *testing.T) {
	const body = "*** Begin Patch\n*** Add File: a\n+x $HOME `y` \\n\n*** End Patch\n"
	tests := []struct {
		name, cmd, patch, dir string
		ok                    bool
	}{
		{"heredoc", "apply_patch <<'EOF'\n" + body + "EOF\n", body, "", true},
		{"no newline at end", "apply_patch <<'EOF'\n" + body + "EOF", body, "", true},
		{"double quotes", "apply_patch <<\"E\"\n" + body + "E\n", body, "", true},
		{"cd", "cd sub/dir && apply_patch <<'EOF'\n" + body + "EOF\n", body, "sub/dir", true},
		{"cd quoted", "cd 'my dir' && applypatch <<'EOF'\n" + body + "EOF\n", body, "my dir", true},
		{"argument", "apply_patch '" + body + "'", body, "", true},
		{"unquoted, nothing to expand", "apply_patch <<EOF\n+a\\\\b\nEOF\n", "+a\\b\n", "", true},
		{"unquoted with expansion", "apply_patch <<EOF\n+$HOME\nEOF\n", "", "", false},
		{"another command", "echo apply_patch", "", "", false},
		{"and more", "apply_patch <<'EOF'\nx\nEOF\necho done", "", "", false},
		{"pipe", "apply_patch <<'EOF' | tee log\nx\nEOF\n", "", "", false},
		{"or", "cd x || apply_patch <<'EOF'\nx\nEOF\n", "", "", false},
		{"background", "apply_patch <<'EOF' &\nx\nEOF\n", "", "", false},
		{"cd with expansion", "cd $D && apply_patch <<'EOF'\nx\nEOF\n", "", "", false},
		{"does not parse", "apply_patch <<'EOF'\n((", "", "", false},
		{"redirected", "apply_patch < file", "", "", false},
		{"substitution", "apply_patch \"$(cat p)\"", "", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			patch, dir, ok := PatchInCommand(tt.cmd)
			if patch != tt.patch || dir != tt.dir || ok != tt.ok {
				t.Errorf("got %q, %q, %v", patch, dir, ok)
			}
		})
	}
}

func FuzzPatchInCommand(f *testing.F) {
	f.Add("cd a && apply_patch <<'EOF'\nx\nEOF\n")
	f.Add("apply_patch <<-E\n\tx\n\tE\n")
	f.Fuzz(func(t *testing.T, cmd string) {
		if _, _, ok := PatchInCommand(cmd); ok && !strings.Contains(cmd, "apply") {
			t.Errorf("found a patch in %q", cmd)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("exec_command", `{"cmd":"ls","yield_time_ms":1e99}`)
	f.Add("write_stdin", `{"session_id":9007199254740993}`)
	f.Fuzz(func(t *testing.T, name, args string) {
		call, err := Parse(fn(name, args))
		if (call == nil) == (err == nil) {
			t.Errorf("Parse(%q, %q) = %v, %v", name, args, call, err)
		}
	})
}

func TestFormatExec(t *testing.T) {
	zero := int32(0)
	got := FormatExec(ExecResult{ChunkID: "0a1b2c", Wall: 1500 * time.Millisecond, Exit: &zero, Output: []byte("out\n")})
	want := "Chunk ID: 0a1b2c\nWall time: 1.5000 seconds\nProcess exited with code 0\nOriginal token count: 1\nOutput:\nout\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	got = FormatExec(ExecResult{SessionID: 77, Output: []byte("abc"), Total: 4000})
	want = "Wall time: 0.0000 seconds\nProcess running with session ID 77\nOriginal token count: 1000\nOutput:\nabc"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if id := NewChunkID(); !regexp.MustCompile(`^[0-9a-f]{6}$`).MatchString(id) {
		t.Errorf("chunk id %q", id)
	}
}

func TestFormatPatch(t *testing.T) {
	got := FormatPatch("Success. Updated the following files:\nA n\n", 210*time.Millisecond)
	if want := "Exit code: 0\nWall time: 0.2 seconds\nOutput:\nSuccess. Updated the following files:\nA n\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTruncate(t *testing.T) {
	long := "HEAD" + strings.Repeat("é🎉", 50000) + "TAIL"
	text, tokens := Truncate([]byte(long), 100)
	if tokens != (len(long)+3)/4 || !strings.HasPrefix(text, "HEAD") || !strings.HasSuffix(text, "TAIL") || !strings.Contains(text, "tokens truncated") {
		t.Errorf("%d tokens, text %q", tokens, text)
	}
	if len(text) > 450 || strings.ContainsRune(text, utf8.RuneError) {
		t.Errorf("%d bytes, a character was cut: %q", len(text), text)
	}
	// F2: bytes that are no UTF-8 do not reach the model as such.
	text, _ = Truncate([]byte("\377\376\200ok\n"), 100)
	if !utf8.ValidString(text) || !strings.HasSuffix(text, "ok\n") {
		t.Errorf("got %q", text)
	}
	if text, n := Truncate(nil, 1); text != "" || n != 0 {
		t.Errorf("got %q, %d", text, n)
	}
}

func FuzzTruncate(f *testing.F) {
	f.Add([]byte("a\xffb\xf0\x9f\x8e\x89"), 1)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		n %= 1000
		text, _ := Truncate(b, n)
		if !utf8.ValidString(text) {
			t.Errorf("not valid: %q", text)
		}
		if n > 0 && len(text) > 3*4*n+64 {
			t.Errorf("%d bytes for %d tokens", len(text), n)
		}
	})
}

func TestSpecs(t *testing.T) {
	extra := model.Tool{Name: "lookup"}
	all := Options{FreeformPatch: true, UpdatePlan: true, ViewImage: true, RequestUserInput: true, WebSearch: model.SearchLive, Escalation: true, Extra: []model.Tool{extra}}
	var names []string
	for _, s := range Specs(all) {
		names = append(names, s.Name)
		if s.Kind != model.ToolFunction || s.Name == "lookup" {
			continue
		}
		raw, err := json.Marshal(s.Parameters)
		if err != nil || !strings.Contains(string(raw), `"type":"object"`) {
			t.Errorf("%s: parameters %s, %v", s.Name, raw, err)
		}
		if s.Description == "" || !all.Offers(s.Name) {
			t.Errorf("%s: no description, or not offered", s.Name)
		}
	}
	want := []string{"exec_command", "write_stdin", "update_plan", "request_user_input", "apply_patch", "view_image", "web_search", "lookup"}
	if !reflect.DeepEqual(names, want) {
		t.Errorf("got %v", names)
	}
	few := Specs(Options{})
	if len(few) != 2 || (Options{}).Offers("update_plan") {
		t.Errorf("got %v", few)
	}
	if _, ok := few[0].Parameters["properties"].(map[string]any)["sandbox_permissions"]; ok {
		t.Error("escalation offered")
	}
}
