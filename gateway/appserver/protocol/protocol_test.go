package protocol

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func TestDecodeErrors(t *testing.T) {
	cases := []struct {
		dst    any
		params string
		want   string
	}{
		{&ThreadReadParams{}, `{}`, "missing field `threadId`"},
		{&ThreadReadParams{}, `{"threadId":7}`, "invalid type: integer `7`, expected a string"},
		{&ThreadReadParams{}, `{"threadId":null}`, "invalid type: null, expected a string"},
		{&ThreadReadParams{}, `{"threadId":1.5}`, "invalid type: floating point `1.5`, expected a string"},
		{&ThreadReadParams{}, `{"threadId":[]}`, "invalid type: sequence, expected a string"},
		{&ThreadReadParams{}, `{"threadId":{}}`, "invalid type: map, expected a string"},
		{&ThreadReadParams{}, `{"threadId":true}`, "invalid type: boolean `true`, expected a string"},
		{&ThreadReadParams{}, `{"threadId":7,"threadId":"b"}`, ""},
		{&ThreadReadParams{}, `{"threadId":"a","includeTurns":"yes"}`, `invalid type: string "yes", expected a boolean`},
		{&ThreadReadParams{}, `{"threadId":"a","includeTurns":null}`, "invalid type: null, expected a boolean"},
		{&ThreadReadParams{}, `[]`, "invalid type: sequence, expected struct ThreadReadParams"},
		{&ThreadReadParams{}, `{"threadId":"a","unknown":[1]}`, ""},
		{&ThreadListParams{}, `{"limit":-1}`, "invalid value: integer `-1`, expected u32"},
		{&ThreadListParams{}, `{"limit":4294967296}`, "invalid value: integer `4294967296`, expected u32"},
		{&ThreadListParams{}, `{"limit":"5"}`, `invalid type: string "5", expected u32`},
		{&ThreadListParams{}, `{"sortDirection":"up"}`, "unknown variant `up`, expected `asc` or `desc`"},
		{&ThreadListParams{}, `{"cwd":5}`, "data did not match any variant of untagged enum ThreadListCwdFilter"},
		{&ThreadListParams{}, `{"cwd":["/a","/b"]}`, ""},
		{&ThreadListParams{}, `{"cwd":null,"limit":null,"sourceKinds":["cli"]}`, ""},
		{&ThreadStartParams{}, `{"approvalPolicy":"sometimes"}`, "unknown variant `sometimes`, expected one of `untrusted`, `on-request`, `granular`, `never`"},
		{&ThreadStartParams{}, `{"approvalPolicy":{"granular":{"rules":true}}}`, "missing field `mcp_elicitations`"},
		{&ThreadStartParams{}, `{"approvalPolicy":{"granular":{"mcp_elicitations":true,"rules":true,"sandbox_approval":false}}}`, ""},
		{&ThreadStartParams{}, `{"approvalPolicy":7}`, "invalid type: integer `7`, expected string or map"},
		{&TurnStartParams{}, `{"threadId":"a","input":[{"text":"x"}]}`, "missing field `type`"},
		{&TurnStartParams{}, `{"threadId":"a","input":[{"type":"smell"}]}`, "unknown variant `smell`, expected one of `text`, `image`, `localImage`, `audio`, `localAudio`, `skill`, `mention`"},
		{&TurnStartParams{}, `{"threadId":"a","input":"x"}`, `invalid type: string "x", expected a sequence`},
		{&TurnStartParams{}, `{"threadId":"a","input":[{"type":"text"}]}`, "missing field `text`"},
		{&TurnStartParams{}, `{"threadId":"a","input":[],"sandboxPolicy":{"type":"workspaceWrite","writableRoots":["x"]}}`, "AbsolutePathBuf deserialized without a base path"},
		{&TurnStartParams{}, `{"threadId":"a","input":[],"sandboxPolicy":{"type":"externalSandbox","networkAccess":"no"}}`, "unknown variant `no`, expected `restricted` or `enabled`"},
		{&TurnStartParams{}, `{"threadId":"a","input":[],"collaborationMode":{"mode":"plan","settings":{}}}`, "missing field `model`"},
		{&TurnSteerParams{}, `{"threadId":"a","input":[]}`, "missing field `expectedTurnId`"},
		{&ExecParams{}, `{"command":["a",1]}`, "invalid type: integer `1`, expected a string"},
		{&ExecParams{}, `{"command":["a"],"size":{"rows":70000,"cols":1}}`, "invalid value: integer `70000`, expected u16"},
		{&ExecParams{}, `{"command":["a"],"env":{"A":null,"B":"c"}}`, ""},
	}
	for _, c := range cases {
		_, err := Decode(json.RawMessage(c.params), c.dst)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%T %s:\n got %q\nwant %q", c.dst, c.params, got, c.want)
		}
	}
	if _, err := Decode(nil, &PageParams{}); err == nil || err.Error() != "missing field `params`" {
		t.Errorf("absent params: %v", err)
	}
}

