package scripted

import (
	"fmt"
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/agent/model"
	"github.com/heddle-dev/heddle/controlplane/agent/model/modeltest"
)

func TestSuite(t *testing.T) {
	modeltest.Run(t, func(t *testing.T, a modeltest.Answer) model.Client {
		t.Helper()
		steps := fmt.Sprintf("      - say: [%s]\n", strings.Join(a.Text, ", "))
		if a.Call != "" {
			steps += fmt.Sprintf("      - {call: %s, id: call_1, args: {a: 1}}\n", a.Call)
		}
		if a.Hang {
			steps += "      - wait: 1h\n"
		}
		if a.Fails {
			steps += "      - fail: cut\n"
		}
		return New(script(t, "replies:\n  - repeat: true\n    steps:\n"+steps))
	})
}
