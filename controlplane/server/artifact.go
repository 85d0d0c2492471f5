package server

import (
	"context"
	"strings"

	"github.com/heddle-dev/heddle/proto/errdefs"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// diffPrefix and outputPrefix begin the ids of artifacts, before the id of the
	// turn or item.
	diffPrefix   = "diff-"
	outputPrefix = "output-"
	// diffPage and outputPage begin the tokens of pages.
	diffPage   = "d."
	outputPage = "o."
)

// artifactService shows what is kept of a thread's work: the patches, which the
// rows of turns describe, and the outputs of commands.
type artifactService struct {
	heddlev1.UnimplementedArtifactServiceServer
	*Server
}

func (s *artifactService) ListArtifacts(ctx context.Context, r *heddlev1.ListArtifactsRequest) (*heddlev1.ListArtifactsResponse, error) {
	if _, err := s.thread(ctx, r.GetThreadId()); err != nil {
		return nil, err
	}
	token := r.GetPageToken()
	if token == "" && r.GetKind() == heddlev1.ArtifactKind_ARTIFACT_KIND_OUTPUT {
		token = outputPage
	}
	if after, ok := strings.CutPrefix(token, outputPage); ok {
		return s.outputs(ctx, r, after)
	}
	after, ok := strings.CutPrefix(token, diffPage)
	if token != "" && !ok {
		return nil, errdefs.New(errdefs.InvalidCursor, "invalid cursor: it belongs to another listing")
	}
	resp, err := s.diffs(ctx, r, after)
	if err == nil && resp.GetNextPageToken() == "" && r.GetKind() != heddlev1.ArtifactKind_ARTIFACT_KIND_DIFF {
		resp.NextPageToken = outputPage
	}
	return resp, err
}

func (s *artifactService) diffs(ctx context.Context, r *heddlev1.ListArtifactsRequest, after string) (*heddlev1.ListArtifactsResponse, error) {
	out := &heddlev1.ListArtifactsResponse{}
	if id := r.GetTurnId(); id != "" {
		t, err := s.store.Turn(ctx, r.GetThreadId(), id)
		if err != nil {
			return nil, err
		}
		if t.GetDiff() != nil {
			out.Artifacts = append(out.Artifacts, diffArtifact(t))
		}
		return out, nil
	}
	page, err := s.store.ListTurns(ctx, &heddlev1.ListTurnsRequest{
		ThreadId: r.GetThreadId(), PageSize: r.GetPageSize(), PageToken: after, Ascending: true, View: heddlev1.ItemsView_ITEMS_VIEW_NONE,
	})
	if err != nil {
		return nil, err
	}
	for _, t := range page.GetTurns() {
		if t.GetTurn().GetDiff() != nil {
			out.Artifacts = append(out.Artifacts, diffArtifact(t.GetTurn()))
		}
	}
	if next := page.GetNextPageToken(); next != "" {
		out.NextPageToken = diffPage + next
	}
	return out, nil
}

func (s *artifactService) outputs(ctx context.Context, r *heddlev1.ListArtifactsRequest, after string) (*heddlev1.ListArtifactsResponse, error) {
	page, err := s.store.ListItems(ctx, &heddlev1.ListItemsRequest{
		ThreadId: r.GetThreadId(), TurnId: r.GetTurnId(), PageSize: r.GetPageSize(), PageToken: after,
	})
	if err != nil {
		return nil, err
	}
	out := &heddlev1.ListArtifactsResponse{}
	for _, it := range page.GetItems() {
		if it.GetCommandExecution() == nil {
			continue
		}
		a, err := s.output(ctx, r.GetThreadId(), it.GetId())
		switch {
		case errdefs.Is(err, errdefs.ArtifactNotFound):
		case err != nil:
			return nil, err
		default:
			out.Artifacts = append(out.Artifacts, a.Artifact)
		}
	}
	if next := page.GetNextPageToken(); next != "" {
		out.NextPageToken = outputPage + next
	}
	return out, nil
}

func diffArtifact(t *heddlev1.Turn) *heddlev1.Artifact {
	d := t.GetDiff()
	return &heddlev1.Artifact{
		Id: diffPrefix + t.GetId(), Kind: heddlev1.ArtifactKind_ARTIFACT_KIND_DIFF, TurnId: t.GetId(), Bytes: d.GetBytes(), Sha256: d.GetSha256(),
		Sealed: true, CreatedAtMs: t.GetCompletedAtMs(), Diff: d,
	}
}

