package gateway_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/heddle-dev/heddle/gateway"
	"github.com/heddle-dev/heddle/gateway/appserver"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// numbered opens a connection with sequence numbers.
func numbered(p *peer) message {
	p.t.Helper()
	r := p.result("initialize", message{"clientInfo": message{"name": "x", "version": "1"}, "capabilities": message{"experimentalApi": true, "heddle": message{"eventSeq": true}}})
	p.send(`{"method":"initialized"}`)
	return r
}

// notes are the numbered messages after an index, without the time of sending.
func notes(p *peer, from int) []message {
	var out []message
	for _, m := range p.messages()[from:] {
		if m["seq"] == nil {
			continue
		}
		c := message{}
		for k, v := range m {
			if k != "emittedAtMs" {
				c[k] = v
			}
		}
		out = append(out, c)
	}
	return out
}

// A client without our capability finds the reference's refusal.
func TestReplayIsOurs(t *testing.T) {
	g := newGateway(t, newFake(t), nil)
	p := stdioPeer(t, g)
	p.initialize()
	for _, method := range []string{"thread/events/subscribe", "thread/events/unsubscribe", "thread/artifacts/list", "thread/artifacts/read"} {
		code, text := p.refused(method, message{"threadId": newID()})
		if _, unknown := p.refused("no/such", message{}); code != -32600 || !strings.HasPrefix(text, "Invalid request: unknown variant `"+method+"`, expected one of `") || strings.ReplaceAll(text, method, "no/such") != unknown {
			t.Errorf("%s: %d %s", method, code, text)
		}
	}
	p = stdioPeer(t, g)
	p.result("initialize", message{"clientInfo": message{"name": "x", "version": "1"}, "capabilities": message{"heddle": message{}}})
	if _, text := p.refused("thread/events/subscribe", message{"threadId": newID()}); !strings.Contains(text, "capabilities.heddle.eventSeq") {
		t.Errorf("without eventSeq: %s", text)
	}
	p = stdioPeer(t, g)
	if _, text := p.refused("initialize", message{"clientInfo": message{"name": "x", "version": "1"}, "capabilities": message{"heddle": message{"eventSeq": 7}}}); !strings.Contains(text, "capabilities.heddle") {
		t.Errorf("a number for eventSeq: %s", text)
	}
}

// From every seq a subscription shows exactly what came after it, with prev
// linked to the seq that was given, and goes on live.
func TestReplayFromEverySeq(t *testing.T) {
	f := newFake(t)
	f.onTurn = func(f *fake, thread, turn string) {
		f.append(thread, turn, approval(thread, turn, 3))
		asked := f.threads[thread].events[len(f.threads[thread].events)-1].GetApprovalRequested().GetApproval()
		f.append(thread, turn, &heddlev1.Event{Payload: &heddlev1.Event_ApprovalResolved{ApprovalResolved: &heddlev1.ApprovalResolved{Approval: asked}}})
		playDeltas(5)(f, thread, turn)
	}
	g := newGateway(t, f, nil)
	p := stdioPeer(t, g)
	r := numbered(p)
	if ours := r["heddle"].(message); ours["protocolVersion"] == "" || !strings.Contains(fmt.Sprint(ours["serverFeatures"]), "eventReplay") || len(ours["testedClientVersions"].([]any)) == 0 {
		t.Errorf("initialize: %v", r)
	}
	thread := startThread(p)
	startTurn(p, thread, "hi")
	p.event("turn/completed")
	want := notes(p, 0)
	head := len(f.threads[thread].events)
	for after := range head + 1 {
		q := stdioPeer(t, g)
		numbered(q)
		r := q.result("thread/events/subscribe", message{"threadId": thread, "after": after})
		if r["head"] != float64(head) || r["after"] != float64(after) {
			t.Fatalf("subscribe: %v", r)
		}
		// What comes next is followed without a gap, and tells that all was sent.
		q.result("thread/name/set", message{"threadId": thread, "name": fmt.Sprint("n", after)})
		q.find(0, "the name", func(m message) bool {
			return m["method"] == "thread/name/updated" && params(m)["threadName"] == fmt.Sprint("n", after)
		})
		got := notes(q, 0)
		last := float64(after)
		for _, m := range got {
			if m["prev"] != last || m["seq"].(float64) <= last {
				t.Fatalf("after %d: %v has prev %v after %v", after, m["method"], m["prev"], last)
			}
			last = m["seq"].(float64)
		}
		var fits []message
		for _, m := range want {
			if m["seq"].(float64) > float64(after) {
				fits = append(fits, m)
			}
		}
		for i, m := range fits {
			if i == 0 {
				m = message{"method": m["method"], "params": m["params"], "seq": m["seq"], "prev": float64(after)}
			}
			if !reflect.DeepEqual(m, got[i]) {
				t.Fatalf("after %d: got %v\nwant %v", after, got[i], m)
			}
		}
		for _, m := range q.messages() {
			if m["method"] == askCommand {
				t.Errorf("after %d: a question that was answered is put again", after)
			}
		}
		head = len(f.threads[thread].events)
		q.close()
	}
	if code, text := p.refused("thread/events/subscribe", message{"threadId": thread, "after": head + 1}); code != -32602 || !strings.Contains(text, "ends at") {
		t.Errorf("past the end: %d %s", code, text)
	}
	if _, text := p.refused("thread/events/subscribe", message{"threadId": newID()}); !strings.Contains(text, "thread not found") {
		t.Errorf("unknown thread: %s", text)
	}
	if r := p.result("thread/events/unsubscribe", message{"threadId": thread}); r["status"] != "unsubscribed" {
		t.Errorf("unsubscribe: %v", r)
	}
}

