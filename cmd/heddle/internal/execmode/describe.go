package execmode

import (
	"strings"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

type jsonText struct {
	Text string `json:"text"`
}

type jsonCommand struct {
	Command string `json:"command"`
	Output  string `json:"aggregated_output"`
	Exit    *int32 `json:"exit_code"`
	Status  string `json:"status"`
}

type jsonFileChange struct {
	Changes []jsonFile `json:"changes"`
	Status  string     `json:"status"`
}

type jsonFile struct {
	Path string `json:"path"`
	Kind string `json:"kind"`
}

type jsonToolCall struct {
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Arguments any             `json:"arguments"`
	Result    *jsonToolResult `json:"result"`
	Error     *jsonError      `json:"error"`
	Status    string          `json:"status"`
}

type jsonToolResult struct {
	Content    any `json:"content"`
	Meta       any `json:"_meta,omitempty"`
	Structured any `json:"structured_content"`
}

type jsonSearch struct {
	Query string `json:"query"`
}

// describe returns the type and the fields of an item, or nil content for one
// that is not shown in this phase. Text items are shown when they are complete.
func describe(item *heddlev1.Item, completed bool) (kind string, content any) {
	switch c := item.GetContent().(type) {
	case *heddlev1.Item_AgentMessage:
		if completed {
			return "agent_message", jsonText{c.AgentMessage.GetText()}
		}
	case *heddlev1.Item_Reasoning:
		parts := c.Reasoning.GetSummary()
		if len(parts) == 0 {
			parts = c.Reasoning.GetContent()
		}
		if text := strings.Join(parts, "\n\n"); completed && text != "" {
			return "reasoning", jsonText{text}
		}
	case *heddlev1.Item_CommandExecution:
		cmd := c.CommandExecution
		return "command_execution", jsonCommand{protocol.Clip(cmd.GetCommand()), outputText(cmd.GetAggregatedOutput()), cmd.ExitCode, statusWord(item, completed)}
	case *heddlev1.Item_FileChange:
		files := []jsonFile{}
		for _, f := range c.FileChange.GetChanges() {
			files = append(files, jsonFile{f.GetPath(), f.GetKind()})
		}
		return "file_change", jsonFileChange{files, statusWord(item, completed)}
	case *heddlev1.Item_McpToolCall:
		return "mcp_tool_call", toolCall(item, c.McpToolCall, completed)
	case *heddlev1.Item_WebSearch:
		return "web_search", jsonSearch{c.WebSearch.GetQuery()}
	}
	return "", nil
}

// outputText is a command's output as text, cut as for other clients so that no
// line is longer than 1 MiB, whatever its bytes need in JSON.
func outputText(b []byte) string { return protocol.Clip(strings.ToValidUTF8(string(b), "\uFFFD")) }

func toolCall(item *heddlev1.Item, c *heddlev1.McpToolCall, completed bool) jsonToolCall {
	call := jsonToolCall{Server: c.GetServer(), Tool: c.GetTool(), Arguments: c.GetArguments().AsInterface(), Status: statusWord(item, completed)}
	if c.GetResult() != nil {
		r := c.GetResult().AsMap()
		call.Result = &jsonToolResult{Content: r["content"], Meta: r["_meta"], Structured: r["structuredContent"]}
	}
	if c.GetError() != "" {
		call.Error = &jsonError{c.GetError()}
	}
	return call
}

// statusWord has three values for the SDK; a declined action did not succeed.
func statusWord(item *heddlev1.Item, completed bool) string {
	switch {
	case !completed:
		return "in_progress"
	case item.GetStatus() == heddlev1.ItemStatus_ITEM_STATUS_COMPLETED:
		return "completed"
	}
	return "failed"
}
