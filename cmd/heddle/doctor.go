package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/heddle-dev/heddle/sandbox"
)

func newDoctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what this host can enforce",
		Long: `doctor makes a sandbox of each level, runs a command in it and reports which
mechanisms are in force, and each guarantee that does not hold with the reason and
what can be done, and where namespaces do not work what fallback = "landlock" would
give. It exits with 1 when workspace-write cannot be enforced with namespaces.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := sandboxConfig()
			if err != nil {
				return err
			}
			r := sandbox.Probe(cmd.Context(), cfg)
			if asJSON {
				err = writeReportJSON(cmd.OutOrStdout(), r)
			} else {
				err = writeReport(cmd.OutOrStdout(), r)
			}
			if err == nil && !r.Supports(sandbox.WorkspaceWrite) {
				err = &exitError{code: exitFailed}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	addStoreCheck(cmd)
	return cmd
}

// writeFallback says what [sandbox] fallback = "landlock" would give.
func writeFallback(b *strings.Builder, f *sandbox.FallbackReport) {
	if f.Cause != "" {
		fmt.Fprintf(b, "fallback    none: %s\n", f.Cause)
		return
	}
	b.WriteString("fallback    landlock, only with fallback = \"landlock\" in [sandbox]; it does not guarantee:\n")
	for _, g := range f.Gaps {
		fmt.Fprintf(b, "  %s\n    why: %s\n", g.Guarantee, g.Why)
	}
}

func writeReportJSON(w io.Writer, r sandbox.Report) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

func writeReport(w io.Writer, r sandbox.Report) error {
	var b strings.Builder
	fmt.Fprintf(&b, "backend     %s\nkernel      %s, Landlock ABI %d\n", r.Backend, r.Kernel, r.Landlock)
	for _, l := range []sandbox.Level{sandbox.ReadOnly, sandbox.WorkspaceWrite, sandbox.FullAccess} {
		state := "enforced"
		switch {
		case !r.Supports(l):
			state = "CANNOT BE ENFORCED"
		case !l.Contained():
			state = "available (no containment)"
		}
		fmt.Fprintf(&b, "%-20s%s\n", l, state)
	}
	if r.CgroupKill {
		fmt.Fprintf(&b, "commands    in cgroups below %s", r.Cgroup)
		if len(r.Controllers) > 0 {
			fmt.Fprintf(&b, " (%s)", strings.Join(r.Controllers, ", "))
		}
		b.WriteString("\n")
	} else {
		b.WriteString("commands    under a subreaper each\n")
	}
	if r.DeniedPaths {
		b.WriteString("deny_read   hidden by mounts, patterns included\n")
	}
	if f := r.Fallback; f != nil {
		writeFallback(&b, f)
	}
	if len(r.Gaps) == 0 {
		b.WriteString("gaps        none\n")
	}
	for _, g := range r.Gaps {
		fmt.Fprintf(&b, "\ngap: %s\n  why: %s\n", g.Guarantee, g.Why)
		if g.Fix != "" {
			fmt.Fprintf(&b, "  fix: %s\n", g.Fix)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
