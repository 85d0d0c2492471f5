//go:build clients

package e2e

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// referenceSchema writes the schemas of the reference, which it makes itself,
// into the cache and returns the file that has all of them.
func referenceSchema(t *testing.T) string {
	t.Helper()
	dir := npmClient(t, "tui")
	referenceMu.Lock()
	defer referenceMu.Unlock()
	file := filepath.Join(dir, "schema/codex_app_server_protocol.schemas.json")
	if _, err := os.Stat(file); err == nil {
		return file
	}
	made := filepath.Join(dir, "schema.new")
	out, err := runIn(t, dir, time.Minute, filepath.Join(dir, "node_modules/.bin/codex"), "app-server", "generate-json-schema", "--experimental", "--out", made)
	if err == nil {
		err = os.Rename(made, filepath.Dir(file))
	}
	if err != nil {
		t.Fatalf("the reference did not write its schemas: %v\n%s", err, out)
	}
	return file
}

// referenceMu keeps tests that run at the same time from making the schemas twice.
var referenceMu sync.Mutex

// TestClientReferenceSchema makes the schemas and shows that they tell a
// message that is wrong.
func TestClientReferenceSchema(t *testing.T) {
	schemas, err := readWireSchemas(referenceSchema(t))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(schemas.responses); n < 150 {
		t.Errorf("only %d methods have answers in the schema", n)
	}
	c := wireCheckWith(t, schemas)
	c.sent([]byte(`{"id":1,"method":"thread/loaded/list","params":{}}`))
	c.sent([]byte(`{"id":"2","method":"thread/start","params":{}}`))
	c.sent([]byte(`{"id":5,"method":"thread/read","params":{"threadId":7}}`))
	for _, row := range []struct {
		line string
		ok   bool
	}{
		{`{"id":1,"result":{"data":[],"nextCursor":null}}`, true},
		{`{"id":1,"result":{"data":[7],"nextCursor":null}}`, false},
		{`{"id":"2","result":{}}`, false},
		{`{"id":3,"result":{}}`, false},
		{`{"id":4,"error":{"code":-32600,"message":"no"}}`, true},
		{`{"id":4,"error":{"code":"x","message":"no"}}`, false},
		{`{"method":"thread/closed","params":{"threadId":"x"}}`, true},
		{`{"method":"thread/closed","params":{}}`, false},
		{`{"method":"thread/unheardOf","params":{}}`, false},
		{`{"id":0,"method":"item/commandExecution/requestApproval","params":{}}`, false},
		{`{"id":0`, false},
		{`{"id":5,"result":{"thread":{}}}`, false},
	} {
		if what, err := c.validate([]byte(row.line)); (err == nil) != row.ok {
			t.Errorf("%s (%s): %v", row.line, what, err)
		}
	}
}
