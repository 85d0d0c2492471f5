package main

import (
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/heddle-dev/heddle/cmd/heddle/internal/execmode"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// reviewFlags say what is reviewed.
type reviewFlags struct {
	uncommitted         bool
	base, commit, title string
}

func newExecReviewCommand(f *execFlags) *cobra.Command {
	r := &reviewFlags{}
	cmd := &cobra.Command{
		Use:   "review [PROMPT]",
		Short: "Have a reviewer look at changes and print its findings",
		Example: `  heddle exec review --uncommitted
  heddle exec review --base main
  heddle exec review "look for races in the commits of today"`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if f.review, err = r.request(first(args)); err == nil && (f.schema != "" || len(f.images) > 0) {
				err = errors.New("--output-schema and --image do not go with review")
			}
			if err != nil {
				execmode.Drain(os.Stdin)
				return usageError(err)
			}
			return runExec(cmd, f, nil, first(args))
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&r.uncommitted, "uncommitted", false, "review what is staged, not staged and not tracked")
	fs.StringVar(&r.base, "base", "", "review the changes since this `branch`")
	fs.StringVar(&r.commit, "commit", "", "review what this `commit` changes")
	fs.StringVar(&r.title, "title", "", "with --commit: `text` that names the commit")
	return cmd
}

// request is the review without the instructions of a prompt, which may still
// have to be read.
func (r *reviewFlags) request(prompt string) (*heddlev1.StartReviewRequest, error) {
	targets := 0
	for _, given := range []bool{r.uncommitted, r.base != "", r.commit != "", prompt != ""} {
		if given {
			targets++
		}
	}
	switch {
	case targets == 0:
		return nil, errors.New("review needs --uncommitted, --base, --commit or a prompt")
	case targets > 1:
		return nil, errors.New("give one of --uncommitted, --base, --commit and a prompt")
	case r.title != "" && r.commit == "":
		return nil, errors.New("--title goes with --commit")
	}
	req := &heddlev1.StartReviewRequest{}
	switch {
	case r.uncommitted:
		req.Target = &heddlev1.StartReviewRequest_Uncommitted{Uncommitted: &heddlev1.StartReviewRequest_UncommittedChanges{}}
	case r.base != "":
		req.Target = &heddlev1.StartReviewRequest_BaseBranch_{BaseBranch: &heddlev1.StartReviewRequest_BaseBranch{Branch: r.base}}
	case r.commit != "":
		req.Target = &heddlev1.StartReviewRequest_Commit_{Commit: &heddlev1.StartReviewRequest_Commit{Sha: r.commit, Title: r.title}}
	}
	return req, nil
}

// readPrompt reads what the run is asked for. A review of changes and a mere copy
// ask for nothing more.
func (f *execFlags) readPrompt(arg string, resume *execmode.Resume, stderr io.Writer) (string, error) {
	if f.review.GetTarget() != nil || resume != nil && resume.ForkOnly {
		execmode.Drain(os.Stdin)
		return "", nil
	}
	text, err := execmode.ReadPrompt(arg, os.Stdin, stderr)
	if err == nil && f.review != nil {
		f.review.Target = &heddlev1.StartReviewRequest_Custom{Custom: text}
	}
	return text, err
}
