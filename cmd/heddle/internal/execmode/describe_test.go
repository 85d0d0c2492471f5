package execmode

import (
	"strings"
	"testing"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// C5: clients read lines of at most 1 MiB.
func TestJSONLinesAreBounded(t *testing.T) {
	for _, out := range []string{"x", "\x01", "\xff", "\"", "\u2028", "<"} {
		item := &heddlev1.Item{Id: "c", Status: heddlev1.ItemStatus_ITEM_STATUS_COMPLETED, Content: &heddlev1.Item_CommandExecution{
			CommandExecution: &heddlev1.CommandExecution{Command: "c", AggregatedOutput: []byte("head\n" + strings.Repeat(out, 1<<20) + "\ntail")}}}
		var b strings.Builder
		newJSONView(&b).event(&heddlev1.Event{Payload: &heddlev1.Event_ItemCompleted{ItemCompleted: &heddlev1.ItemCompleted{Item: item}}})
		if n := b.Len(); n > 1<<20 || !strings.Contains(b.String(), "head") || !strings.Contains(b.String(), "tail") {
			t.Errorf("%q: a line of %d bytes", out, n)
		}
	}
}
