package appserver

import (
	"fmt"

	"github.com/heddle-dev/heddle/gateway/jsonrpc"
)

// Limits bound what the clients of a Server can make it hold. A zero field means
// its default. What is over a bound is refused with -32001; an answer to a
// request that had an effect is never replaced by a refusal.
type Limits struct {
	// Requests of one connection that are worked on or whose answers wait to be
	// read.
	Requests int
	// ConnectionBytes of one connection's requests that are worked on and answers
	// that wait to be read. Small answers may go past it, as far as Requests lets
	// them.
	ConnectionBytes int
	// Pages is how many answers that may be large are made at a time for one
	// connection.
	Pages int
	// Threads that are loaded.
	Threads int
	// MessageBytes of one message that is read.
	MessageBytes int
	// Connections of one listener.
	Connections int
}

// smallAnswer is an answer that is written also past ConnectionBytes.
const smallAnswer = 64 << 10

// WithDefaults fills what is not set.
func (l Limits) WithDefaults() Limits {
	for _, f := range []struct {
		to    *int
		value int
	}{
		{&l.Requests, 512}, {&l.ConnectionBytes, 32 << 20}, {&l.Pages, 8}, {&l.Threads, 4096}, {&l.MessageBytes, jsonrpc.MaxMessage}, {&l.Connections, 256},
	} {
		if *f.to == 0 {
			*f.to = f.value
		}
	}
	return l
}

// Check refuses bounds with which no client could work.
func (l Limits) Check() error {
	for _, f := range []struct {
		name       string
		value, min int
	}{
		{"requests", l.Requests, 1}, {"connection memory", l.ConnectionBytes, 1 << 20}, {"pages", l.Pages, 1}, {"threads", l.Threads, 1},
		{"message size", l.MessageBytes, 64 << 10}, {"connections", l.Connections, 1},
	} {
		if f.value != 0 && f.value < f.min {
			return fmt.Errorf("limit of %s: %d is less than %d", f.name, f.value, f.min)
		}
	}
	return nil
}

func overloaded() *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeOverloaded, Message: "Server overloaded; retry later."}
}

// large reports whether answers of a method may be large.
func large(method string) bool {
	switch method {
	case "thread/list", "thread/read", "thread/resume", "thread/fork", "thread/turns/list", "thread/items/list", "thread/items/read", "thread/timeline/list",
		"thread/search", "thread/searchOccurrences", "thread/artifacts/list", "thread/artifacts/read", "fs/readFile", "fs/readDirectory", "fuzzyFileSearch",
		"config/read", "skills/list", "mcpServerStatus/list", "model/list":
		return true
	}
	return false
}

// room waits for a turn to make a large answer and returns how to give it back.
func (c *client) room() (release func(), err error) {
	select {
	case c.pages <- struct{}{}:
		return func() { <-c.pages }, nil
	case <-c.ctx.Done():
		return nil, c.ctx.Err()
	}
}

// full reports whether the connection holds so much that a further request of a
// size is refused. c.mu is held.
func (c *client) full(size int) bool {
	answers, bytes := c.conn.Backlog()
	held := bytes + c.asking
	return c.inFlight+answers >= c.srv.limits.Requests || held > 0 && held+size > c.srv.limits.ConnectionBytes
}
