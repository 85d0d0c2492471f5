package approval

import (
	"fmt"

	"google.golang.org/protobuf/types/known/structpb"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Approval policies of a thread.
const (
	Untrusted = "untrusted"
	OnRequest = "on-request"
	Never     = "never"
	Granular  = "granular"
)

// KnownPolicy reports whether name is one of the approval policies.
func KnownPolicy(name string) bool {
	switch name {
	case Untrusted, OnRequest, Never, Granular:
		return true
	}
	return false
}

// Outcome is what happens to an action before anybody is asked.
type Outcome int

// Outcomes of a policy decision.
const (
	// Run starts the action under the thread's sandbox policy.
	Run Outcome = iota
	// RunUnsandboxed starts it outside the sandbox, once.
	RunUnsandboxed
	// Ask waits for an approval.
	Ask
	// Refuse tells the model the refusal; nothing runs and no item is made.
	Refuse
)

// Verdict is the outcome with the text that a refusal tells the model.
type Verdict struct {
	Outcome Outcome
	Refusal string
}

// Rule is what the user's prefix rules say of a command.
type Rule int

// Rule verdicts.
const (
	NoRule Rule = iota
	RuleAllow
	RulePrompt
	RuleForbid
)

// CommandFacts is what decides about one command.
type CommandFacts struct {
	// Policy is the thread's approval policy, Granular its flags.
	Policy   string
	Granular *structpb.Struct
	Level    heddlev1.SandboxLevel
	// Escalated is true when the model asks to leave the sandbox.
	Escalated bool
	// Dangerous is true for commands that destroy data (rm -rf and the like).
	Dangerous bool
	Rule      Rule
	// RuleEscalates is true when the allowing rule was given for an escalation.
	RuleEscalates bool
	// Remembered is true when exactly this was accepted for the session.
	Remembered bool
	// Shown is the command line for refusal texts.
	Shown string
}

// DecideCommand says whether a command runs, is asked for or is refused. A rule
// lifts the sandbox only for a call that asks to leave it (I7).
func DecideCommand(f CommandFacts) Verdict {
	if f.Rule == RuleForbid {
		return refuse("`%s` rejected: forbidden by a rule", f.Shown)
	}
	contained := f.Level == heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY || f.Level == heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE
	run := Verdict{Outcome: Run}
	if f.Escalated {
		run.Outcome = RunUnsandboxed
	}
	switch {
	case f.Remembered:
		return run
	case f.Rule == RuleAllow && (!f.Escalated || f.RuleEscalates):
		return run
	}
	asks := f.Dangerous || f.Rule == RulePrompt || (f.Escalated && contained)
	switch f.Policy {
	case Never:
		return withoutAsking(f, contained, run)
	case Granular:
		return granularCommand(f, contained, run)
	case Untrusted:
		return Verdict{Outcome: Ask}
	}
	if asks {
		return Verdict{Outcome: Ask}
	}
	return run
}

// granularCommand decides under the policy "granular": each reason to ask needs
// its own flag.
func granularCommand(f CommandFacts, contained bool, run Verdict) Verdict {
	byRule, other := f.Rule == RulePrompt, f.Dangerous || (f.Escalated && contained)
	switch {
	case !byRule && !other:
		return run
	case byRule && !granularFlag(f.Granular, "rules"):
		return unaskedRule(f)
	case other && !granularFlag(f.Granular, "sandbox_approval"):
		return withoutAsking(f, contained, run)
	}
	return Verdict{Outcome: Ask}
}

// withoutAsking is the verdict where nobody may be asked.
func withoutAsking(f CommandFacts, contained bool, run Verdict) Verdict {
	switch {
	case f.Escalated && contained:
		return refuse("approval policy is Never; reject command: escalated permissions cannot be requested under this policy")
	case f.Dangerous:
		return refuse("`%s` rejected: it may destroy data and the approval policy does not allow asking", f.Shown)
	case f.Rule == RulePrompt:
		return unaskedRule(f)
	}
	return run
}

func unaskedRule(f CommandFacts) Verdict {
	return refuse("`%s` rejected: a rule demands approval and the approval policy does not allow asking", f.Shown)
}

// PatchFacts is what decides about one planned patch.
type PatchFacts struct {
	Policy   string
	Granular *structpb.Struct
	Level    heddlev1.SandboxLevel
	// Outside is true when a path lies outside what the sandbox lets be written.
	Outside bool
	// Remembered is true when every path was accepted for the session.
	Remembered bool
}

// DecidePatch says whether a planned patch is written, asked for or refused.
func DecidePatch(f PatchFacts) Verdict {
	if f.Remembered {
		return Verdict{Outcome: Run}
	}
	if f.Policy == Untrusted {
		return Verdict{Outcome: Ask}
	}
	if !f.Outside {
		return Verdict{Outcome: Run}
	}
	if f.Policy == Never || (f.Policy == Granular && !granularFlag(f.Granular, "sandbox_approval")) {
		if f.Level == heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY {
			return refuse("patch rejected: writing is blocked by read-only sandbox; rejected by user approval settings")
		}
		return refuse("patch rejected: writing outside of the project; rejected by user approval settings")
	}
	return Verdict{Outcome: Ask}
}

func granularFlag(flags *structpb.Struct, name string) bool {
	return flags.GetFields()[name].GetBoolValue()
}

func refuse(format string, args ...any) Verdict {
	return Verdict{Outcome: Refuse, Refusal: fmt.Sprintf(format, args...)}
}
