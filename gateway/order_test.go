package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

func dialHTTP(dial func(context.Context) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }
}

// stale leaves a socket file behind that nobody listens on.
func stale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// writeRecorder keeps every single write.
type writeRecorder struct {
	mu     sync.Mutex
	writes []string
	all    chan struct{}
	want   string
	// each is told of every write.
	each chan struct{}
}

func (w *writeRecorder) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes = append(w.writes, string(b))
	if w.each != nil {
		w.each <- struct{}{}
	}
	if strings.Contains(string(b), w.want) {
		close(w.all)
		w.want = "\x00 never"
	}
	return len(b), nil
}

func (w *writeRecorder) Close() error { return nil }

// TestAnswerLeavesAloneBeforeItsNotifications is C3 and C8: each answer is one
// write of its own, before every notification that the request causes.
func TestAnswerLeavesAloneBeforeItsNotifications(t *testing.T) {
	f := newFake(t)
	f.onTurn = playMessage
	g := newGateway(t, f, nil)
	inR, inW := io.Pipe()
	rec := &writeRecorder{all: make(chan struct{}), want: `"turn/completed"`, each: make(chan struct{}, 1000)}
	done := make(chan error, 1)
	go func() { done <- g.ServeStdio(t.Context(), inR, rec) }()
	send := func(line string) {
		if _, err := io.WriteString(inW, line+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	send(`{"id":1,"method":"initialize","params":{"clientInfo":{"name":"a","version":"1"}}}`)
	send(`{"id":2,"method":"thread/start","params":{"cwd":"/work"}}`)
	var thread string
	for thread == "" {
		<-rec.each
		rec.mu.Lock()
		for _, w := range rec.writes {
			if strings.Contains(w, `"id":2,`) {
				thread = uuids.FindString(w)
			}
		}
		rec.mu.Unlock()
	}
	send(fmt.Sprintf(`{"id":3,"method":"turn/start","params":{"threadId":%q,"input":[{"type":"text","text":"go"}]}}`, thread))
	<-rec.all
	_ = inW.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	answered := map[string]bool{}
	for _, w := range rec.writes {
		if strings.Contains(w, `"result":`) {
			if strings.Count(w, "\n") != 1 {
				t.Errorf("an answer shares its write: %q", w)
			}
			answered[w[:strings.Index(w, ",")]] = true
		}
		if strings.Contains(w, `"thread/started"`) && !answered[`{"id":2`] {
			t.Error("thread/started came before the answer to thread/start")
		}
		if strings.Contains(w, `"turn/started"`) && !answered[`{"id":3`] {
			t.Error("turn/started came before the answer to turn/start")
		}
	}
	if len(answered) != 3 {
		t.Errorf("%d answers", len(answered))
	}
}

// playDeltas streams a message of n deltas.
func playDeltas(n int) func(f *fake, thread, turn string) {
	return func(f *fake, thread, turn string) {
		f.append(thread, turn, itemStarted(agentItem("msg_1", "", false)))
		var text strings.Builder
		for i := range n {
			d := fmt.Sprintf("%d ", i)
			text.WriteString(d)
			f.append(thread, turn, agentDelta("msg_1", d))
		}
		last := agentItem("msg_1", text.String(), true)
		f.append(thread, turn, itemCompleted(last), turnCompleted(turn, heddlev1.TurnStatus_TURN_STATUS_COMPLETED, last))
	}
}

func checkDeltas(t *testing.T, p *peer, n int) {
	t.Helper()
	var joined strings.Builder
	deltas := 0
	for _, m := range p.messages() {
		switch m["method"] {
		case "item/agentMessage/delta":
			deltas++
			joined.WriteString(params(m)["delta"].(string))
		case "item/completed":
			if it := params(m)["item"].(message); it["type"] == "agentMessage" && it["text"] != joined.String() {
				t.Error("the deltas do not join to the text")
			}
		}
	}
	if deltas != n {
		t.Errorf("%d deltas, want %d", deltas, n)
	}
}

// TestP2SlowReader is P2 and P3: a client that reads nothing is not dropped, costs
// a bounded amount of memory, holds up nobody, and gets all of it later.
func TestP2SlowReader(t *testing.T) {
	const n = 20000
	f := newFake(t)
	g := newGateway(t, f, nil)
	dial := listen(t, g, "ws://127.0.0.1:0")
	slow, out := rawPeer(t, g)
	fast, err := wsPeer(t, dial, nil)
	if err != nil {
		t.Fatal(err)
	}
	fast.initialize()
	thread := startThread(fast)

	// The slow client reads up to the answer of its resume and then stops.
	lines := bufio.NewReaderSize(out, 16)
	readTo := func(what string) {
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			slow.feed(strings.TrimSuffix(line, "\n"))
			if strings.Contains(line, what) {
				return
			}
		}
	}
	slow.send(`{"id":1,"method":"initialize","params":{"clientInfo":{"name":"slow","version":"1"}}}`)
	readTo(`"id":1,`)
	slow.send(fmt.Sprintf(`{"id":2,"method":"thread/resume","params":{"threadId":%q,"excludeTurns":true}}`, thread))
	readTo(`"id":2,`)

	f.onTurn = playDeltas(n)
	startTurn(fast, thread, "go")
	fast.event("turn/completed")
	checkDeltas(t, fast, n)

	// Requests of the slow client are taken although it does not read.
	slow.send(`{"id":3,"method":"thread/loaded/list","params":{}}`)
	readTo(`"turn/completed"`)
	slow.finish()
	checkDeltas(t, slow, n)
	answered := false
	for _, m := range slow.messages() {
		answered = answered || m["id"] == float64(3)
	}
	if !answered {
		t.Error("the answer to the slow client was dropped")
	}
}

func approval(thread, turn string, request int64) *heddlev1.Event {
	return &heddlev1.Event{Payload: &heddlev1.Event_ApprovalRequested{ApprovalRequested: &heddlev1.ApprovalRequested{Approval: &heddlev1.Approval{
		Id: newID(), RequestId: request, ThreadId: thread, TurnId: turn, ItemId: "call_1", RequestedAtMs: 1, ItemStartedAtMs: 5500, Reason: "please",
		Subject: &heddlev1.Approval_Command{Command: &heddlev1.CommandApproval{Command: "touch a", Cwd: "/work", ProposedAmendment: []string{"touch", "a"}}},
	}}}}
}

// playApproval asks, waits for the decision and ends the turn.
func playApproval(f *fake, thread, turn string) {
	f.append(thread, turn, approval(thread, turn, 5))
	for {
		f.mu.Lock()
		t := f.threads[thread]
		decided, changed := len(f.decisions) > 0, t.changed
		f.mu.Unlock()
		if decided {
			break
		}
		<-changed
	}
	f.append(thread, turn, turnCompleted(turn, heddlev1.TurnStatus_TURN_STATUS_COMPLETED, nil))
}

const askCommand = "item/commandExecution/requestApproval"

// TestP8ApprovalOutlivesItsConnection: the client drops, another resumes and
// gets the same question under the same id; the first answer wins, a second one
// is harmless, and every subscriber hears that it is resolved.
func TestP8ApprovalOutlivesItsConnection(t *testing.T) {
	f := newFake(t)
	f.onTurn = playApproval
	dial := listen(t, newGateway(t, f, nil), "ws://127.0.0.1:0")
	connect := func() *peer {
		p, err := wsPeer(t, dial, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.initialize()
		return p
	}
	first := connect()
	thread := startThread(first)
	startTurn(first, thread, "go")
	ask := first.event(askCommand)
	if ask["id"] != float64(5) {
		t.Errorf("request id %v", ask["id"])
	}
	want := `{"availableDecisions":["accept",{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["touch","a"]}},"cancel"],"command":"touch a","commandActions":[],"cwd":"/work","environmentId":"local","itemId":"call_1","kind":"command","proposedExecpolicyAmendment":["touch","a"],"reason":"please","startedAtMs":5500,"threadId":"T","turnId":"U"}`
	got, err := json.Marshal(params(ask))
	if err != nil {
		t.Fatal(err)
	}
	plain := uuids.ReplaceAllStringFunc(string(got), func(id string) string {
		if id == thread {
			return "T"
		}
		return "U"
	})
	if plain != want {
		t.Errorf("got  %s\nwant %s", plain, want)
	}
	first.close()

	second, third := connect(), connect()
	for _, p := range []*peer{second, third} {
		r := p.result("thread/resume", message{"threadId": thread, "excludeTurns": true})
		if s := fmt.Sprint(r["thread"].(message)["status"]); s != "map[activeFlags:[waitingOnApproval] type:active]" {
			t.Errorf("status after resume: %s", s)
		}
		if again := p.event(askCommand); again["id"] != ask["id"] {
			t.Errorf("asked again as %v", again["id"])
		}
	}
	second.send(`{"id":5,"result":{"decision":"accept"}}`)
	second.send(`{"id":5,"result":{"decision":"decline"}}`)
	third.send(`{"id":5,"error":{"code":-1,"message":"no ui"}}`)
	for _, p := range []*peer{second, third} {
		if m := p.event("serverRequest/resolved"); params(m)["requestId"] != float64(5) {
			t.Errorf("resolved %v", m)
		}
		p.event("turn/completed")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.decisions) != 1 {
		t.Errorf("%d decisions were taken", len(f.decisions))
	}
}

func TestDecisions(t *testing.T) {
	cases := map[string]heddlev1.Decision{
		`"result":{"decision":"accept"}`:           heddlev1.Decision_DECISION_ACCEPT,
		`"result":{"decision":"acceptForSession"}`: heddlev1.Decision_DECISION_ACCEPT_FOR_SESSION,
		`"result":{"decision":"decline"}`:          heddlev1.Decision_DECISION_DECLINE,
		`"result":{"decision":"cancel"}`:           heddlev1.Decision_DECISION_CANCEL,
		`"result":{"decision":{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["a"]}}}`: heddlev1.Decision_DECISION_ACCEPT_WITH_AMENDMENT,
		`"result":{"decision":{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":[]}}}`:    heddlev1.Decision_DECISION_UNUSABLE,
		`"result":{"decision":"maybe"}`:               heddlev1.Decision_DECISION_UNUSABLE,
		`"result":{"foo":1}`:                          heddlev1.Decision_DECISION_UNUSABLE,
		`"result":[]`:                                 heddlev1.Decision_DECISION_UNUSABLE,
		`"error":{"code":-32601,"message":"unknown"}`: heddlev1.Decision_DECISION_UNUSABLE,
		`"result":{"decision":{"applyNetworkPolicyAmendment":{"network_policy_amendment":{"host":"example"}}}}`: heddlev1.Decision_DECISION_UNUSABLE,
	}
	for answer, want := range cases {
		f := newFake(t)
		f.onTurn = playApproval
		p := stdioPeer(t, newGateway(t, f, nil))
		p.initialize()
		startTurn(p, startThread(p), "go")
		p.event(askCommand)
		p.send(`{"id":5,` + answer + `}`)
		p.event("serverRequest/resolved")
		f.mu.Lock()
		if len(f.decisions) != 1 || f.decisions[0] != want {
			t.Errorf("%s: %v, want %v", answer, f.decisions, want)
		}
		f.mu.Unlock()
	}
}

// TestControlPlaneLoss: a control plane that dies shows as a pause. A turn whose
// acceptance was not answered is found again and does not run twice.
func TestControlPlaneLoss(t *testing.T) {
	f := newFake(t)
	p := stdioPeer(t, newGateway(t, f, nil))
	p.initialize()
	thread := startThread(p)
	f.dropAnswer = true
	restarted := make(chan struct{})
	go func() {
		defer close(restarted)
		<-f.dropped
		f.stop()
		f.start()
	}()
	turn := startTurn(p, thread, "go")
	<-restarted
	f.mu.Lock()
	turns, attaches := len(f.threads[thread].turns), f.attaches
	f.mu.Unlock()
	if turns != 1 {
		t.Fatalf("the input started %d turns", turns)
	}
	if attaches < 2 {
		t.Errorf("%d attaches", attaches)
	}
	if m := p.event("turn/started"); params(m)["turn"].(message)["id"] != turn {
		t.Errorf("turn/started of another turn: %v", m)
	}
	f.append(thread, turn, itemStarted(agentItem("msg_1", "", false)), agentDelta("msg_1", "before"))
	p.event("item/agentMessage/delta")
	f.stop()
	f.start()
	f.append(thread, turn, agentDelta("msg_1", " after"))
	if m := p.event("item/agentMessage/delta"); params(m)["delta"] != " after" {
		t.Errorf("delta after the restart: %v", m)
	}
	last := agentItem("msg_1", "before after", true)
	f.append(thread, turn, itemCompleted(last), turnCompleted(turn, heddlev1.TurnStatus_TURN_STATUS_COMPLETED, last))
	p.event("turn/completed")
	checkDeltas(t, p, 2)
}

// A call that got lost is not taken for the turn of the call before it, whose
// input was not shown yet: its input would be lost behind a false answer.
func TestLostCallIsNotTheTurnBefore(t *testing.T) {
	f := newFake(t)
	p := stdioPeer(t, newGateway(t, f, nil))
	p.initialize()
	thread := startThread(p)
	f.hideInput = true
	first := startTurn(p, thread, "one")
	f.dropCall = true
	restarted := make(chan struct{})
	go func() {
		defer close(restarted)
		<-f.dropped
		f.stop()
		f.start()
	}()
	// The turn before may run: then nobody knows whether the input steered it.
	answer := p.request("turn/start", message{"threadId": thread, "input": []message{{"type": "text", "text": "two"}}})
	<-restarted
	if answer["error"] == nil {
		t.Errorf("the answer is %v, the turn before is %s", answer, first)
	}
}

func TestStdinEndDetaches(t *testing.T) {
	f := newFake(t)
	g := newGateway(t, f, nil)
	inR, inW := io.Pipe()
	rec := &writeRecorder{all: make(chan struct{}), want: `"id":2,`}
	done := make(chan error, 1)
	go func() { done <- g.ServeStdio(t.Context(), inR, rec) }()
	// What was asked before the end is still answered.
	text := `{"id":1,"method":"initialize","params":{"clientInfo":{"name":"a","version":"1"}}}` + "\n" + `{"id":2,"method":"thread/start","params":{}}`
	if _, err := io.WriteString(inW, text); err != nil {
		t.Fatal(err)
	}
	if err := inW.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	<-rec.all
	g.Close(t.Context())
	<-f.detached
}

func TestUnsubscribeUnloadAndBroadcasts(t *testing.T) {
	f := newFake(t)
	dial := listen(t, newGateway(t, f, nil), socketPath(t))
	var peers [2]*peer
	for i := range peers {
		p, err := wsPeer(t, dial, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.initialize()
		peers[i] = p
	}
	a, b := peers[0], peers[1]
	thread := startThread(a)
	b.event("thread/started")
	turn := startTurn(a, thread, "go")
	b.event("thread/status/changed")
	f.append(thread, turn, turnCompleted(turn, heddlev1.TurnStatus_TURN_STATUS_COMPLETED, nil))
	a.event("turn/completed")
	if got := a.result("thread/name/set", message{"threadId": thread, "name": "  a name "}); len(got) != 0 {
		t.Errorf("name/set: %v", got)
	}
	for _, p := range peers {
		if m := p.event("thread/name/updated"); params(m)["threadName"] != "a name" {
			t.Errorf("name: %v", m)
		}
	}
	for _, want := range []string{"unsubscribed"} {
		if got := a.result("thread/unsubscribe", message{"threadId": thread}); got["status"] != want {
			t.Errorf("unsubscribe: %v, want %s", got, want)
		}
	}
	// The fake's config unloads at once.
	for _, p := range peers {
		p.event("thread/closed")
	}
	if got := b.result("thread/unsubscribe", message{"threadId": thread}); got["status"] != "notLoaded" {
		t.Errorf("unsubscribe: %v", got)
	}
	b.result("thread/resume", message{"threadId": thread, "excludeTurns": true})
	b.result("thread/archive", message{"threadId": thread})
	a.event("thread/archived")
	if _, text := b.refused("thread/archive", message{"threadId": thread}); text != "no rollout found for thread id "+thread {
		t.Errorf("second archive: %q", text)
	}
	for _, m := range b.messages() {
		if method, _ := m["method"].(string); strings.HasPrefix(method, "turn/") || strings.HasPrefix(method, "item/") {
			t.Errorf("a client that did not subscribe got %s", method)
		}
	}
}

func TestCommandExec(t *testing.T) {
	f := newFake(t)
	p := stdioPeer(t, newGateway(t, f, nil))
	p.initialize()
	if r := p.result("command/exec", message{"command": []any{"true"}}); r["stdout"] != "[true]" || r["exitCode"] != float64(6) {
		t.Errorf("buffered: %v", r)
	}
	p.send(`{"id":"x","method":"command/exec","params":{"command":["cat"],"processId":"p1","streamStdin":true,"streamStdoutStderr":true}}`)
	if _, text := p.refused("command/exec", message{"command": []any{"cat"}, "processId": "p1"}); text != `duplicate active command/exec process id: "p1"` {
		t.Errorf("duplicate: %q", text)
	}
	p.result("command/exec/write", message{"processId": "p1", "deltaBase64": "aGk="})
	p.event("command/exec/outputDelta")
	if m := p.event("command/exec/outputDelta"); params(m)["deltaBase64"] != "aGk=" || params(m)["stream"] != "stdout" {
		t.Errorf("delta: %v", m)
	}
	p.result("command/exec/write", message{"processId": "p1", "closeStdin": true})
	if m := p.response("x"); fmt.Sprint(m["result"]) != "map[exitCode:7 stderr: stdout:]" {
		t.Errorf("answer: %v", m)
	}
	if _, text := p.refused("command/exec/terminate", message{"processId": "p1"}); text != `no active command/exec for process id "p1"` {
		t.Errorf("terminate: %q", text)
	}
	p.send(`{"id":"y","method":"command/exec","params":{"command":["cat"],"processId":"p2","streamStdin":true}}`)
	p.result("command/exec/terminate", message{"processId": "p2"})
	if m := p.response("y"); m["result"].(message)["exitCode"] != float64(137) {
		t.Errorf("terminated: %v", m)
	}
}

// TestCompactedDeltas: deltas that were compacted away are made up for before the
// item is completed.
func TestCompactedDeltas(t *testing.T) {
	f := newFake(t)
	f.onTurn = func(f *fake, thread, turn string) {
		f.append(thread, turn, itemStarted(agentItem("msg_1", "", false)), agentDelta("msg_1", "one "),
			&heddlev1.Event{Payload: &heddlev1.Event_RangeCompacted{RangeCompacted: &heddlev1.RangeCompacted{ItemId: "msg_1"}}},
			itemCompleted(agentItem("msg_1", "one two", true)), turnCompleted(turn, heddlev1.TurnStatus_TURN_STATUS_COMPLETED, nil))
	}
	p := stdioPeer(t, newGateway(t, f, nil))
	p.initialize()
	startTurn(p, startThread(p), "go")
	p.event("turn/completed")
	checkDeltas(t, p, 2)
}

// TestLostThread is I2 for a thread that goes away with its control plane: what
// was started is completed, once.
func TestLostThread(t *testing.T) {
	f := newFake(t)
	p := stdioPeer(t, newGateway(t, f, nil))
	p.initialize()
	thread := startThread(p)
	turn := startTurn(p, thread, "go")
	f.append(thread, turn, itemStarted(agentItem("msg_1", "", false)), agentDelta("msg_1", "par"), agentDelta("msg_1", "tial"))
	p.event("item/agentMessage/delta")
	p.event("item/agentMessage/delta")
	f.stop()
	f.mu.Lock()
	delete(f.threads, thread)
	f.mu.Unlock()
	f.start()
	if m := p.event("item/completed"); params(m)["item"].(message)["text"] != "partial" {
		// The user's own message comes first.
		if m = p.event("item/completed"); params(m)["item"].(message)["text"] != "partial" {
			t.Errorf("item: %v", m)
		}
	}
	if m := p.event("turn/completed"); params(m)["turn"].(message)["status"] != "failed" {
		t.Errorf("turn: %v", m)
	}
	p.event("thread/closed")
	if r := p.result("thread/loaded/list", message{}); len(r["data"].([]any)) != 0 {
		t.Errorf("loaded: %v", r)
	}
}

// TestSequenceNumbers: a client that asked for them can tell that it missed
// nothing.
func TestSequenceNumbers(t *testing.T) {
	f := newFake(t)
	f.onTurn = playMessage
	p := stdioPeer(t, newGateway(t, f, nil))
	r := p.result("initialize", message{"clientInfo": message{"name": "x", "version": "1"}, "capabilities": message{"experimentalApi": true, "heddle": message{"eventSeq": true}}})
	if r["heddle"].(message)["serverVersion"] != "1.2.3" {
		t.Errorf("initialize: %v", r)
	}
	startTurn(p, startThread(p), "hi")
	p.event("turn/completed")
	last, numbered := float64(1), 0
	for _, m := range p.messages() {
		if m["seq"] == nil {
			continue
		}
		numbered++
		if m["prev"] != last || m["seq"].(float64) <= last {
			t.Errorf("%v: seq %v prev %v after %v", m["method"], m["seq"], m["prev"], last)
		}
		last = m["seq"].(float64)
	}
	if numbered < 10 {
		t.Errorf("only %d notifications carry a number", numbered)
	}
}
