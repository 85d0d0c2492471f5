package prompt

import (
	"fmt"
	"slices"
	"strings"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const (
	planMode = `<collaboration_mode>
Plan mode is on. Read and explore as much as you need, but change nothing: no patches, no commands that write. Ask with request_user_input where a
decision is the user's. When the plan is complete, give it once, in Markdown, between a line <proposed_plan> and a line </proposed_plan>.
</collaboration_mode>`
	defaultMode = `<collaboration_mode>
Plan mode is off. Do the work; request_user_input is unavailable.
</collaboration_mode>`
)

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// environment is the <environment_context> text. With before only what differs
// is in it, and it is empty when nothing does.
func environment(before *Context, c Context) string {
	now := facts(c)
	var was []fact
	if before != nil {
		was = facts(*before)
	}
	var b strings.Builder
	for _, f := range now {
		if !slices.Contains(was, f) {
			fmt.Fprintf(&b, "  <%s>%s</%s>\n", f.name, f.value, f.name)
		}
	}
	for _, f := range was {
		if !slices.ContainsFunc(now, func(n fact) bool { return n.name == f.name }) {
			fmt.Fprintf(&b, "  <%s></%s>\n", f.name, f.name)
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "<environment_context>\n" + b.String() + "</environment_context>"
}

type fact struct{ name, value string }

func facts(c Context) []fact {
	out := []fact{{"cwd", escaper.Replace(c.Cwd)}}
	add := func(name, value string) {
		if value != "" {
			out = append(out, fact{name, escaper.Replace(value)})
		}
	}
	add("shell", c.Shell)
	if !c.Now.IsZero() {
		add("current_date", c.Now.Format("2006-01-02"))
	}
	add("timezone", c.Timezone)
	add("sandbox_mode", levelName(c.Policy.GetLevel()))
	add("network_access", networkName(c.Policy))
	add("approval_policy", c.ApprovalPolicy)
	if roots := c.Policy.GetWritableRoots(); len(roots) > 0 && c.Policy.GetLevel() == heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE {
		add("writable_roots", strings.Join(roots, ", "))
	}
	return out
}

func levelName(l heddlev1.SandboxLevel) string {
	switch l {
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY:
		return "read-only"
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE:
		return "workspace-write"
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS:
		return "danger-full-access"
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_EXTERNAL:
		return "external-sandbox"
	}
	return "read-only"
}

func networkName(p *heddlev1.SandboxPolicy) string {
	if fullNetwork(p) {
		return "enabled"
	}
	return "restricted"
}

func fullNetwork(p *heddlev1.SandboxPolicy) bool {
	return p.GetNetwork() == heddlev1.NetworkMode_NETWORK_MODE_FULL || p.GetLevel() == heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS
}
