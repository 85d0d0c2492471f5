//go:build clients

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// terminal is a screen of tmux in which a program of the world runs.
type terminal struct {
	w      *world
	socket string
}

// terminal runs a command line of the shell in a screen of its own; the exit
// status is shown when it ends.
func (w *world) terminal(commandLine string) *terminal {
	w.t.Helper()
	needTool(w.t, "tmux", "on Debian or Ubuntu: apt-get install tmux")
	dir, err := os.MkdirTemp(filepath.Dir(w.home), "tmux-")
	if err != nil {
		w.t.Fatal(err)
	}
	term := &terminal{w: w, socket: filepath.Join(dir, "s")}
	term.tmux("-u", "-f", "/dev/null", "new-session", "-d", "-x", "120", "-y", "60", commandLine+`; echo "exit status $?"; exec cat`)
	w.t.Cleanup(term.close)
	return term
}

func (term *terminal) tmux(args ...string) string {
	term.w.t.Helper()
	cmd := exec.CommandContext(term.w.t.Context(), "tmux", append([]string{"-S", term.socket}, args...)...)
	cmd.Env = append(term.w.env(), "LC_ALL=C.UTF-8", "SHELL=/bin/sh")
	cmd.Dir = term.w.workspace
	out, err := cmd.CombinedOutput()
	if err != nil {
		term.w.t.Fatalf("tmux %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// screen is what is shown now.
func (term *terminal) screen() string {
	term.w.t.Helper()
	return term.tmux("capture-pane", "-p", "-J")
}

// await waits until the screen shows all the texts.
func (term *terminal) await(texts ...string) string {
	term.w.t.Helper()
	return term.awaitThat(strings.Join(texts, " and "), func(screen string) bool {
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	})
}

func (term *terminal) awaitThat(what string, ok func(screen string) bool) string {
	term.w.t.Helper()
	screen := ""
	for deadline := time.Now().Add(40 * time.Second); time.Now().Before(deadline); time.Sleep(30 * time.Millisecond) {
		if screen = term.screen(); ok(screen) {
			return screen
		}
	}
	term.w.t.Fatalf("the screen never showed %s\n%s", what, screen)
	return ""
}

// enter types a line; it is sent once the screen shows it.
func (term *terminal) enter(line string) {
	term.w.t.Helper()
	term.tmux("send-keys", "-l", line)
	term.await("› " + line)
	term.key("Enter")
}

func (term *terminal) key(name string) {
	term.w.t.Helper()
	term.tmux("send-keys", name)
}

// answer presses a key for as long as the screen shows a question: a program
// may drop keys that come while it draws the question.
func (term *terminal) answer(question, key string) {
	term.w.t.Helper()
	term.await(question)
	var pressed time.Time
	term.awaitThat("the end of: "+question, func(screen string) bool {
		open := strings.Contains(screen, question)
		if open && time.Since(pressed) > 2*time.Second {
			term.key(key)
			pressed = time.Now()
		}
		return !open
	})
}

func (term *terminal) close() {
	cmd := exec.Command("tmux", "-S", term.socket, "kill-server")
	if out, err := cmd.CombinedOutput(); err != nil && !strings.Contains(string(out), "no server running") {
		term.w.t.Errorf("tmux kill-server: %v\n%s", err, out)
	}
}

// listener is a `heddle app-server` that clients connect to.
type listener struct {
	cmd  *exec.Cmd
	addr string
}

// listen starts the server and reads its address from what it prints.
func (w *world) listen(addr string, flags ...string) *listener {
	w.t.Helper()
	logFile, err := os.Create(w.beside("listen.log"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer logFile.Close()
	l := &listener{cmd: w.command(w.t.Context(), append([]string{"app-server", "--listen", addr}, flags...)...)}
	l.cmd.Stderr = logFile
	l.cmd.Cancel = func() error { return l.cmd.Process.Signal(os.Interrupt) }
	if err := l.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = l.cmd.Process.Signal(os.Interrupt)
		if err := l.cmd.Wait(); err != nil && w.t.Context().Err() == nil {
			w.t.Errorf("app-server: %v", err)
		}
		if w.t.Failed() {
			w.t.Logf("app-server printed:\n%s", readFile(w.t, logFile.Name()))
		}
	})
	const banner = "listening on "
	w.eventually("the address of the server", 20*time.Second, func() bool {
		_, rest, _ := strings.Cut(string(readFile(w.t, logFile.Name())), banner)
		addr, _, found := strings.Cut(rest, "\n")
		l.addr = addr
		return found
	})
	return l
}
