package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

type object = map[string]any

func input(text string) []object {
	return []object{{"type": "text", "text": text, "text_elements": []any{}}}
}

// ended waits until n turns of the thread have ended.
func (a *appServer) ended(thread string, n int) {
	a.w.t.Helper()
	seen := 0
	a.await(fmt.Sprint(n, " turns"), 30*time.Second, func(m message) bool {
		if m.Method == "turn/completed" && m.Params["threadId"] == thread {
			seen++
		}
		return seen >= n
	})
}

func (a *appServer) told(method, thread string) message {
	a.w.t.Helper()
	return a.await(method, 10*time.Second, func(m message) bool { return m.Method == method && m.Params["threadId"] == thread })
}

// asked are the texts of the person's messages, in the order of the turns.
func (a *appServer) asked(thread string) string {
	a.w.t.Helper()
	list, _ := a.call("thread/items/list", object{"threadId": thread})["data"].([]any)
	var texts []string
	for _, e := range list {
		item, _ := e.(object)["item"].(object)
		if content, ok := item["content"].([]any); ok && item["type"] == "userMessage" {
			texts = append(texts, fmt.Sprint(content[0].(object)["text"]))
		}
	}
	return strings.Join(texts, " ")
}

// TestQueueOnTheWire: messages wait for the running turn, are changed meanwhile,
// and follow it; the queue outlives the server.
func TestQueueOnTheWire(t *testing.T) {
	m := newModel(t, map[string][]step{"first": {runFor("sleep 1", 3000), {say: "one"}}, "a": {{say: "two"}}, "b": {{say: "three"}}, "late": {{say: "four"}}})
	w := newWorld(t, m)
	a := w.experimental()
	thread := a.startThread()
	a.startTurn(thread, "first")
	add := func(text string) string {
		t.Helper()
		q, _ := a.call("thread/queue/add", object{"threadId": thread, "input": input(text), "clientUserMessageId": "c-" + text})["queuedSubmission"].(object)
		return fmt.Sprint(q["id"])
	}
	x, y, z := add("b"), add("x"), add("gone")
	a.told("thread/queue/changed", thread)
	a.call("thread/queue/update", object{"threadId": thread, "queuedSubmissionId": y, "input": input("a")})
	a.call("thread/queue/reorder", object{"threadId": thread, "queuedSubmissionIds": []string{y, z, x}})
	if got := a.call("thread/queue/delete", object{"threadId": thread, "queuedSubmissionId": z}); got["deleted"] != true {
		t.Error(got)
	}
	list, _ := a.call("thread/queue/list", object{"threadId": thread})["data"].([]any)
	if len(list) != 2 || list[0].(object)["id"] != y || list[1].(object)["clientUserMessageId"] != "c-b" {
		t.Errorf("queue %v", list)
	}
	a.ended(thread, 3)
	if got := a.asked(thread); got != "first a b" {
		t.Error(got)
	}
	turn := a.startTurn(thread, "first")
	late := add("late")
	a.call("turn/interrupt", object{"threadId": thread, "turnId": turn})
	a.ended(thread, 4)
	a.close()

	a = w.experimental()
	a.call("thread/resume", object{"threadId": thread, "excludeTurns": true})
	list, _ = a.call("thread/queue/list", object{"threadId": thread})["data"].([]any)
	if len(list) != 1 || list[0].(object)["id"] != late {
		t.Errorf("queue after the restart %v", list)
	}
	a.call("thread/queue/start", object{"threadId": thread})
	a.ended(thread, 1)
	if got := a.asked(thread); got != "first a b first late" {
		t.Error(got)
	}
}

