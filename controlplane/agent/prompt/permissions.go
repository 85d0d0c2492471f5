package prompt

import (
	"encoding/json"
	"strings"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// maxPrefixes bounds the list of allowed prefixes.
const maxPrefixes = 100

// permissions is the developer's text on what commands can and may do.
func permissions(c Context) string {
	var b strings.Builder
	b.WriteString("<permissions instructions>\n")
	b.WriteString("What commands can do (sandbox):\n")
	b.WriteString(sandboxText(c))
	b.WriteString("\nWhat needs the user's consent (approvals):\n")
	b.WriteString(approvalText(c))
	b.WriteString("</permissions instructions>")
	return b.String()
}

func sandboxText(c Context) string {
	var b strings.Builder
	p := c.Policy
	sandboxed := true
	switch p.GetLevel() {
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_FULL_ACCESS:
		b.WriteString("- `danger-full-access`: there is no sandbox. Commands can change everything that the user can change, so take care.\n")
		sandboxed = false
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_EXTERNAL:
		b.WriteString("- A sandbox outside of the harness contains the commands; the harness adds none.\n")
		sandboxed = false
	case heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE:
		b.WriteString("- `workspace-write`: files can be read everywhere. They can be written in the working folder")
		if c.Cwd != "" {
			b.WriteString(" `" + escaper.Replace(c.Cwd) + "`")
		}
		for _, r := range p.GetWritableRoots() {
			b.WriteString(", in `" + r + "`")
		}
		b.WriteString(" and in temporary folders.\n")
		b.WriteString(gitText(p))
		if !p.GetHostTmp() {
			b.WriteString("- `/tmp` is private to this conversation; other programs of the user do not see it.\n")
		}
	default:
		b.WriteString("- `read-only`: files can be read everywhere and written nowhere.\n")
	}
	if list := p.GetDenyRead(); sandboxed && len(list) > 0 {
		shown := list[:min(len(list), maxPrefixes)]
		b.WriteString("- These paths look empty, since they must not be read: `" + strings.Join(shown, "`, `") + "`")
		if len(shown) < len(list) {
			b.WriteString(" and more")
		}
		b.WriteString(".\n")
	}
	switch {
	case fullNetwork(p):
		b.WriteString("- The network can be used.\n")
	case sandboxed && p.GetNetwork() == heddlev1.NetworkMode_NETWORK_MODE_PROXIED:
		b.WriteString(proxiedText(p))
	case sandboxed:
		b.WriteString("- The network is off, except for connections between commands of this conversation on the loopback interface.\n")
	default:
		b.WriteString("- Take the network as off.\n")
	}
	return b.String()
}

// gitText is about the names that stay read-only in writable folders.
func gitText(p *heddlev1.SandboxPolicy) string {
	if p.GetGit() != heddlev1.GitMode_GIT_MODE_COMMIT {
		return "- `.git`, `.codex`, `.agents` and `.heddle` in these folders stay read-only, so git can look but not add, commit, stash or switch branches.\n"
	}
	return "- `.codex`, `.agents` and `.heddle` in these folders stay read-only. Git can add, commit, branch, stash, rebase and use worktrees, also where " +
		"`.git` is a file that names a directory elsewhere (a linked worktree, a submodule). Hooks, git's configuration, `info/` and alternates stay " +
		"read-only: leave `git config`, `git remote add` and `git submodule add` to the user.\n"
}

// proxiedText is about a network with lists; the variables that name the proxy
// are set for every command.
func proxiedText(p *heddlev1.SandboxPolicy) string {
	var b strings.Builder
	b.WriteString("- The network is reached through a proxy only (HTTP_PROXY, HTTPS_PROXY and ALL_PROXY are set; names are resolved by it). ")
	if list := p.GetNetworkAllow(); len(list) > 0 {
		shown := list[:min(len(list), maxPrefixes)]
		b.WriteString("Allowed hosts: " + strings.Join(shown, ", "))
		if len(shown) < len(list) {
			b.WriteString(" and more")
		}
		b.WriteString(". ")
	}
	if p.GetNetworkMiss() == heddlev1.NetworkMiss_NETWORK_MISS_DENY {
		b.WriteString("Other hosts are refused.\n")
	} else {
		b.WriteString("The user may be asked about other hosts while the command waits; else they are refused.\n")
	}
	return b.String()
}

func approvalText(c Context) string {
	escalates := c.Policy.GetLevel() == heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY || c.Policy.GetLevel() == heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE || c.Policy == nil
	var b strings.Builder
	switch c.ApprovalPolicy {
	case "never":
		return "- `never`: the user is not asked. Leave sandbox_permissions out: every request for more is refused. Do what is possible within the sandbox and say what was not.\n"
	case "untrusted":
		b.WriteString("- `untrusted`: the user is asked before every command and patch. Keep commands few, small and easy to judge.\n")
	case "granular":
		if on, _ := c.GranularApproval["sandbox_approval"].(bool); !on {
			return "- `granular`: the user is not asked about leaving the sandbox. Leave sandbox_permissions out: such requests are refused.\n"
		}
		b.WriteString("- `granular`: the user is asked about some things, leaving the sandbox among them.\n")
	default:
		b.WriteString("- `on-request`: commands run in the sandbox without a question. The user is asked when you ask to leave it, and before very destructive commands.\n")
	}
	if !escalates {
		return b.String()
	}
	b.WriteString(`- When an important command fails because of the sandbox (a write outside, the network), or cannot work within it, call exec_command again with
  sandbox_permissions "require_escalated" and a justification: one short question to the user that says what the command does and why. Do not ask
  in a message first. After approval that command, and only it, runs without the sandbox. Do not escalate what works inside.
- Add prefix_rule where the same kind of command will be needed again, such as ["npm", "install"]: narrow enough that the user can allow it for good.
  Never propose a shell, an interpreter, rm or a prefix of one general word.
- A patch to a path outside the writable folders is asked about by itself; nothing has to be set for it.
`)
	if list := prefixList(c.AllowedPrefixes); list != "" {
		b.WriteString("- The user has allowed these prefixes for good; commands with them run at once when you ask for escalation:\n" + list)
	}
	return b.String()
}

func prefixList(prefixes [][]string) string {
	var b strings.Builder
	for i, p := range prefixes {
		if i == maxPrefixes {
			b.WriteString("  (and more)\n")
			break
		}
		b.WriteString("  " + prefixText(p) + "\n")
	}
	return b.String()
}

func prefixText(p []string) string {
	raw, err := json.Marshal(p)
	if err != nil {
		return "[]"
	}
	return string(raw)
}
