package prompt

import (
	"fmt"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// modeText is the developer's text on the collaboration mode.
func modeText(c Context) string {
	switch {
	case c.ModeInstructions != "":
		return "<collaboration_mode>\n" + c.ModeInstructions + "\n</collaboration_mode>"
	case c.PlanMode:
		return planMode
	}
	return defaultMode
}

const (
	friendlyTone = `<personality>
Your tone is friendly: warm and encouraging, as with a colleague whom you like to work with. Say "we" where the work is shared, explain what may be new
to the user, and be patient with questions. This changes how you write, not what you do, and never what is true.
</personality>`
	pragmaticTone = `<personality>
Your tone is pragmatic: direct, factual and short. Lead with the result or the next step, name trade-offs and risks plainly, and leave praise and small
talk out. This changes how you write, not what you do, and never what is true.
</personality>`
	plainTone = `<personality>
No particular tone is asked for any more.
</personality>`
)

// toneText asks for a tone; it is empty where none is named.
func toneText(personality string) string {
	switch personality {
	case "friendly":
		return friendlyTone
	case "pragmatic":
		return pragmaticTone
	}
	return ""
}

const reviewer = `You review changes that somebody else made to a code base. Read the changes and as much around them as you need; run commands that read
or test, and change nothing.

Report what the author would want to fix: bugs, regressions, security holes, broken contracts. Each finding must be real, new with these changes,
and shown by the code. Leave out taste, style and praise. No finding at all is a good answer.

Answer with one JSON object and nothing around it:
{"findings": [{"title": "at most 80 characters", "body": "one paragraph: what goes wrong, when, and why", "confidence_score": 0.0 to 1.0,
"priority": 0 (worst) to 3, "code_location": {"absolute_file_path": "/abs/path", "line_range": {"start": 1, "end": 2}}}],
"overall_correctness": "patch is correct" or "patch is incorrect", "overall_explanation": "one to three sentences", "overall_confidence_score": 0.0 to 1.0}
Keep line ranges as short as the finding allows; they must overlap the changes.`

// Review returns the whole input of a reviewer: its instructions, the
// surroundings, and what it is asked.
func Review(c Context, ask string) []*heddlev1.HistoryEntry {
	c.BaseInstructions, c.DeveloperInstructions, c.PlanMode, c.ModeInstructions, c.Personality = reviewer, "", false, "", ""
	return append(First(c), message("user", ask))
}

// ReviewRequested returns the user message that tells the conversation of a
// review; the findings follow as the assistant's answer.
func ReviewRequested(hint string) *heddlev1.HistoryEntry {
	return message("user", "<user_action>\n<action>review</action>\n<of>"+escaper.Replace(hint)+"</of>\nA reviewer was asked to look at this. Its findings follow, if there are any; act on them when the user asks for it.\n</user_action>")
}

// Goal returns the message that lets a turn work towards the goal.
func Goal(g *heddlev1.Goal) *heddlev1.HistoryEntry {
	budget := "none"
	if g.TokenBudget != nil {
		budget = fmt.Sprintf("%d tokens, of which %d are used", g.GetTokenBudget(), g.GetTokensUsed())
	}
	return message("user", "<goal_context>\nNobody wrote this message: the thread has a goal, and it is not reached yet.\n<objective>\n"+escaper.Replace(g.GetObjective())+
		"\n</objective>\n<budget>"+budget+"</budget>\nDo the next real step towards it. Check what is done against the objective before you call it done. Where you cannot go on without the user, say what you need and do nothing else.\n</goal_context>")
}
