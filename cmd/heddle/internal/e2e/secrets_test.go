package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// L02: nothing that a client starts, and no tool of the model, gets the secrets of the server's environment, at any
// level, but one that the policy names.
func TestL02SecretsStayOutside(t *testing.T) {
	for name, value := range map[string]string{
		"OPENAI_API_KEY": "sekret", "AWS_SECRET_ACCESS_KEY": "sekret", "MY_DB_PASSWORD": "sekret", "CI_JOB_TOKEN": "sekret", "CLOUD_CREDENTIALS": "sekret", "NAMED_KEY": "given", "PLAIN": "plain",
	} {
		t.Setenv(name, value)
	}
	const look = "env; cat /proc/self/environ /proc/$PPID/environ /proc/1/environ 2>/dev/null | tr '\\0' '\\n' | grep sekret"
	w := newWorld(t, newModel(t, map[string][]step{"LOOK": {run(look), {say: "done"}}}))
	if os.Geteuid() == 0 { // for whom /proc/1 of the host is open at full access
		w.model.scripts["LOOK"] = []step{run("env"), {say: "done"}}
	}
	app := w.experimental()
	defer app.close()
	check := func(what, out string, named bool) {
		t.Helper()
		if strings.Contains(out, "sekret") || !strings.Contains(out, "PLAIN=plain") || strings.Contains(out, "NAMED_KEY=given") != named {
			t.Errorf("%s:\n%s", what, out)
		}
	}
	for _, level := range []string{"read-only", "workspace-write", "danger-full-access"} {
		for _, named := range []bool{false, true} {
			params := map[string]any{"cwd": w.workspace, "sandbox": level}
			if named {
				params["config"] = map[string]any{"shell_environment_policy.set": map[string]any{"NAMED_KEY": "given"}}
			}
			from := len(app.completed("commandExecution"))
			thread, _ := app.call("thread/start", params)["thread"].(map[string]any)
			app.awaitTurn(app.startTurn(fmt.Sprint(thread["id"]), "LOOK"), 30*time.Second)
			items := app.completed("commandExecution")[from:]
			if len(items) != 1 {
				t.Fatalf("%s: %v", level, items)
			}
			check(level, output(items[0]), named)
		}
		got := app.call("command/exec", map[string]any{"command": []any{"env"}, "cwd": w.workspace, "sandboxPolicy": map[string]any{
			"type": map[string]string{"read-only": "readOnly", "workspace-write": "workspaceWrite", "danger-full-access": "dangerFullAccess"}[level]}})
		check("command/exec at "+level, fmt.Sprint(got["stdout"]), false)
	}
	app.call("process/spawn", map[string]any{"processHandle": "p", "cwd": w.workspace, "command": []string{"env"}})
	check("process/spawn", fmt.Sprint(app.awaitExit("p")["stdout"]), false)
}
