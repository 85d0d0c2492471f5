package agent

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// errAnswerLost fails a turn whose last answer nobody can read.
var errAnswerLost = errors.New("what the model said last was lost: the store took no writes")

// lostText says of an item why nobody knows how it ended.
func lostText(lost error) string {
	if lost == nil {
		return "its end could not be recorded"
	}
	return fmt.Sprintf("its end could not be recorded: %v", lost)
}

// setError gives an item that failed its cause, where its kind has room for one.
func setError(item *heddlev1.Item, why *heddlev1.ActionError) {
	switch c := item.GetContent().(type) {
	case *heddlev1.Item_CommandExecution:
		c.CommandExecution.Error = why
	case *heddlev1.Item_FileChange:
		c.FileChange.Error = why
	case *heddlev1.Item_McpToolCall:
		c.McpToolCall.Error = why.GetMessage()
	case *heddlev1.Item_DynamicToolCall:
		c.DynamicToolCall.Success = proto.Bool(false)
	}
}

// notify tells the clients of the thread what its log cannot take.
func (t *turn) notify(message string) {
	if t.agent.cfg.Notify != nil {
		t.agent.cfg.Notify(t.lt.id, message)
	}
}

// where names the home in messages.
func (a *Agent) where() string {
	if a.cfg.Home == "" {
		return "this control plane"
	}
	return a.cfg.Home
}
