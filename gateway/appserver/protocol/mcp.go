package protocol

import "encoding/json"

// StatusDetail says how much of an MCP server's state is wanted.
type StatusDetail string

// Variants implements the enumeration.
func (StatusDetail) Variants() []string { return []string{"full", "toolsAndAuthOnly"} }

// McpStatusParams list the MCP servers of a thread or of the config.
type McpStatusParams struct {
	Cursor      *string       `wire:"cursor,opt"`
	Limit       *uint32       `wire:"limit,opt"`
	Detail      *StatusDetail `wire:"detail,opt"`
	Thread      *string       `wire:"threadId,opt"`
	ServerName  *string       `wire:"serverName,opt"`
	Environment *string       `wire:"environmentId,opt"`
}

// McpToolCallParams call a tool of a thread's MCP server.
type McpToolCallParams struct {
	ThreadID    string           `wire:"threadId"`
	Server      string           `wire:"server"`
	Tool        string           `wire:"tool"`
	Arguments   *json.RawMessage `wire:"arguments,opt"`
	Meta        *json.RawMessage `wire:"_meta,opt"`
	Environment *string          `wire:"environmentId,opt"`
}

// McpResourceTarget names an account of a hosted app.
type McpResourceTarget struct {
	Connector string  `wire:"connectorId"`
	Link      *string `wire:"linkId"`
}

// McpResourceParams read a resource of an MCP server.
type McpResourceParams struct {
	Thread      *string            `wire:"threadId,opt"`
	Server      string             `wire:"server"`
	URI         string             `wire:"uri"`
	Meta        *Object            `wire:"_meta,opt"`
	Target      *McpResourceTarget `wire:"target,opt"`
	Connector   *string            `wire:"connectorId,opt"`
	OriginCall  *string            `wire:"originCallId,opt"`
	Environment *string            `wire:"environmentId,opt"`
}

// McpLoginParams log in at an MCP server.
type McpLoginParams struct {
	Name         string        `wire:"name"`
	Thread       *string       `wire:"threadId,opt"`
	Scopes       *[]string     `wire:"scopes,opt"`
	Timeout      *int64        `wire:"timeoutSecs,opt"`
	Environment  *string       `wire:"environmentId,opt"`
	Registration *Registration `wire:"clientRegistration,opt"`
}

// Registration says how a client becomes known to an authorization server.
type Registration string

// Variants implements the enumeration.
func (Registration) Variants() []string { return []string{"auto", "cimd", "dcr"} }
