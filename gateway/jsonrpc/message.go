// Package jsonrpc carries JSON-RPC messages without the jsonrpc member over any
// framed stream. It knows no method.
//
// It guarantees that a request id is echoed with its exact type, that a response
// leaves in a write of its own, that responses are never dropped, and that a
// peer that does not read costs a bounded amount of memory. A Conn is safe for
// concurrent use.
package jsonrpc

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// Error codes of the protocol.
const (
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternal       = -32603
	CodeOverloaded     = -32001
)

// Error is the error member of a response.
type Error struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// ID is a request id: a JSON string or integer, kept as its JSON text so that
// it is echoed as it came. The zero ID is absent.
type ID struct{ text string }

// IntID makes an integer id.
func IntID(n int64) ID { return ID{text: strconv.FormatInt(n, 10)} }

// ParseID accepts a JSON string or an integer that fits 64 bits.
func ParseID(raw []byte) (ID, bool) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return ID{}, false
	}
	if raw[0] == '"' {
		return ID{text: string(raw)}, true
	}
	if _, err := strconv.ParseInt(string(raw), 10, 64); err != nil || raw[0] == '+' {
		return ID{}, false
	}
	return ID{text: string(raw)}, true
}

// Int returns the id as an integer, if it is one.
func (id ID) Int() (int64, bool) {
	n, err := strconv.ParseInt(id.text, 10, 64)
	return n, err == nil
}

// String returns the id's JSON text.
func (id ID) String() string { return id.text }

// Kind tells the four sorts of messages apart.
type Kind int

// Kinds of messages.
const (
	Request Kind = iota + 1
	Notification
	Response
	ErrorResponse
)

// Message is one parsed message. Raw members alias the parsed line.
type Message struct {
	Kind   Kind
	ID     ID
	Method string
	// Params is nil when the member is absent.
	Params json.RawMessage
	Result json.RawMessage
	Error  json.RawMessage
}

// Parse reads one message. It reports false for everything that the protocol
// ignores without an answer: text that is not a JSON object, an id that is
// neither string nor integer, an object without method, result and error.
func Parse(line []byte) (Message, bool) {
	var members map[string]json.RawMessage
	if json.Unmarshal(line, &members) != nil || members == nil {
		return Message{}, false
	}
	m := Message{Params: members["params"], Result: members["result"], Error: members["error"]}
	if raw, ok := members["id"]; ok {
		if m.ID, ok = ParseID(raw); !ok {
			return Message{}, false
		}
	}
	if raw, ok := members["method"]; ok {
		if json.Unmarshal(raw, &m.Method) != nil || string(raw) == "null" {
			return Message{}, false
		}
		m.Kind = Request
		if m.ID.text == "" {
			m.Kind = Notification
		}
		return m, true
	}
	switch {
	case m.ID.text == "":
		return Message{}, false
	case m.Result != nil:
		m.Kind = Response
	case m.Error != nil:
		m.Kind = ErrorResponse
	default:
		return Message{}, false
	}
	return m, true
}

// Marshal is json.Marshal without HTML escapes.
func Marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// EncodeResult makes an answer.
func EncodeResult(id ID, result any) []byte {
	body, err := Marshal(result)
	if err != nil {
		return encodeError(id, &Error{Code: CodeInternal, Message: "failed to encode the result: " + err.Error()})
	}
	out := make([]byte, 0, len(body)+len(id.text)+24)
	out = append(out, `{"id":`...)
	out = append(out, id.text...)
	out = append(out, `,"result":`...)
	out = append(out, body...)
	return append(out, '}')
}

func encodeError(id ID, e *Error) []byte {
	body, err := Marshal(e)
	if err != nil {
		body, _ = Marshal(&Error{Code: e.Code, Message: e.Message})
	}
	out := append([]byte(`{"error":`), body...)
	out = append(out, `,"id":`...)
	out = append(out, id.text...)
	return append(out, '}')
}

// EncodeRequest makes a request to the peer.
func EncodeRequest(id ID, method string, params any) ([]byte, error) {
	return Marshal(struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params any             `json:"params"`
	}{json.RawMessage(id.text), method, params})
}

// HeadID finds the id of a message of which only the beginning is known.
func HeadID(head []byte) (ID, bool) {
	dec := json.NewDecoder(bytes.NewReader(head))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return ID{}, false
	}
	for {
		key, err := dec.Token()
		if err != nil {
			return ID{}, false
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return ID{}, false
		}
		if key == "id" {
			return ParseID(value)
		}
	}
}
