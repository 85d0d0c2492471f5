//go:build clients

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestClientTUI drives the official terminal program by its keys, over each
// transport that it can reach a server with, and once with every message of
// the server validated on its way.
func TestClientTUI(t *testing.T) {
	t.Parallel()
	codex := filepath.Join(npmClient(t, "tui"), "node_modules/.bin/codex")
	for _, transport := range []string{"ws", "unix", "validated"} {
		t.Run(transport, func(t *testing.T) {
			scripts := map[string][]step{
				"HELLO":  {{say: "hello there"}},
				"RUN":    {run("echo out-$((40+2)) | tee made.txt"), {say: "it ran"}},
				"SLOW":   {runFor("echo started; sleep 600", 60000), {say: "never"}},
				"RETURN": {{say: "welcome back"}},
				// The program asks for a title by a thread of its own.
				"single-line task title": {{say: `{"title":"Greet the tester"}`}},
			}
			w := newWorld(t, newModel(t, scripts))
			w.ask()
			scripts["FIRST"] = []step{w.outside("first"), {say: "it was allowed"}}
			scripts["SECOND"] = []step{w.outside("second"), {say: "it was not"}}
			// Settings of the program itself: keys that come fast are keys. It asks
			// for read-only unless its own home trusts the folder, whatever the
			// server's config says.
			w.tuiConfig("disable_paste_burst = true\ncheck_for_update_on_startup = false\n" +
				"[projects.\"" + w.workspace + "\"]\ntrust_level = \"trusted\"\n")
			addr := "ws://127.0.0.1:0"
			if transport == "unix" {
				addr = "unix://" + w.beside("front.sock")
			}
			tui := &tui{w: w, codex: codex}
			switch transport {
			case "ws":
				w.write(w.beside("token"), "only-this-client")
				tui.codex = "TOKEN=only-this-client " + codex
				tui.flags = " --remote-auth-token-env TOKEN"
				tui.addr = w.listen(addr, "--ws-auth", "capability-token", "--ws-token-file", w.beside("token")).addr
			case "validated":
				tui.addr = w.wireProxy(w.listen(addr).addr)
			default:
				tui.addr = w.listen(addr).addr
			}
			tui.firstSession()
			tui.resumed()
		})
	}
}

type tui struct {
	w     *world
	codex string
	addr  string
	flags string
}

func (w *world) tuiConfig(text string) {
	w.t.Helper()
	dir := w.beside(".codex")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	w.write(filepath.Join(dir, "config.toml"), text)
}

func (u *tui) start(args string) *terminal {
	u.w.t.Helper()
	return u.w.terminal(u.codex + " " + args + " --remote " + u.addr + u.flags + " --cd " + u.w.workspace)
}

const (
	composer    = "Ask Codex to do anything"
	interrupted = "Conversation interrupted"
	question    = "Would you like to run the following command?"
)

func (u *tui) firstSession() {
	w, t := u.w, u.w.t
	term := u.start("")
	term.answer("Trust this folder?", "Enter")
	term.await(composer)
	if config := string(readFile(t, filepath.Join(w.home, "config.toml"))); !strings.Contains(config, `trust_level = "trusted"`) {
		t.Errorf("the answer about trust is not in the config:\n%s", config)
	}

	term.enter("say HELLO")
	term.await("• hello there")

	term.enter("please RUN")
	term.await("Ran echo out-$((40+2))", "out-42", "• it ran")
	if !w.exists(filepath.Join(w.workspace, "made.txt")) {
		t.Error("the command could not write in the trusted workspace")
	}

	term.enter("ask FIRST")
	term.await(question, "May I write beside the workspace?")
	if w.exists(w.beside("first")) {
		t.Error("the command ran before it was approved")
	}
	term.answer(question, "y")
	term.await("You approved", "wrote-42", "• it was allowed")
	if !w.exists(w.beside("first")) {
		t.Error("the approved command did not run")
	}

	term.enter("ask SECOND")
	term.answer(question, "Escape")
	term.await("You canceled the request", interrupted)
	if w.exists(w.beside("second")) {
		t.Error("the refused command ran")
	}

	term.enter("be SLOW")
	pid := w.find("sleep 600")
	term.await("esc to interrupt")
	term.key("Escape")
	w.eventually("end of the interrupted command", 10*time.Second, func() bool { return !alive(pid) })
	term.awaitThat("the second interruption", func(s string) bool { return strings.Count(s, interrupted) == 2 })

	term.enter("/quit")
	term.await("resume", "exit status 0")
}

// resumed picks the thread of the first session and goes on with it.
func (u *tui) resumed() {
	term := u.start("resume")
	term.await("Resume a previous session", "Greet the tester", "1 / 1")
	term.answer("Resume a previous session", "Enter")
	term.await("› say HELLO", "• hello there", "out-42", "• it was allowed", interrupted, composer)
	term.enter("say RETURN")
	term.await("• welcome back")
	term.enter("/quit")
	term.await("exit status 0")
}