// TestOrganizeOnTheWire: sections, projects and attachments as a client sees
// them, before and after a restart.
func TestOrganizeOnTheWire(t *testing.T) {
	w := newWorld(t, newModel(t, map[string][]step{"hello": {{say: "needle"}}}))
	a := w.experimental()
	project, _ := a.call("project/create", object{"idempotencyKey": "k", "name": "p", "roots": []object{{"path": w.workspace}}})["project"].(object)
	a.await("project/changed", 10*time.Second, func(m message) bool { return m.Method == "project/changed" && m.Params["changeType"] == "created" })
	section, _ := a.call("threadSection/create", object{"name": "s", "appearance": object{"color": "red"}})["section"].(object)
	var threads []string
	for range 2 {
		th, _ := a.call("thread/start", object{"cwd": w.workspace, "projectId": project["id"]})["thread"].(object)
		id := fmt.Sprint(th["id"])
		a.startTurn(id, "hello")
		a.ended(id, 1)
		a.call("thread/section/move", object{"threadId": id, "sectionId": section["id"]})
		a.told("thread/section/changed", id)
		threads = append(threads, id)
	}
	a.call("thread/section/move", object{"threadId": threads[1], "sectionId": section["id"], "beforeThreadId": threads[0]})
	a.call("thread/attachment/add", object{"threadId": threads[0], "attachmentType": "pr", "identityKey": "1", "payload": object{"n": 1}})
	a.told("thread/attachment/updated", threads[0])
	a.call("thread/memoryMode/set", object{"threadId": threads[0], "mode": "disabled"})
	a.close()

	a = w.experimental()
	listed := func(params object) string {
		t.Helper()
		data, _ := a.call("thread/list", params)["data"].([]any)
		out := ""
		for _, e := range data {
			th := e.(object)
			for i, id := range threads {
				if th["id"] == id {
					out += fmt.Sprint(i)
				}
			}
			if s, ok := th["section"].(object); ok && s["name"] != "s" {
				t.Errorf("section %v", s)
			}
		}
		return out
	}
	for params, want := range map[*object]string{
		{"sectionId": section["id"], "sortKey": "section_position"}:                          "10",
		{"sectionId": section["id"], "sortKey": "section_position", "sortDirection": "desc"}: "01",
		{"sectionId": nil}:             "",
		{"projectId": project["id"]}:   "10",
		{"projectId": nil}:             "",
		{"sectionId": "no such thing"}: "",
	} {
		if got := listed(*params); got != want {
			t.Errorf("%v: %s, want %s", *params, got, want)
		}
	}
	owners, _ := a.call("thread/attachmentOwner/list", object{"attachmentType": "pr", "identityKey": "1"})["data"].([]any)
	if len(owners) != 1 || owners[0].(object)["threadId"] != threads[0] {
		t.Error(owners)
	}
	a.call("thread/metadata/update", object{"threadId": threads[0], "projectId": ""})
	a.told("thread/project/updated", threads[0])
	a.call("project/delete", object{"projectId": project["id"]})
	a.told("thread/project/updated", threads[1])
	a.call("threadSection/delete", object{"sectionId": section["id"]})
	if got := listed(object{"sectionId": nil}); got != "10" {
		t.Error(got)
	}
	a.call("thread/attachment/remove", object{"threadId": threads[0], "attachmentType": "pr", "identityKey": "1"})
	left, _ := a.call("thread/attachment/list", object{"threadId": threads[0]})["data"].([]any)
	if len(left) != 0 {
		t.Error(left)
	}
}

