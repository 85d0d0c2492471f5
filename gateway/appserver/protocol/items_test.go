package protocol

import (
	"encoding/json"
	"strings"
	"testing"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"google.golang.org/protobuf/types/known/structpb"
)

// Members that clients of the reference find are there, null where there is
// nothing to say.
func TestMembersOfItems(t *testing.T) {
	web := func(action map[string]any) *heddlev1.Item {
		a, err := structpb.NewStruct(action)
		if err != nil {
			t.Fatal(err)
		}
		return &heddlev1.Item{Content: &heddlev1.Item_WebSearch{WebSearch: &heddlev1.WebSearch{Action: a}}}
	}
	command := &heddlev1.Item_CommandExecution{CommandExecution: &heddlev1.CommandExecution{Command: "touch x"}}
	for name, row := range map[string]struct {
		item *heddlev1.Item
		has  string
	}{
		"a search":         {web(map[string]any{"type": "search", "query": "q"}), `"action":{"queries":null,"query":"q","type":"search"}`},
		"a page":           {web(map[string]any{"type": "open_page", "url": "u"}), `"action":{"type":"openPage","url":"u"}`},
		"a place in it":    {web(map[string]any{"type": "find_in_page", "url": "u"}), `"action":{"pattern":null,"type":"findInPage","url":"u"}`},
		"something new":    {web(map[string]any{"type": "dance", "to": "music"}), `"action":{"type":"other"}`},
		"what was refused": {&heddlev1.Item{Status: heddlev1.ItemStatus_ITEM_STATUS_DECLINED, CompletedAtMs: 5, Content: command}, `"durationMs":null`},
		"what ran":         {&heddlev1.Item{Status: heddlev1.ItemStatus_ITEM_STATUS_COMPLETED, CompletedAtMs: 5, Content: command}, `"durationMs":0`},
		"what was moved": {&heddlev1.Item{Content: &heddlev1.Item_FileChange{FileChange: &heddlev1.FileChange{Changes: []*heddlev1.FileUpdate{
			{Path: "/a", Kind: "update", Diff: "@@\n", MovePath: "/b"},
		}}}}, `"diff":"@@\n\n\nMoved to: /b"`},
	} {
		out, err := json.Marshal(FromItem(row.item, ItemOptions{}))
		if err != nil || !strings.Contains(string(out), row.has) {
			t.Errorf("%s: %s %v; want %s", name, out, err, row.has)
		}
	}
}
