package agent

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// An item that is closed since its end was lost says so.
func TestLostItemsSayWhy(t *testing.T) {
	why := &heddlev1.ActionError{Code: "not_recorded", Message: lostText(errors.New("no space left on device"))}
	for _, item := range []*heddlev1.Item{
		{Content: &heddlev1.Item_CommandExecution{CommandExecution: &heddlev1.CommandExecution{}}},
		{Content: &heddlev1.Item_FileChange{FileChange: &heddlev1.FileChange{}}},
		{Content: &heddlev1.Item_McpToolCall{McpToolCall: &heddlev1.McpToolCall{}}},
	} {
		setError(item, why)
		if text := protojson.Format(item); !strings.Contains(text, "could not be recorded: no space left on device") {
			t.Errorf("%s", text)
		}
	}
	item := &heddlev1.Item{Content: &heddlev1.Item_DynamicToolCall{DynamicToolCall: &heddlev1.DynamicToolCall{}}}
	if setError(item, why); item.GetDynamicToolCall().Success == nil || item.GetDynamicToolCall().GetSuccess() {
		t.Errorf("%v", item)
	}
}
