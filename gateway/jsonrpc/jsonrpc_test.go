package jsonrpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
)

func TestParse(t *testing.T) {
	cases := map[string]struct {
		kind Kind
		id   string
	}{
		`{"id":1,"method":"a","params":{}}`:        {Request, "1"},
		`{"id":-9,"method":"a"}`:                   {Request, "-9"},
		`{"id":"x\u00e9","method":"a"}`:            {Request, `"x\u00e9"`},
		`{"jsonrpc":"2.0","id":0,"method":"a"}`:    {Request, "0"},
		`{"method":"a"}`:                           {Notification, ""},
		`{"id":1,"result":null}`:                   {Response, "1"},
		`{"id":1,"error":{"code":1}}`:              {ErrorResponse, "1"},
		`{"id":1}`:                                 {},
		`{"id":null,"method":"a"}`:                 {},
		`{"id":1.5,"method":"a"}`:                  {},
		`{"id":1e3,"method":"a"}`:                  {},
		`{"id":99999999999999999999,"method":"a"}`: {},
		`{"id":true,"method":"a"}`:                 {},
		`{"id":1,"Method":"a"}`:                    {},
		`{"method":null}`:                          {},
		`[{"id":1,"method":"a"}]`:                  {},
		`null`:                                     {},
		`{`:                                        {},
		``:                                         {},
	}
	for line, want := range cases {
		m, ok := Parse([]byte(line))
		if ok != (want.kind != 0) || m.Kind != want.kind || ok && m.ID.String() != want.id {
			t.Errorf("%s: %v %q, want %v %q", line, m.Kind, m.ID, want.kind, want.id)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"id":1,"method":"a","params":{"x":[1,{}]}}`))
	f.Add([]byte(`{"id":"a","result":[]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, ok := Parse(line)
		if !ok || m.Kind == Notification {
			return
		}
		out := EncodeResult(m.ID, map[string]int{"x": 1})
		back, ok := Parse(out)
		if !ok || back.ID != m.ID || back.Kind != Response {
			t.Errorf("id %s does not survive: %s", m.ID, out)
		}
		if bytes.ContainsRune(out, '\n') && !strings.Contains(m.ID.String(), "\n") {
			t.Errorf("an answer has a line break: %q", out)
		}
	})
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("{}\n\n  \nabc\nlast"), uint8(5))
	f.Fuzz(func(t *testing.T, in []byte, limit uint8) {
		l := NewLines(bytes.NewReader(in), io.Discard, nil)
		l.limit = int(limit%64) + 1
		for range len(in) + 2 {
			line, err := l.Read()
			var large *TooLargeError
			switch {
			case errors.As(err, &large):
			case err != nil:
				return
			case len(line) > l.limit || len(bytes.TrimSpace(line)) == 0:
				t.Fatalf("line %q with limit %d", line, l.limit)
			}
		}
		t.Fatal("the reader does not end")
	})
}

func TestLinesSkipWhatIsTooLarge(t *testing.T) {
	l := NewLines(strings.NewReader("first\n"+strings.Repeat("x", 200_000)+"\nlast"), io.Discard, nil)
	l.limit = 100_000
	var got []string
	for {
		line, err := l.Read()
		var large *TooLargeError
		if errors.As(err, &large) {
			got = append(got, fmt.Sprintf("too large, head %d", len(large.Head)))
			continue
		}
		if err != nil {
			break
		}
		got = append(got, strings.TrimSpace(string(line)))
	}
	if s := fmt.Sprint(got); s != "[first too large, head 4096 last]" {
		t.Error(s)
	}
}

func TestHeadID(t *testing.T) {
	for head, want := range map[string]string{
		`{"id":7,"method":"x","params":{"a":"bbbb`: "7",
		`{"method":"x","id":"q","params":{"a`:      `"q"`,
		`{"params":{"a":"bbbbbbb`:                  "",
		`nonsense`:                                 "",
	} {
		if id, _ := HeadID([]byte(head)); id.String() != want {
			t.Errorf("%s: %q, want %q", head, id, want)
		}
	}
}

// recorder is a stream whose writes can be held.
type recorder struct {
	hold   chan struct{}
	mu     sync.Mutex
	writes [][]string
	wrote  chan struct{}
}

func (r *recorder) Read() ([]byte, error) { select {} }
func (r *recorder) Close() error          { return nil }

func (r *recorder) Write(messages [][]byte) error {
	<-r.hold
	r.mu.Lock()
	defer r.mu.Unlock()
	var w []string
	for _, m := range messages {
		w = append(w, string(m))
	}
	r.writes = append(r.writes, w)
	r.wrote <- struct{}{}
	return nil
}

func newRecorder() *recorder {
	return &recorder{hold: make(chan struct{}), wrote: make(chan struct{}, 1000)}
}

func TestAnswersAreWrittenAlone(t *testing.T) {
	r := newRecorder()
	c := NewConn(r)
	defer c.Close()
	c.Offer("", []byte("first"))
	for i := range 3 {
		if err := c.Notify(t.Context(), fmt.Appendf(nil, "n%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	answered := c.Respond(IntID(1), json.RawMessage(`"yes"`))
	c.Offer("", []byte("n3"))
	c.Offer("", []byte("n4"))
	close(r.hold)
	<-answered
	c.Flush(t.Context())
	r.mu.Lock()
	defer r.mu.Unlock()
	// The first write takes what was queued when the writer woke.
	var flat []string
	for _, w := range r.writes {
		if len(w) > 1 && strings.Contains(strings.Join(w, ""), `"result"`) {
			t.Errorf("an answer shares its write: %q", w)
		}
		flat = append(flat, w...)
	}
	if got := strings.Join(flat, " "); got != `first n0 n1 n2 {"id":1,"result":"yes"} n3 n4` {
		t.Error(got)
	}
}

func TestOffersMergeUnderBacklogAndAreBounded(t *testing.T) {
	r := newRecorder()
	c := NewConn(r)
	defer c.Close()
	big := strings.Repeat("x", offerMerge)
	c.Offer("", []byte(big))
	c.Offer("", []byte(big))
	for i := range 100 {
		c.Offer("status", fmt.Appendf(nil, "status %d", i))
	}
	c.mu.Lock()
	n := len(c.queue)
	c.mu.Unlock()
	if n > 3 {
		t.Errorf("%d messages wait", n)
	}
	answered := c.Respond(IntID(1), "kept")
	for range 100 {
		c.Offer("", []byte(big))
	}
	c.mu.Lock()
	if c.offers > offerHigh || c.bytes > offerHigh+2*offerMerge {
		t.Errorf("%d bytes of offers wait, %d in all", c.offers, c.bytes)
	}
	c.mu.Unlock()
	if c.Lost() == 0 {
		t.Error("nothing gave way")
	}
	close(r.hold)
	<-answered
}

func TestNotifyWaitsForRoom(t *testing.T) {
	r := newRecorder()
	c := NewConn(r)
	sent := make(chan int, 1)
	go func() {
		n := 0
		for c.Notify(t.Context(), make([]byte, 32<<10)) == nil {
			n++
		}
		sent <- n
	}()
	// One write of a batch makes room for more.
	r.hold <- struct{}{}
	<-r.wrote
	c.Close()
	n := <-sent
	if most := (queueHigh + 3*batchSize) / (32 << 10); n > most {
		t.Errorf("%d messages were taken, at most %d may be", n, most)
	}
	close(r.hold)
}
