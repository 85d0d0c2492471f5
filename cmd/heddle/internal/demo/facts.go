package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// facts is what was seen from outside.
type facts struct {
	sandbox string
	list    []fact
}

type fact struct {
	what   string
	ok     bool
	detail string
}

func (f *facts) add(what string, ok bool, detail string) {
	f.list = append(f.list, fact{what, ok, detail})
}

func (f *facts) failed() bool {
	for _, x := range f.list {
		if !x.ok {
			return true
		}
	}
	return false
}

// collect looks at the disk, the port, the processes and the recorded items.
func (d *demo) collect(ctx context.Context) (*facts, error) {
	commands, err := d.commands(ctx)
	if err != nil {
		return nil, err
	}
	f := &facts{}
	var tests []int32
	for _, c := range commands {
		switch {
		case strings.Contains(c.GetCommand(), markWrite):
			_, err := os.Lstat(d.place.outside)
			f.add("writing "+d.place.outside+" was refused and the file does not exist",
				failed(c) && errors.Is(err, os.ErrNotExist), describe(c))
		case strings.Contains(c.GetCommand(), markConnect):
			f.add(fmt.Sprintf("connecting to 127.0.0.1:%d was refused and never arrived, though the port accepts from here", d.listener.port()),
				failed(c) && d.listener.others() == 0, fmt.Sprintf("%s; %d connections arrived", describe(c), d.listener.others()))
		case strings.Contains(c.GetCommand(), markTest) && c.ExitCode != nil:
			tests = append(tests, c.GetExitCode())
		}
	}
	f.add("the test failed (exit 1), then passed (exit 0)", len(tests) == 2 && tests[0] == 1 && tests[1] == 0, fmt.Sprintf("exit codes %v", tests))
	f.add("both attempts to leave the sandbox were made", len(f.list) == 3, fmt.Sprintf("%d commands ran", len(commands)))
	before, err := files.ReadFile("files/slug.sh")
	if err != nil {
		return nil, err
	}
	after, err := os.ReadFile(filepath.Join(d.place.workspace, "slug.sh"))
	f.add("the patch is in slug.sh on disk", err == nil && !bytes.Equal(before, after) && bytes.Contains(after, []byte(patched)), fmt.Sprint(err))
	d.processes(ctx, f)
	answer, err := os.ReadFile(d.place.answer)
	f.add("the final answer arrived", err == nil && len(bytes.TrimSpace(answer)) > 0, fmt.Sprint(err))
	return f, nil
}

// commands reads the command items of the turn from the log.
func (d *demo) commands(ctx context.Context) ([]*heddlev1.CommandExecution, error) {
	threads := heddlev1.NewThreadServiceClient(d.conn)
	list, err := threads.ListThreads(ctx, &heddlev1.ListThreadsRequest{PageSize: 1, Cwds: []string{d.place.workspace}})
	if err != nil || len(list.GetThreads()) == 0 {
		return nil, errors.Join(errors.New("the turn left no thread in the log"), err)
	}
	items, err := threads.ListItems(ctx, &heddlev1.ListItemsRequest{ThreadId: list.GetThreads()[0].GetId(), PageSize: 200})
	if err != nil {
		return nil, fmt.Errorf("read the recorded items: %w", err)
	}
	var out []*heddlev1.CommandExecution
	for _, item := range items.GetItems() {
		if c := item.GetCommandExecution(); c != nil {
			out = append(out, c)
		}
	}
	return out, nil
}

// failed tells a command that ran and failed from one that never ran.
func failed(c *heddlev1.CommandExecution) bool { return c.ExitCode != nil && c.GetExitCode() != 0 }

func describe(c *heddlev1.CommandExecution) string {
	if c.ExitCode == nil {
		return "no exit code: " + c.GetError().GetMessage()
	}
	return fmt.Sprintf("exit %d", c.GetExitCode())
}

func (d *demo) processes(ctx context.Context, f *facts) {
	status, err := heddlev1.NewCatalogServiceClient(d.conn).GetStatus(ctx, &heddlev1.GetStatusRequest{})
	if err != nil || len(status.GetExecutors()) == 0 {
		f.add("an executor is registered", false, fmt.Sprint(err))
		return
	}
	ex := status.GetExecutors()[0]
	f.sandbox = "workspace-write, network off, enforced by " + ex.GetReport().GetBackend()
	cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", ex.GetPid()))
	own := int64(os.Getpid())
	f.add(fmt.Sprintf("executor (pid %d), control plane (pid %d) and this process (pid %d) are three", ex.GetPid(), status.GetPid(), own),
		ex.GetPid() != status.GetPid() && ex.GetPid() != own && status.GetPid() != own && bytes.Contains(cmdline, []byte("\x00executor\x00")),
		fmt.Sprintf("command line %q", cmdline))
	backend := ex.GetReport().GetBackend()
	f.add("the sandbox in force contains commands", strings.HasPrefix(backend, "runc-"), backend)
}

func (d *demo) report(f *facts) {
	d.say("\nseen from outside the sandbox:")
	for _, x := range f.list {
		if x.ok {
			d.say("  ok    %s", x.what)
		} else {
			d.say("  FAIL  %s (%s)", x.what, x.detail)
		}
	}
	d.say("\nsandbox:   %s", f.sandbox)
	d.say("log:       %s", d.client.LogFile())
	d.say("workspace: %s (delete %s when you are done)", d.place.workspace, d.place.root)
	d.say("\nThe model was scripted. For a real one set model_provider = \"openai\" in config.toml,")
	d.say("with your key in OPENAI_API_KEY, and run: heddle exec \"your task\"")
}
