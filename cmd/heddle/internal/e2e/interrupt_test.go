package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// cancelScripts has a turn of every state: the model thinks, a command begins,
// prints, ignores signals, waits for an answer, streams.
var cancelScripts = map[string][]step{
	"EVERY": {
		run("echo first; sleep 0.1"),
		runFor("trap '' INT TERM; echo up; for i in $(seq 1000); do echo $i; sleep 0.01; done; sleep 612", 30000),
		{say: "never"},
	},
	"SPEAK": {run("true"), {say: strings.Repeat("word ", 2000), parts: 2000, pause: 2 * time.Millisecond}},
	"ASK": {
		{call: "exec_command", args: map[string]any{"cmd": "sleep 613", "sandbox_permissions": "require_escalated", "justification": "may it?"}},
		{say: "never"},
	},
}

// endedWithin waits for the end of a turn and checks that nothing of it is left.
func (w *world) endedWithin(app *appServer, turn, when string, within time.Duration) {
	w.t.Helper()
	began := time.Now()
	status := app.awaitTurn(turn, 30*time.Second)
	if took := time.Since(began); took > within {
		w.t.Errorf("%s: %s after %v", when, status, took)
	}
	if status != "interrupted" && status != "completed" {
		w.t.Errorf("%s: the turn is %s", when, status)
	}
	for _, command := range []string{"sleep 612", "sleep 613", "seq 1000"} {
		if w.running(command) {
			w.t.Errorf("%s: %s runs after the end of the turn", when, command)
		}
	}
}

// D2, D7: an interrupt at any moment of a turn ends it within 5 s, once, with
// its processes gone and its items closed: at once, before anything began, while
// the sandbox is made, at the first output, while an answer is awaited, and at
// random offsets. The thread is of use afterwards.
func TestD2InterruptAtAnyMoment(t *testing.T) {
	t.Parallel()
	m := newModel(t, cancelScripts)
	m.thinks = 20 * time.Millisecond
	w := newWorld(t, m)
	app := w.appServer()
	rnd := rand.New(rand.NewPCG(4, 7))
	turns := 0
	for i := range 30 {
		word := []string{"EVERY", "SPEAK", "ASK"}[i%3]
		result := app.call("thread/start", map[string]any{"cwd": w.workspace, "approvalPolicy": "on-request"})
		row, _ := result["thread"].(map[string]any)
		thread := fmt.Sprint(row["id"])
		after := time.Duration(rnd.IntN(1200)) * time.Millisecond
		if i < 3 {
			after = 0
		}
		turn := app.startTurn(thread, word)
		when := fmt.Sprintf("%s after %v", word, after)
		time.Sleep(after)
		// A turn that ended by itself meanwhile is refused, in words.
		if m := app.ask("turn/interrupt", map[string]any{"threadId": thread, "turnId": turn}); m.Error != nil && !strings.Contains(fmt.Sprint(m.Error["message"]), "no active turn") {
			t.Errorf("%s: %v", when, m.Error)
		}
		w.endedWithin(app, turn, when, 5*time.Second)
		turns++
	}
	if n := app.count("turn/completed"); n != turns {
		t.Errorf("%d ends of %d turns", n, turns)
	}
	if s, c := app.count("item/started"), app.count("item/completed"); s != c {
		t.Errorf("%d items started and %d completed", s, c)
	}
	app.close()
}

// D7: deleting and archiving a thread work at any moment of its turn. When the
// answer is there, its client has been told of the turn's end, its processes are
// gone, and it is as asked.
func TestD7DeleteAtAnyMoment(t *testing.T) {
	t.Parallel()
	m := newModel(t, cancelScripts)
	m.thinks = 20 * time.Millisecond
	w := newWorld(t, m)
	app := w.appServer()
	rnd := rand.New(rand.NewPCG(7, 4))
	for i := range 24 {
		word, method := []string{"EVERY", "SPEAK", "ASK"}[i%3], []string{"thread/delete", "thread/archive"}[i%2]
		result := app.call("thread/start", map[string]any{"cwd": w.workspace, "approvalPolicy": "on-request"})
		row, _ := result["thread"].(map[string]any)
		thread := fmt.Sprint(row["id"])
		after := time.Duration(rnd.IntN(1200)) * time.Millisecond
		if i < 6 {
			after = 0
		}
		turn := app.startTurn(thread, word)
		when := fmt.Sprintf("%s of %s after %v", method, word, after)
		time.Sleep(after)
		began := time.Now()
		app.call(method, map[string]any{"threadId": thread})
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s took %v", when, took)
		}
		w.endedWithin(app, turn, when, time.Second)
		resumed := app.ask("thread/resume", map[string]any{"threadId": thread})
		if method == "thread/delete" && resumed.Error == nil {
			t.Errorf("%s: the thread is there: %v", when, resumed.Result)
		}
	}
	if s, c := app.count("item/started"), app.count("item/completed"); s != c {
		t.Errorf("%d items started and %d completed", s, c)
	}
	app.close()
}