func TestDecodeReportsExperimentalMembers(t *testing.T) {
	for params, want := range map[string]string{
		`{}`:                               "",
		`{"dynamicTools":null}`:            "",
		`{"dynamicTools":[]}`:              "dynamicTools",
		`{"experimentalRawEvents":false}`:  "",
		`{"experimentalRawEvents":true}`:   "experimentalRawEvents",
		`{"runtimeWorkspaceRoots":["/a"]}`: "runtimeWorkspaceRoots",
	} {
		used, err := Decode(json.RawMessage(params), &ThreadStartParams{})
		if err != nil || strings.Join(used, " ") != want {
			t.Errorf("%s: %v %v, want %q", params, used, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"threadId":"a","input":[{"type":"text","text":"x","text_elements":[]}],"sandboxPolicy":{"type":"readOnly"}}`))
	f.Add([]byte(`{"approvalPolicy":{"granular":{}},"config":{"a.b":[1]}}`))
	f.Add([]byte(`{"command":["x"],"env":{"A":null},"size":{"rows":1,"cols":2},"timeoutMs":-1}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) {
			return
		}
		for _, dst := range []any{&TurnStartParams{}, &ThreadStartParams{}, &ThreadListParams{}, &ItemsListParams{}, &ExecParams{}, &InitializeParams{}} {
			if _, err := Decode(raw, dst); err != nil && err.Error() == "" {
				t.Error("an error without a text")
			}
		}
	})
}

func TestClip(t *testing.T) {
	for _, s := range []string{
		strings.Repeat("x", 5000), strings.Repeat("\u00e9", 5000), strings.Repeat("\x01", 5000), strings.Repeat("\n\"", 5000), strings.Repeat("\U0001F389", 3000),
	} {
		got := ClipTo(s, 4096)
		data, err := json.Marshal(got)
		if err != nil || len(data) > 4096+2 {
			t.Errorf("%d bytes when encoded, %v", len(data), err)
		}
		if !utf8.ValidString(got) || !strings.Contains(got, "omitted") {
			t.Errorf("clipped to %.60q...", got)
		}
	}
	if s := strings.Repeat("x", 4000); ClipTo(s, 4096) != s {
		t.Error("a short text was cut")
	}
}

func TestSandboxForms(t *testing.T) {
	for in, want := range map[string]string{
		`{"type":"readOnly"}`:                                  `{"type":"readOnly","networkAccess":false}`,
		`{"type":"readOnly","networkAccess":true}`:             `{"type":"readOnly","networkAccess":true}`,
		`{"type":"dangerFullAccess"}`:                          `{"type":"dangerFullAccess"}`,
		`{"type":"externalSandbox","networkAccess":"enabled"}`: `{"networkAccess":"enabled","type":"externalSandbox"}`,
		`{"type":"workspaceWrite","writableRoots":["/a"]}`:     `{"type":"workspaceWrite","writableRoots":["/a"],"networkAccess":false,"excludeTmpdirEnvVar":false,"excludeSlashTmp":false}`,
		`{"type":"workspaceWrite","networkAccess":true}`:       `{"type":"workspaceWrite","writableRoots":[],"networkAccess":true,"excludeTmpdirEnvVar":false,"excludeSlashTmp":false}`,
		`{"type":"workspaceWrite","excludeSlashTmp":true}`:     `{"type":"workspaceWrite","writableRoots":[],"networkAccess":false,"excludeTmpdirEnvVar":false,"excludeSlashTmp":true}`,
	} {
		var p SandboxPolicy
		if err := p.decodeWire([]byte(in)); err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		out, err := json.Marshal(FromSandbox(ToSandbox(&p)))
		if err != nil || string(out) != want {
			t.Errorf("%s:\n got %s\nwant %s", in, out, want)
		}
	}
}

func TestErrorInfo(t *testing.T) {
	status := int32(503)
	for want, e := range map[string]*heddlev1.TurnError{
		`{"httpConnectionFailed":{"httpStatusCode":503}}`:        {Kind: "httpConnectionFailed", HttpStatus: &status},
		`{"responseStreamDisconnected":{"httpStatusCode":null}}`: {Kind: "responseStreamDisconnected"},
		`"contextWindowExceeded"`:                                {Kind: "contextWindowExceeded"},
		`"other"`:                                                {Kind: "somethingNew"},
	} {
		got, err := json.Marshal(FromError(e).CodexErrorInfo)
		if err != nil || string(got) != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
