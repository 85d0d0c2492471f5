// Command turnbench measures a turn of many sandboxed commands, driven through
// `heddle app-server` against a model server on the loopback interface, beside
// the same commands and model round trips done bare. It prints wall times, the
// ratio, and what the control plane committed for the turn.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// settle is the time between the start of a thread and its turn.
const settle = 300 * time.Millisecond

func main() {
	heddle := flag.String("heddle", "bin/heddle", "the binary to measure")
	commands := flag.Int("commands", 20, "commands of the turn")
	rounds := flag.Int("rounds", 7, "turns to measure; the median counts")
	level := flag.String("level", "workspace-write", "sandbox level of the thread")
	flag.Parse()
	if err := run(*heddle, *level, *commands, *rounds, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "turnbench:", err)
		os.Exit(1)
	}
}

func run(heddle, level string, commands, rounds int, out io.Writer) error {
	heddle, err := filepath.Abs(heddle)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "turnbench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	home, work := filepath.Join(dir, "home"), filepath.Join(dir, "work")
	for _, d := range []string{home, work} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	model, err := startModel(commands)
	if err != nil {
		return err
	}
	defer model.close()
	config := fmt.Sprintf("model = \"gpt-5.5\"\nmodel_provider = \"bench\"\n[model_providers.bench]\nname = \"bench\"\nbase_url = %q\nwire_api = \"responses\"\n", model.url)
	if err := os.WriteFile(filepath.Join(home, "config.toml"), []byte(config), 0o600); err != nil {
		return err
	}
	client, err := startAppServer(heddle, home, work)
	if err != nil {
		return err
	}
	defer client.close()
	// The first thread starts everything.
	if _, err := client.startThread(work, level); err != nil {
		return err
	}
	status, closeStatus, err := dialStatus(home)
	if err != nil {
		return err
	}
	defer closeStatus()

	var turns, bareCommands, bareModel []time.Duration
	var counters map[string]int64
	used := &cpu{gateway: client.cmd.Process.Pid}
	for round := range rounds + 1 {
		// A thread of its own, so that no turn carries the history of another;
		// a person takes longer than this to type.
		thread, err := client.startThread(work, level)
		if err != nil {
			return err
		}
		time.Sleep(settle)
		before, err := status()
		if err != nil {
			return err
		}
		used.start(before)
		took, err := client.runTurn(thread, commands)
		if err != nil {
			return err
		}
		after, err := status()
		if err != nil {
			return err
		}
		commandsTook, err := timeBareCommands(work, commands)
		if err != nil {
			return err
		}
		modelTook, err := timeBareModel(model.url, model.lastBody(), commands+1)
		if err != nil {
			return err
		}
		if round == 0 {
			continue // warm-up
		}
		turns, bareCommands, bareModel = append(turns, took), append(bareCommands, commandsTook), append(bareModel, modelTook)
		counters = difference(before.GetCounters(), after.GetCounters())
		used.stop()
	}
	report(out, commands, median(turns), median(bareCommands), median(bareModel), counters)
	used.report(out)
	return nil
}

func report(out io.Writer, commands int, turn, bareCommands, bareModel time.Duration, counters map[string]int64) {
	bare := bareCommands + bareModel
	fmt.Fprintf(out, "turn with %d sandboxed commands (median)   %8.1f ms\n", commands, ms(turn))
	fmt.Fprintf(out, "%d x bare `bash -lc true`                  %8.1f ms\n", commands, ms(bareCommands))
	fmt.Fprintf(out, "%d x bare model round trip                 %8.1f ms\n", commands+1, ms(bareModel))
	commits := time.Duration(counters["commit_micros"]) * time.Microsecond
	fmt.Fprintf(out, "commits of the turn                        %8.1f ms\n", ms(commits))
	fmt.Fprintf(out, "ratio (turn - commits) / bare              %8.2f\n", float64(turn-commits)/float64(bare))
	names := make([]string, 0, len(counters))
	for name := range counters {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(out, "per turn: %-32s %8d\n", name, counters[name])
	}
}

func timeBareCommands(dir string, n int) (time.Duration, error) {
	start := time.Now()
	for range n {
		cmd := exec.Command("/bin/bash", "-lc", "true")
		cmd.Dir = dir
		cmd.Env = cleanEnv(dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("bare command: %w: %s", err, out)
		}
	}
	return time.Since(start), nil
}

// cleanEnv is what both sides run under, so that one person's login profile is
// in neither figure.
func cleanEnv(home string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LANG=C.UTF-8"}
}

func timeBareModel(url string, body []byte, n int) (time.Duration, error) {
	start := time.Now()
	for range n {
		resp, err := http.Post(url+"/responses?bare=1", "application/json", strings.NewReader(string(body)))
		if err != nil {
			return 0, fmt.Errorf("bare model round trip: %w", err)
		}
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil {
			return 0, fmt.Errorf("bare model round trip: %w", err)
		}
	}
	return time.Since(start), nil
}

// dialStatus returns a function that asks the home's control plane for its state.
func dialStatus(home string) (func() (*heddlev1.GetStatusResponse, error), func(), error) {
	socket := filepath.Join(home, "run", "control.sock")
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, fmt.Errorf("dial %s: %w", socket, err)
	}
	catalog := heddlev1.NewCatalogServiceClient(conn)
	read := func() (*heddlev1.GetStatusResponse, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		resp, err := catalog.GetStatus(ctx, &heddlev1.GetStatusRequest{})
		if err != nil {
			return nil, fmt.Errorf("read the control plane's counters: %w", err)
		}
		return resp, nil
	}
	return read, func() { conn.Close() }, nil
}

func difference(before, after map[string]int64) map[string]int64 {
	out := map[string]int64{}
	for k, v := range after {
		out[k] = v - before[k]
	}
	return out
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // only maps of strings and numbers are passed
	}
	return b
}
