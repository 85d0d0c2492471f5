package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/heddle-dev/heddle/cmd/heddle/internal/local"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// artifactFlags say which control plane has the thread.
type artifactFlags struct {
	home, connect string
	tls           tlsFlags
}

func newArtifactCommand() *cobra.Command {
	f := &artifactFlags{}
	cmd := &cobra.Command{
		Use:   "artifact",
		Short: "Show the patches and the whole outputs that a thread left behind",
		Long: `artifact shows what the turns of a thread left behind: the patch of each turn
that changed files, and the whole output of each command, both with their SHA-256.
They are kept as long as their thread.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&f.home, "home", "", "home `folder` (default $HEDDLE_HOME, else ~/.heddle)")
	cmd.PersistentFlags().StringVar(&f.connect, "connect", "", "`address` of a control plane, in place of the home's own")
	f.tls.add(cmd.PersistentFlags())
	cmd.AddCommand(newArtifactList(f), newArtifactGet(f))
	return cmd
}

func newArtifactList(f *artifactFlags) *cobra.Command {
	var turn, kind string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list THREAD",
		Short: "List the artifacts of a thread",
		Args:  usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := &heddlev1.ListArtifactsRequest{ThreadId: args[0], TurnId: turn, PageSize: 100}
			switch kind {
			case "":
			case "diff":
				req.Kind = heddlev1.ArtifactKind_ARTIFACT_KIND_DIFF
			case "output":
				req.Kind = heddlev1.ArtifactKind_ARTIFACT_KIND_OUTPUT
			default:
				return usageError(fmt.Errorf("--kind %s is not one of diff, output", kind))
			}
			return f.with(cmd.Context(), func(ctx context.Context, c heddlev1.ArtifactServiceClient) error {
				return listArtifacts(ctx, c, cmd.OutOrStdout(), req, asJSON)
			})
		},
	}
	cmd.Flags().StringVar(&turn, "turn", "", "only those of the turn with this `id`")
	cmd.Flags().StringVar(&kind, "kind", "", "only of this `kind`: diff or output")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line")
	return cmd
}

func newArtifactGet(f *artifactFlags) *cobra.Command {
	var file string
	var offset, length int64
	cmd := &cobra.Command{
		Use:   "get THREAD ARTIFACT",
		Short: "Write the bytes of an artifact to standard output or a file",
		Long: `get writes the bytes of an artifact. A whole one is checked against its SHA-256.
A patch can be passed to git apply in a checkout of its base commit.`,
		Example: "  heddle artifact get THREAD diff-TURN | git apply",
		Args:    usageArgs(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if offset < 0 || length < 0 {
				return usageError(errors.New("--offset and --length must not be negative"))
			}
			return f.with(cmd.Context(), func(ctx context.Context, c heddlev1.ArtifactServiceClient) error {
				get := &artifactGet{client: c, thread: args[0], id: args[1], offset: offset, length: length}
				if file == "" {
					return get.to(ctx, cmd.OutOrStdout())
				}
				return get.toFile(ctx, file)
			})
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "write to this `file`, which appears when it is complete")
	cmd.Flags().Int64Var(&offset, "offset", 0, "begin at this `byte`")
	cmd.Flags().Int64Var(&length, "length", 0, "write at most so many `bytes`; 0 means all")
	return cmd
}

// with runs a call over a connection to the control plane.
func (f *artifactFlags) with(ctx context.Context, call func(context.Context, heddlev1.ArtifactServiceClient) error) error {
	conn, err := f.dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	return call(ctx, heddlev1.NewArtifactServiceClient(conn))
}

func (f *artifactFlags) dial(ctx context.Context) (*grpc.ClientConn, error) {
	if f.connect != "" {
		dial, err := remote(f.connect, &f.tls)
		if err != nil {
			return nil, usageError(err)
		}
		return dial(ctx)
	}
	home, err := storeHome(f.home)
	if err != nil {
		return nil, usageError(err)
	}
	client, err := local.NewClient(local.Config{Home: home, Version: buildVersion()})
	if err != nil {
		return nil, err
	}
	return client.Dial(ctx)
}

func listArtifacts(ctx context.Context, c heddlev1.ArtifactServiceClient, out io.Writer, req *heddlev1.ListArtifactsRequest, asJSON bool) error {
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	if !asJSON {
		fmt.Fprintln(table, "ARTIFACT\tBYTES\tSHA256\tCREATED\tWHAT")
	}
	for {
		page, err := c.ListArtifacts(ctx, req)
		if err != nil {
			return fmt.Errorf("list artifacts: %w", err)
		}
		for _, a := range page.GetArtifacts() {
			if asJSON {
				line, err := protojson.Marshal(a)
				if err != nil {
					return fmt.Errorf("list artifacts: %w", err)
				}
				fmt.Fprintf(out, "%s\n", line)
				continue
			}
			fmt.Fprintf(table, "%q\t%d\t%s\t%s\t%s\n", a.GetId(), a.GetBytes(), shortSum(a), time.UnixMilli(a.GetCreatedAtMs()).Format(time.DateTime), describeArtifact(a))
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return table.Flush()
		}
	}
}

func shortSum(a *heddlev1.Artifact) string {
	switch sum := a.GetSha256(); {
	case sum != "":
		return sum[:min(len(sum), 12)]
	case a.GetDiff().GetMissing() != "":
		return "(not kept)"
	}
	return "(growing)"
}

// describeArtifact is one line about an artifact, safe for a terminal.
func describeArtifact(a *heddlev1.Artifact) string {
	if d := a.GetDiff(); d != nil {
		text := fmt.Sprintf("%d files changed", len(d.GetFiles())+int(d.GetFilesOmitted()))
		if d.GetBaseCommit() != "" {
			text += " since " + d.GetBaseCommit()[:min(len(d.GetBaseCommit()), 12)]
		}
		if d.GetTruncated() {
			text += ", cut"
		}
		if d.GetMissing() != "" {
			text += fmt.Sprintf(": %q", d.GetMissing())
		}
		return text
	}
	text := fmt.Sprintf("output of %q", a.GetCommand())
	if n := a.GetDroppedBytes(); n > 0 {
		text += fmt.Sprintf(", %d bytes were dropped at the cap", n)
	}
	return text
}

// artifactGet reads one artifact in ranges.
type artifactGet struct {
	client         heddlev1.ArtifactServiceClient
	thread, id     string
	offset, length int64
}

func (g *artifactGet) toFile(ctx context.Context, file string) error {
	temp, err := os.CreateTemp(filepath.Dir(file), ".heddle-artifact-*")
	if err != nil {
		return fmt.Errorf("write the artifact: %w", err)
	}
	defer os.Remove(temp.Name()) // does nothing once it has its name
	defer temp.Close()
	if err := g.to(ctx, temp); err != nil {
		return err
	}
	if err := errors.Join(temp.Close(), os.Rename(temp.Name(), file)); err != nil {
		return fmt.Errorf("write the artifact: %w", err)
	}
	return nil
}

func (g *artifactGet) to(ctx context.Context, w io.Writer) error {
	sum := sha256.New()
	at, left := g.offset, g.length
	for {
		resp, err := g.client.ReadArtifact(ctx, &heddlev1.ReadArtifactRequest{ThreadId: g.thread, ArtifactId: g.id, Offset: at, Length: left})
		if err != nil {
			return fmt.Errorf("read artifact %s: %w", strings.ToValidUTF8(g.id, ""), err)
		}
		if why := resp.GetArtifact().GetDiff().GetMissing(); why != "" {
			return fmt.Errorf("the patch was not kept: %s", why)
		}
		data := resp.GetData()
		if _, err := w.Write(data); err != nil {
			return fmt.Errorf("write the artifact: %w", err)
		}
		sum.Write(data)
		at += int64(len(data))
		if g.length > 0 {
			left -= int64(len(data))
		}
		if len(data) == 0 || at >= resp.GetTotal() || g.length > 0 && left <= 0 {
			return g.check(resp, at, sum)
		}
	}
}

// check compares what was read with the digest, when it was the whole.
func (g *artifactGet) check(last *heddlev1.ReadArtifactResponse, end int64, sum hash.Hash) error {
	want := last.GetArtifact().GetSha256()
	if g.offset != 0 || end != last.GetTotal() || want == "" {
		return nil
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return fmt.Errorf("the bytes have the digest %s, not %s", got, want)
	}
	return nil
}
