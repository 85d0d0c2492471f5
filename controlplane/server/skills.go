package server

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/heddle-dev/heddle/controlplane/config"
	"github.com/heddle-dev/heddle/controlplane/session"
	"github.com/heddle-dev/heddle/controlplane/skill"
	"github.com/heddle-dev/heddle/proto/errdefs"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	// skillConnection names the scope under which skills are read for listings.
	skillConnection = "skills"
	maxSkillFolders = 64
)

// FileOperation does one operation on an executor with the authority of a
// session's client, and returns its whole output.
func (s *WorkspaceService) FileOperation(ctx context.Context, sessionID string, op *heddlev1.FileOperation) ([]byte, *heddlev1.FileOutcome, error) {
	var out []byte
	w, err := s.beginFor(ctx, cmp.Or(sessionID, "none"), skillConnection, session.Local,
		&executorv1.Action{Kind: &executorv1.Action_FileOperation{FileOperation: op}},
		func(b []byte) error {
			out = append(out, b...)
			return nil
		})
	if err != nil {
		return nil, nil, err
	}
	res, err := w.end()
	if err != nil {
		return nil, nil, err
	}
	if res.GetFileOutcome() == nil {
		return nil, nil, errdefs.New(errdefs.Internal, "the executor answered a file operation with %T", res.GetOutcome())
	}
	return out, res.GetFileOutcome(), nil
}

// folders are those of a listing: the caller's own where none are given.
func (s *Server) folders(caller string, cwds []string, most int) ([]string, error) {
	if len(cwds) == 0 && caller != "" {
		sess, err := s.cfg.Sessions.Get(caller)
		if err != nil {
			return nil, err
		}
		cwds = []string{sess.Cwd}
	}
	if len(cwds) > most {
		return nil, errdefs.New(errdefs.InvalidArgument, "%d folders were given, the limit is %d", len(cwds), most)
	}
	return cwds, nil
}

// ListSkills finds skills of folders and of the user; see the proto. What cannot
// be read in one folder does not hide the others.
func (s *catalogService) ListSkills(ctx context.Context, r *heddlev1.ListSkillsRequest) (*heddlev1.ListSkillsResponse, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	cwds, err := s.folders(caller, r.GetCwds(), maxSkillFolders)
	if err != nil {
		return nil, err
	}
	files := skill.Remote(func(ctx context.Context, op *heddlev1.FileOperation) ([]byte, *heddlev1.FileOutcome, error) {
		return s.cfg.Files(ctx, caller, op)
	})
	user, userProblems := skill.In(ctx, skill.Local{}, skill.UserFolder(s.cfg.Home), skill.ScopeUser)
	// Most folders name the same roots.
	read := map[string]func() ([]skill.Skill, []skill.Problem){}
	below := func(roots []string) ([]skill.Skill, []skill.Problem) {
		key := strings.Join(roots, "\x00")
		if read[key] == nil {
			read[key] = sync.OnceValues(func() ([]skill.Skill, []skill.Problem) { return skill.Below(ctx, files, roots) })
		}
		return read[key]()
	}
	resp := &heddlev1.ListSkillsResponse{}
	for _, cwd := range cwds {
		folder := &heddlev1.SkillsOfFolder{Cwd: cwd}
		var repo []skill.Skill
		problems := []skill.Problem{{Path: cwd, Message: "the folder is not an absolute path"}}
		if path.IsAbs(cwd) {
			repo, problems = skill.Repo(ctx, files, cwd)
		}
		problems = append(problems, userProblems...)
		c, err := s.cfg.Settings.Load(caller, cwd, nil)
		if err != nil {
			return nil, err
		}
		extra, extraProblems := below(c.SkillRoots())
		problems = append(problems, extraProblems...)
		for _, sk := range slices.Concat(repo, extra, user) {
			folder.Skills = append(folder.Skills, &heddlev1.Skill{
				Name: sk.Name, Description: sk.Description, ShortDescription: sk.Short, Path: sk.Path, Scope: sk.Scope, Enabled: c.SkillEnabled(sk.Name, sk.Path),
			})
		}
		for _, p := range problems {
			folder.Errors = append(folder.Errors, &heddlev1.SkillError{Path: p.Path, Message: p.Message})
		}
		resp.Folders = append(resp.Folders, folder)
	}
	return resp, nil
}

// ListFeatures returns the switches; see the proto.
func (s *catalogService) ListFeatures(ctx context.Context, _ *heddlev1.ListFeaturesRequest) (*heddlev1.ListFeaturesResponse, error) {
	caller, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	c, err := s.cfg.Settings.Load(caller, "", nil)
	if err != nil {
		return nil, err
	}
	resp := &heddlev1.ListFeaturesResponse{}
	for _, f := range config.Features() {
		resp.Features = append(resp.Features, &heddlev1.Feature{
			Name: f.Name, Stage: f.Stage, DisplayName: f.Title, Description: f.Description, Enabled: c.FeatureOn(f.Name), DefaultEnabled: f.Default,
		})
	}
	slices.SortFunc(resp.Features, func(a, b *heddlev1.Feature) int { return strings.Compare(a.GetName(), b.GetName()) })
	return resp, nil
}