// TestSearchAndSampleOnTheWire: a streamed search tells before it answers; items
// are listed from one on; a sample asks the model and leaves no trace.
func TestSearchAndSampleOnTheWire(t *testing.T) {
	m := newModel(t, map[string][]step{"hello": {{say: "a needle"}}, "sum up": {{say: "short"}}})
	w := newWorld(t, m)
	a := w.experimental()
	thread := a.startThread()
	turn := a.startTurn(thread, "hello")
	a.ended(thread, 1)
	a.send(object{"id": "the search", "method": "thread/search/stream", "params": object{"searchTerm": "needle"}})
	answer := a.await("the page", 10*time.Second, func(m message) bool { return string(m.ID) == `"the search"` })
	if found, _ := answer.Result["data"].([]any); len(found) != 1 {
		t.Errorf("found %v", answer)
	}
	part := a.await("thread/search/partial", 10*time.Second, func(m message) bool { return m.Method == "thread/search/partial" })
	if data, _ := part.Params["data"].([]any); len(data) != 1 || part.Params["requestId"] != "the search" {
		t.Errorf("partial %v", part.Params)
	}
	a.call("thread/search/cancel", object{"requestId": 99})
	a.call("thread/search/stream/cancel", object{"requestId": "x"})
	list, _ := a.call("thread/items/list", object{"threadId": thread, "turnId": turn})["data"].([]any)
	first, _ := list[0].(object)["item"].(object)
	rest, _ := a.call("thread/items/list", object{"threadId": thread, "turnId": turn, "cursor": object{"type": "item", "itemId": first["id"]}})["data"].([]any)
	if len(rest) != len(list)-1 {
		t.Errorf("%d items behind the first of %d", len(rest), len(list))
	}
	for params, text := range map[*object]string{
		{"threadId": thread, "turnId": turn, "cursor": object{"type": "item", "itemId": "none"}}: "cursor.itemId does not identify an item in the requested history scope",
		{"threadId": thread, "cursor": object{"type": "item", "itemId": first["id"]}}:            "turnId is required when cursor is an item anchor",
	} {
		if got := a.refused("thread/items/list", *params); got != "-32602 "+text {
			t.Errorf("got %q, want %q", got, text)
		}
	}
	sample := a.call("thread/sample", object{"threadId": thread, "expectedTurnId": turn, "prompt": "sum up"})
	if sample["text"] != "short" || sample["sourceTurnId"] != turn {
		t.Errorf("sample %v", sample)
	}
	if got := a.refused("thread/sample", object{"threadId": thread, "expectedTurnId": "other", "prompt": "sum up"}); got != "-32600 sample source turn must be the latest finished turn" {
		t.Error(got)
	}
	a.call("thread/sample/cancel", object{"requestId": 1})
	if got := a.asked(thread); got != "hello" {
		t.Errorf("the sample left %q", got)
	}
	m.mu.Lock()
	last := m.requests[len(m.requests)-1]
	m.mu.Unlock()
	if !strings.Contains(last, "a needle") || !strings.Contains(last, "sum up") {
		t.Errorf("the model was shown %s", last)
	}
	a.call("thread/prepareApprovedPlan", object{"threadId": thread, "markdown": "# the plan"})
	a.startTurn(thread, "hello")
	a.ended(thread, 2)
	m.mu.Lock()
	last = m.requests[len(m.requests)-1]
	m.mu.Unlock()
	if !strings.Contains(last, "# the plan") {
		t.Errorf("the model was shown %s", last)
	}
	if got := a.refused("thread/prepareApprovedPlan", object{"threadId": thread, "markdown": " "}); got != "-32600 The approved plan is empty." {
		t.Error(got)
	}
	history := []object{{"type": "message", "role": "user", "content": []object{{"type": "input_text", "text": "an old question"}}}}
	fresh, _ := a.call("thread/resume", object{"threadId": "01a22cc8-7243-72c0-bcbd-e4a852b7ce8c", "history": history})["thread"].(object)
	id := fmt.Sprint(fresh["id"])
	a.startTurn(id, "hello")
	a.ended(id, 1)
	m.mu.Lock()
	last = m.requests[len(m.requests)-1]
	m.mu.Unlock()
	if !strings.Contains(last, "an old question") {
		t.Errorf("the model was shown %s", last)
	}
}

// TestSampleIsCancelledOnTheWire: the model's answer is not waited for.
func TestSampleIsCancelledOnTheWire(t *testing.T) {
	m := newModel(t, map[string][]step{"hello": {{say: "hi"}}})
	m.thinks = 2 * time.Second
	a := newWorld(t, m).experimental()
	thread := a.startThread()
	turn := a.startTurn(thread, "hello")
	a.ended(thread, 1)
	const id = 5000
	a.send(object{"id": id, "method": "thread/sample", "params": object{"threadId": thread, "expectedTurnId": turn, "prompt": "hello"}})
	a.call("thread/sample/cancel", object{"requestId": id})
	answer := a.await("the cancelled sample", 10*time.Second, func(m message) bool { return string(m.ID) == fmt.Sprint(id) })
	if answer.Error["message"] != "thread sample cancelled" {
		t.Error(answer)
	}
}