// foundOutput is an output, and the thread whose files hold it.
type foundOutput struct {
	*heddlev1.Artifact
	thread string
}

// output describes what a command wrote. One without output has no artifact.
func (s *artifactService) output(ctx context.Context, threadID, itemID string) (foundOutput, error) {
	row, err := s.store.Item(ctx, threadID, itemID)
	if errdefs.Is(err, errdefs.ItemNotFound) || err == nil && row.Item.GetCommandExecution() == nil {
		return foundOutput{}, noArtifact(outputPrefix + itemID)
	}
	if err != nil {
		return foundOutput{}, err
	}
	seal, sealed, err := s.cfg.Outputs.Stat(row.ThreadID, itemID)
	if err == nil && !sealed && !row.Open() {
		// The end of its process was recorded by a control plane that did not live
		// long enough to seal it, or there was no output at all.
		if err = s.cfg.Outputs.Seal(row.ThreadID, itemID); err == nil {
			seal, sealed, err = s.cfg.Outputs.Stat(row.ThreadID, itemID)
		}
	}
	if err != nil {
		return foundOutput{}, err
	}
	if seal.Bytes == 0 && seal.Dropped == 0 {
		return foundOutput{}, noArtifact(outputPrefix + itemID)
	}
	sealed = sealed && !row.Open()
	if !sealed {
		seal.SHA256 = ""
	}
	return foundOutput{thread: row.ThreadID, Artifact: &heddlev1.Artifact{
		Id: outputPrefix + itemID, Kind: heddlev1.ArtifactKind_ARTIFACT_KIND_OUTPUT, TurnId: row.Item.GetTurnId(), ItemId: itemID,
		Bytes: seal.Bytes, DroppedBytes: max(seal.Dropped, row.Item.GetCommandExecution().GetDroppedBytes()), Sha256: seal.SHA256, Sealed: sealed,
		CreatedAtMs: row.Item.GetStartedAtMs(), Command: shortCommand(row.Item.GetCommandExecution().GetCommand()),
	}}, nil
}

// shortCommand bounds a command line in a listing.
func shortCommand(s string) string {
	const limit = 1024
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "") + "..."
}

func noArtifact(id string) error {
	return errdefs.New(errdefs.ArtifactNotFound, "artifact not found: %s", id)
}

func (s *artifactService) GetArtifact(ctx context.Context, r *heddlev1.GetArtifactRequest) (*heddlev1.GetArtifactResponse, error) {
	resp, err := s.ReadArtifact(ctx, &heddlev1.ReadArtifactRequest{ThreadId: r.GetThreadId(), ArtifactId: r.GetArtifactId(), Length: 1})
	if err != nil {
		return nil, err
	}
	return &heddlev1.GetArtifactResponse{Artifact: resp.GetArtifact()}, nil
}

func (s *artifactService) ReadArtifact(ctx context.Context, r *heddlev1.ReadArtifactRequest) (*heddlev1.ReadArtifactResponse, error) {
	if _, err := s.thread(ctx, r.GetThreadId()); err != nil {
		return nil, err
	}
	length, err := readLength(r.GetOffset(), r.GetLength())
	if err != nil {
		return nil, err
	}
	out := &heddlev1.ReadArtifactResponse{Offset: r.GetOffset()}
	if item, ok := strings.CutPrefix(r.GetArtifactId(), outputPrefix); ok {
		found, err := s.output(ctx, r.GetThreadId(), item)
		if err != nil {
			return nil, err
		}
		out.Artifact = found.Artifact
		out.Data, out.Total, err = s.cfg.Outputs.ReadAt(found.thread, item, r.GetOffset(), length)
		return out, err
	}
	id, ok := strings.CutPrefix(r.GetArtifactId(), diffPrefix)
	if !ok {
		return nil, noArtifact(r.GetArtifactId())
	}
	t, err := s.store.Turn(ctx, r.GetThreadId(), id)
	if errdefs.Is(err, errdefs.TurnNotFound) || err == nil && t.GetDiff() == nil {
		return nil, noArtifact(r.GetArtifactId())
	}
	if err != nil {
		return nil, err
	}
	out.Artifact = diffArtifact(t)
	if d := t.GetDiff(); d.GetSha256() != "" {
		out.Data, out.Total, err = s.cfg.Outputs.ReadBlob(d.GetThreadId(), d.GetTurnId(), d.GetSha256(), r.GetOffset(), length)
	}
	return out, err
}
