package protocol

import (
	"encoding/json"
	"testing"
)

func TestToGranted(t *testing.T) {
	for _, row := range []struct{ answer, want string }{
		{`{"permissions":{}}`, `{"network":false,"read":[],"scope":"turn","write":[]}`},
		{`{"permissions":{"network":null,"fileSystem":null},"scope":"session","strictAutoReview":false}`, `{"network":false,"read":[],"scope":"session","write":[]}`},
		{`{"permissions":{"network":{"enabled":true},"fileSystem":{"write":["/a"],"read":null}}}`, `{"network":true,"read":[],"scope":"turn","write":["/a"]}`},
		{`{"permissions":{"fileSystem":{"entries":[{"path":{"type":"path","path":"/a"},"access":"write"},{"path":{"type":"path","path":"/b"},"access":"read"}]}}}`,
			`{"network":false,"read":["/b"],"scope":"turn","write":["/a"]}`},
		{`{"permissions":{"Network":{"enabled":true},"fileSystem":{"Write":["/a"]}}}`, `{"network":false,"read":[],"scope":"turn","write":[]}`},
		{`{"permissions":{"fileSystem":{"write":["/a"],"entries":[{"path":{"type":"path","path":"/a/b"},"access":"deny"}]}}}`, ``},
		{`{"permissions":{"fileSystem":{"entries":[{"path":{"type":"special","value":{"kind":"root"}},"access":"write"}]}}}`, ``},
		{`{"permissions":{"fileSystem":{"entries":[{"path":{"type":"glob_pattern","pattern":"/**"},"access":"write"}]}}}`, ``},
		{`{"permissions":{"network":{"enabled":true}},"strictAutoReview":true}`, ``},
		{`{"permissions":{"network":{"enabled":true}},"scope":"forever"}`, ``},
		{`{"permissions":{"network":{"enabled":"yes"}}}`, ``}, {`{"permissions":{"network":true}}`, ``},
		{`{"permissions":{"fileSystem":{"write":"/a"}}}`, ``}, {`{"permissions":[]}`, ``}, {`{"permissions":null}`, ``},
		{`{"decision":"accept"}`, ``}, {`null`, ``}, {`[]`, ``}, {`"yes"`, ``},
	} {
		v := ToGranted(json.RawMessage(row.answer))
		if v == nil {
			if row.want != "" {
				t.Errorf("%s is unusable", row.answer)
			}
			continue
		}
		if got, err := json.Marshal(v.AsInterface()); err != nil || string(got) != row.want {
			t.Errorf("%s: %s, want %s (%v)", row.answer, got, row.want, err)
		}
	}
}
