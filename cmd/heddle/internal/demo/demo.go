// Package demo shows the main job of heddle on a throw-away workspace and checks
// it from outside: a scripted turn that runs a failing test in the sandbox,
// fixes the program, and tries to leave the sandbox. What it concludes comes
// from the disk, from a listener of its own, from process ids and from the
// recorded items, never from what the model says.
package demo

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"google.golang.org/grpc"

	"github.com/heddle-dev/heddle/cmd/heddle/internal/local"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

//go:embed files
var files embed.FS

const request = "The test of slug.sh fails. Fix the program. Then show that you can neither write outside of the workspace nor reach the network."

// Config configures a demo.
type Config struct {
	Exe     string
	Version string
	Out     io.Writer
}

// ErrNotShown says that the demo did not see what it must see.
var ErrNotShown = errors.New("the demo did not see everything that it must see")

type demo struct {
	Config
	place    *place
	listener *listener
	client   *local.Client
	conn     *grpc.ClientConn
}

// Run runs the demo. It leaves its folder for inspection and no process.
func Run(ctx context.Context, cfg Config) (err error) {
	d := &demo{Config: cfg}
	if d.listener, err = listen(); err != nil {
		return err
	}
	defer d.listener.close()
	if d.place, err = makePlace(d.listener.port()); err != nil {
		return err
	}
	if d.client, err = local.NewClient(local.Config{Home: d.place.home, Version: cfg.Version, Exe: cfg.Exe}); err != nil {
		return err
	}
	d.say("heddle demo: a scripted turn in a sandbox, checked from outside\n")
	d.say("The model is SCRIPTED: its replies are read from %s.", d.place.script)
	d.say("Everything else is real: control plane, executor, sandbox, event log.")
	if d.place.note != "" {
		d.say("%s", d.place.note)
	}
	d.say("")

	release, err := d.hold(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	runErr := d.exec(ctx)
	facts, err := d.collect(ctx)
	if err != nil {
		return errors.Join(runErr, err)
	}
	facts.add("heddle exec ended with exit code 0", runErr == nil, fmt.Sprint(runErr))
	d.report(facts)
	if facts.failed() {
		return ErrNotShown
	}
	return nil
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.Out, format+"\n", args...) }

// hold starts the home's control plane and keeps it until release, so that its
// process ids can be compared after the turn.
func (d *demo) hold(ctx context.Context) (release func() error, err error) {
	if d.conn, err = d.client.Dial(ctx); err != nil {
		return nil, err
	}
	streamCtx, cancel := context.WithCancel(ctx)
	stream, err := heddlev1.NewSessionServiceClient(d.conn).Attach(streamCtx, &heddlev1.AttachRequest{
		SessionId: "demo", ClientVersion: d.Version, Pid: int64(os.Getpid()),
	})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		cancel()
		_ = d.conn.Close()
		return nil, fmt.Errorf("attach to the control plane: %w", err)
	}
	return func() error {
		defer d.conn.Close()
		defer cancel()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if _, err := heddlev1.NewCatalogServiceClient(d.conn).Shutdown(ctx, &heddlev1.ShutdownRequest{Force: true}); err != nil {
			return fmt.Errorf("end the demo's control plane: %w", err)
		}
		for ctx.Err() == nil {
			if _, err := os.Stat(d.client.Socket()); errors.Is(err, os.ErrNotExist) {
				return nil
			}
			time.Sleep(10 * time.Millisecond)
		}
		return errors.New("the demo's control plane did not end")
	}, nil
}

// exec runs the turn as a person would.
func (d *demo) exec(ctx context.Context) error {
	d.say("$ heddle exec --cd %s \"...\"\n", d.place.workspace)
	cmd := exec.CommandContext(ctx, d.Exe, "exec", "--cd", d.place.workspace, "--sandbox", "workspace-write",
		"--output-last-message", d.place.answer, request)
	cmd.Env = append(os.Environ(), "HEDDLE_HOME="+d.place.home)
	cmd.Stdout, cmd.Stderr = d.Out, d.Out
	return cmd.Run()
}

// place is the demo's folder.
type place struct {
	root, home, workspace, script, outside, answer string
	note                                           string
}

// makePlace builds a workspace with a failing test. It must not lie in /tmp,
// which commands in a sandbox have for themselves.
func makePlace(port int) (*place, error) {
	root, err := makeRoot()
	if err != nil {
		return nil, err
	}
	p := &place{
		root: root, home: filepath.Join(root, "home"), workspace: filepath.Join(root, "workspace"),
		script: filepath.Join(root, "model.yaml"), outside: filepath.Join(root, "outside.txt"), answer: filepath.Join(root, "answer.txt"),
	}
	for _, dir := range []string{p.home, p.workspace} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make the demo's folder: %w", err)
		}
	}
	entries, err := files.ReadDir("files")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		data, err := files.ReadFile("files/" + e.Name())
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(p.workspace, e.Name()), data, 0o644); err != nil {
			return nil, fmt.Errorf("write the demo's workspace: %w", err)
		}
	}
	if err := os.WriteFile(p.script, script(p, port), 0o600); err != nil {
		return nil, fmt.Errorf("write the model's script: %w", err)
	}
	if err := os.WriteFile(filepath.Join(p.home, "config.toml"), settings(p), 0o600); err != nil {
		return nil, fmt.Errorf("write the demo's config: %w", err)
	}
	return p, p.initRepository()
}

func makeRoot() (string, error) {
	var problems []error
	for _, parent := range parents() {
		if err := os.MkdirAll(parent, 0o700); err != nil {
			problems = append(problems, err)
			continue
		}
		root, err := os.MkdirTemp(parent, "demo-")
		if err == nil {
			return filepath.EvalSymlinks(root)
		}
		problems = append(problems, err)
	}
	return "", fmt.Errorf("no folder for the demo: %w", errors.Join(problems...))
}

func parents() []string {
	var dirs []string
	if cache, err := os.UserCacheDir(); err == nil {
		dirs = append(dirs, filepath.Join(cache, "heddle"))
	}
	return append(dirs, filepath.Join("/var/tmp", fmt.Sprintf("heddle-%d", os.Getuid())))
}

// initRepository makes the workspace a git repository, also where git is not
// installed: an empty one is four entries.
func (p *place) initRepository() error {
	if git, err := exec.LookPath("git"); err == nil {
		// The only git that heddle runs outside a sandbox: in a new folder of its own, without the user's hooks.
		cmd := exec.Command(git, "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "init", "--quiet", "--template=", p.workspace)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git init: %w: %s", err, out)
		}
		return nil
	}
	p.note = "git is not installed; the workspace's .git was written by hand."
	dir := filepath.Join(p.workspace, ".git")
	for _, sub := range []string{"objects", "refs/heads"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "HEAD"), []byte("ref: refs/heads/main\n"), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config"), []byte("[core]\n\trepositoryformatversion = 0\n\tbare = false\n"), 0o600)
}

func settings(p *place) []byte {
	return fmt.Appendf(nil, `# The one setting that makes this real: model_provider = "openai", with the key
# in the environment variable OPENAI_API_KEY.
model_provider = "scripted"

[model_providers.scripted]
name = "scripted"
wire_api = "scripted"
script = %q
`, p.script)
}
