package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// wireSchemas holds the reference's schemas by method. They are read from the
// file that HEDDLE_WIRE_SCHEMA names; without it messages are not validated,
// and only `make test-wire` sets it.
type wireSchemas struct {
	notifications, requests, responses map[string]*jsonschema.Schema
	// calls are the requests of clients, answers the results of requests to them.
	calls, answers map[string]*jsonschema.Schema
	failure        *jsonschema.Schema
}

// loadWireSchemas compiles the schemas once; nil when there are none to use.
var loadWireSchemas = sync.OnceValues(func() (*wireSchemas, error) {
	name := os.Getenv("HEDDLE_WIRE_SCHEMA")
	if name == "" {
		return nil, nil
	}
	return readWireSchemas(name)
})

func readWireSchemas(name string) (*wireSchemas, error) {
	file, err := os.Open(name) //nolint:gosec // the caller of the tests names it
	if err != nil {
		return nil, err
	}
	defer file.Close()
	doc, err := jsonschema.UnmarshalJSON(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	b := schemaBundle{compiler: jsonschema.NewCompiler(), definitions: member(doc, "definitions")}
	if err := b.compiler.AddResource(bundleURL, doc); err != nil {
		return nil, err
	}
	return b.schemas()
}

const bundleURL = "reference.json"

// schemaBundle is the one file with all definitions.
type schemaBundle struct {
	compiler    *jsonschema.Compiler
	definitions any
	err         error
}

func member(v any, path ...string) any {
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

func (b *schemaBundle) schemas() (*wireSchemas, error) {
	s := &wireSchemas{
		notifications: b.union("ServerNotification"),
		requests:      b.union("ServerRequest"),
		responses:     b.responses("ClientRequest"),
		calls:         b.union("ClientRequest"),
		answers:       b.responses("ServerRequest"),
		failure:       b.compile("#/definitions/JSONRPCError"),
	}
	return s, b.err
}

func (b *schemaBundle) compile(pointer string) *jsonschema.Schema {
	s, err := b.compiler.Compile(bundleURL + pointer)
	b.err = errors.Join(b.err, err)
	return s
}

// variants calls f for each method of a union of messages.
func (b *schemaBundle) variants(union string, f func(i int, method string, variant any)) {
	list, _ := member(b.definitions, union, "oneOf").([]any)
	if len(list) == 0 {
		b.err = errors.Join(b.err, fmt.Errorf("the schema has no %s", union))
	}
	for i, variant := range list {
		names, _ := member(variant, "properties", "method", "enum").([]any)
		for _, name := range names {
			method, _ := name.(string)
			f(i, method, variant)
		}
	}
}

func (b *schemaBundle) union(name string) map[string]*jsonschema.Schema {
	out := map[string]*jsonschema.Schema{}
	b.variants(name, func(i int, method string, _ any) {
		out[method] = b.compile(fmt.Sprintf("#/definitions/%s/oneOf/%d", name, i))
	})
	return out
}

// responses finds the answer of each request: it is named as the parameters
// are, but for a few.
func (b *schemaBundle) responses(union string) map[string]*jsonschema.Schema {
	named := map[string]string{
		"account/logout":            "LogoutAccountResponse",
		"account/rateLimits/read":   "GetAccountRateLimitsResponse",
		"account/usage/read":        "GetAccountTokenUsageResponse",
		"accountSession/list":       "AccountSessionsResponse",
		"config/batchWrite":         "ConfigWriteResponse",
		"config/mcpServer/reload":   "McpServerRefreshResponse",
		"config/value/write":        "ConfigWriteResponse",
		"configRequirements/read":   "ConfigRequirementsReadResponse",
		"memory/reset":              "MemoryResetResponse",
		"remoteControl/status/read": "RemoteControlStatusReadResponse",
		"windowsSandbox/readiness":  "WindowsSandboxReadinessResponse",
		// The schema has no name for it; it writes the config as the others do.
		"modelProvider/default/set": "ConfigWriteResponse",
	}
	out := map[string]*jsonschema.Schema{}
	b.variants(union, func(_ int, method string, variant any) {
		name, ok := named[method]
		if !ok {
			ref, _ := member(variant, "properties", "params", "$ref").(string)
			name = strings.TrimSuffix(ref[strings.LastIndex(ref, "/")+1:], "Params") + "Response"
		}
		switch {
		case member(b.definitions, "v2", name) != nil:
			out[method] = b.compile("#/definitions/v2/" + name)
		case member(b.definitions, name) != nil:
			out[method] = b.compile("#/definitions/" + name)
		}
	})
	return out
}

// wireCheck validates the messages of one connection.
type wireCheck struct {
	t       *testing.T
	schemas *wireSchemas

	mu      sync.Mutex
	pending map[string]wireCall // by the JSON text of the request id
	asked   map[string]string   // method of a request of the server, by the same
	wrong   bool                // requests and answers of the client are wrong on purpose, also those that are not refused
	heddle  bool                // the client asked for what only this server has
	said    map[string]bool
	seen    int // messages that were validated
}

// newWireCheck makes the check of a connection; it checks nothing when there
// are no schemas.
func newWireCheck(t *testing.T) *wireCheck {
	t.Helper()
	schemas, err := loadWireSchemas()
	if err != nil {
		t.Fatalf("schemas of the reference: %v", err)
	}
	return wireCheckWith(t, schemas)
}

func wireCheckWith(t *testing.T, schemas *wireSchemas) *wireCheck {
	t.Helper()
	return &wireCheck{t: t, schemas: schemas, pending: map[string]wireCall{}, asked: map[string]string{}, said: map[string]bool{}}
}

// wireCall is a request of a client.
type wireCall struct {
	method string
	line   []byte
}

type wireHead struct {
	ID     json.RawMessage
	Method string
	Error  json.RawMessage
}

// sent notes what a request of the client asks, so that its answer can be
// validated, and the request too when it is not refused: tests ask wrongly on
// purpose. The client's own answers are validated at once.
func (c *wireCheck) sent(line []byte) {
	var head wireHead
	if json.Unmarshal(line, &head) != nil || head.ID == nil {
		return
	}
	c.mu.Lock()
	if head.Method == "initialize" {
		v, _ := jsonschema.UnmarshalJSON(bytes.NewReader(line))
		c.heddle = member(v, "params", "capabilities", "heddle") != nil
	}
	if head.Method != "" {
		c.pending[string(head.ID)] = wireCall{head.Method, bytes.Clone(line)}
		c.mu.Unlock()
		return
	}
	method := c.asked[string(head.ID)]
	c.mu.Unlock()
	if c.schemas == nil || method == "" || head.Error != nil || c.wrong {
		return
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
	if err == nil {
		err = c.against(c.schemas.answers[method], member(v, "result"))
	}
	c.note("the client's answer to "+method, err)
}

func (c *wireCheck) against(schema *jsonschema.Schema, v any) error {
	if schema == nil {
		return errors.New("the reference has no such message")
	}
	return schema.Validate(v)
}

// received validates one message of the server; a fault fails the test.
func (c *wireCheck) received(line []byte) {
	if c.schemas == nil {
		return
	}
	what, err := c.validate(line)
	c.note(what, err)
}

func (c *wireCheck) note(what string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen++
	if text := fmt.Sprintf("%s: %v", what, err); err != nil && !c.said[text] {
		c.said[text] = true // the same fault of one connection is told once
		c.t.Errorf("not as the schema of the reference has it: %s", text)
	}
}

// finish fails the test when there are schemas and nothing was validated.
func (c *wireCheck) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.schemas != nil && c.seen == 0 {
		c.t.Error("no message of a connection was validated")
	}
}

// validate returns what kind of message it is and how it differs.
func (c *wireCheck) validate(line []byte) (what string, err error) {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
	if err != nil {
		return "message", err
	}
	var head wireHead
	if err := json.Unmarshal(line, &head); err != nil {
		return "message", err
	}
	var schema *jsonschema.Schema
	switch {
	case head.Method != "" && head.ID != nil:
		what, schema = "request "+head.Method, c.schemas.requests[head.Method]
		c.mu.Lock()
		c.asked[string(head.ID)] = head.Method
		c.mu.Unlock()
	case head.Method != "":
		what, schema = "notification "+head.Method, c.schemas.notifications[head.Method]
		if c.added(head.Method) {
			return what, nil
		}
	case head.Error != nil:
		what, schema = "error", c.schemas.failure
	default:
		c.mu.Lock()
		call := c.pending[string(head.ID)]
		c.mu.Unlock()
		if c.added(call.method) {
			return "answer to " + call.method, nil
		}
		if err := c.accepted(call); err != nil {
			return "the request " + call.method + ", which was not refused", err
		}
		what, schema, v = "answer to "+call.method, c.schemas.responses[call.method], member(v, "result")
	}
	return what, c.against(schema, v)
}

// added reports whether a method is none of the reference's, for clients that
// asked for those only.
func (c *wireCheck) added(method string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch method {
	case "thread/events/subscribe", "thread/events/unsubscribe", "thread/events/compacted", "thread/artifacts/list", "thread/artifacts/read", "thread/sandbox/reported":
		return c.heddle
	}
	return false
}

// accepted validates a request that the server did not refuse.
func (c *wireCheck) accepted(call wireCall) error {
	if call.method == "" || c.wrong {
		return nil // told with its answer
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(call.line))
	if err != nil {
		return err
	}
	return c.against(c.schemas.calls[call.method], v)
}