// A pending question is put to who subscribes, once, and a connection can go
// back on its own subscription.
func TestReplayWhileAsking(t *testing.T) {
	f := newFake(t)
	f.onTurn = playApproval
	g := newGateway(t, f, nil)
	p := stdioPeer(t, g)
	numbered(p)
	thread := startThread(p)
	startTurn(p, thread, "hi")
	p.event(askCommand)
	p.result("thread/events/subscribe", message{"threadId": thread})
	q := stdioPeer(t, g)
	numbered(q)
	q.result("thread/events/subscribe", message{"threadId": thread, "after": 1})
	asked := q.event(askCommand)
	q.send(fmt.Sprintf(`{"id":%v,"result":{"decision":"accept"}}`, asked["id"]))
	q.event("turn/completed")
	p.event("turn/completed")
	for _, c := range []*peer{p, q} {
		n := 0
		for _, m := range c.messages() {
			if m["method"] == askCommand {
				n++
			}
		}
		if n != 1 {
			t.Errorf("asked %d times", n)
		}
	}
	started := 0
	for _, m := range p.messages() {
		if m["method"] == "turn/started" {
			started++
		}
	}
	if started != 2 {
		t.Errorf("the connection that went back saw %d starts", started)
	}
}

// A range that was compacted away is an explicit jump for clients with numbers,
// and nothing for others.
func TestReplayTellsOfJumps(t *testing.T) {
	f := newFake(t)
	f.onTurn = func(f *fake, thread, turn string) {
		f.append(thread, turn, itemStarted(agentItem("msg_1", "", false)),
			&heddlev1.Event{Payload: &heddlev1.Event_RangeCompacted{RangeCompacted: &heddlev1.RangeCompacted{ItemId: "msg_1", LastSeq: 1}}},
			itemCompleted(agentItem("msg_1", "one two", true)), turnCompleted(turn, heddlev1.TurnStatus_TURN_STATUS_COMPLETED, nil))
	}
	g := newGateway(t, f, nil)
	plain, p := stdioPeer(t, g), stdioPeer(t, g)
	plain.initialize()
	numbered(p)
	thread := startThread(p)
	plain.result("thread/resume", message{"threadId": thread})
	startTurn(p, thread, "hi")
	p.event("turn/completed")
	plain.event("turn/completed")
	p.result("thread/events/subscribe", message{"threadId": thread})
	jump := p.event("thread/events/compacted")
	if params(jump)["itemId"] != "msg_1" || jump["seq"] == nil || params(jump)["firstSeq"] != jump["seq"] {
		t.Errorf("jump: %v", jump)
	}
	p.event("turn/completed")
	for _, m := range plain.messages() {
		if m["method"] == "thread/events/compacted" {
			t.Error("a client without numbers was told of a jump")
		}
	}
}

// A resume in the middle of a turn says up to where its history goes, and the
// notifications begin after that.
func TestResumeSaysWhereItStands(t *testing.T) {
	f := newFake(t)
	held := make(chan struct{})
	f.onTurn = func(f *fake, thread, turn string) {
		f.append(thread, turn, itemStarted(agentItem("msg_1", "", false)), agentDelta("msg_1", "a"))
		<-held
		f.append(thread, turn, agentDelta("msg_1", "b"), itemCompleted(agentItem("msg_1", "ab", true)), turnCompleted(turn, heddlev1.TurnStatus_TURN_STATUS_COMPLETED, nil))
	}
	g := newGateway(t, f, nil)
	p, q := stdioPeer(t, g), stdioPeer(t, g)
	numbered(p)
	numbered(q)
	thread := startThread(p)
	startTurn(p, thread, "hi")
	p.event("item/agentMessage/delta")
	r := q.result("thread/resume", message{"threadId": thread})
	last := r["heddle"].(message)["seq"].(float64)
	if int(last) != len(f.threads[thread].events) {
		t.Errorf("resume stands at %v", r["heddle"])
	}
	close(held)
	q.event("turn/completed")
	got := notes(q, 0)
	for _, m := range got {
		if m["prev"] != last {
			t.Errorf("%v: prev %v after %v", m["method"], m["prev"], last)
		}
		last = m["seq"].(float64)
	}
	if len(got) != 3 {
		t.Errorf("%v", got)
	}
}

// A client of another version than the configured ones is refused clearly, and
// can try again with a right one.
func TestClientVersions(t *testing.T) {
	r, err := appserver.ParseClientRange("0.150.0..1.2")
	if err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, newFake(t), func(c *gateway.Config) { c.ClientVersions = r })
	for version, ok := range map[string]bool{"0.149.9": false, "0.150.0": true, "0.171.0-alpha.3": true, "1.1.99": true, "1.2.0": false, "1.2": false, "2": false, "dev": true, "": true} {
		p := stdioPeer(t, g)
		m := p.request("initialize", message{"clientInfo": message{"name": "x", "version": version}})
		if (m["error"] == nil) != ok {
			t.Errorf("version %q: %v", version, m)
		}
		if ok {
			continue
		}
		e := m["error"].(message)
		if text := e["message"].(string); !strings.Contains(text, version) || !strings.Contains(text, "from 0.150.0 to before 1.2") || e["data"].(message)["reason"] != "VERSION_UNSUPPORTED" {
			t.Errorf("version %q: %v", version, e)
		}
		p.initializeAs("0.171.0")
	}
	for _, bad := range []string{"..", "x..", "1..y", "1.2", "1.2.3.4..", "-1.."} {
		if _, err := appserver.ParseClientRange(bad); err == nil {
			t.Errorf("range %q was read", bad)
		}
	}
}

func (p *peer) initializeAs(version string) {
	p.t.Helper()
	p.result("initialize", message{"clientInfo": message{"name": "x", "version": version}})
}
