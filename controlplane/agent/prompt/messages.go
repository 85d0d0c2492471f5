package prompt

import (
	"encoding/base64"
	"fmt"
	"strings"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

const aborted = `<turn_aborted>
The user interrupted the previous turn. Commands that were running have been ended; they and tools that were cut off may have done part of their work.
</turn_aborted>`

// Aborted returns the entry that tells the model that a turn was interrupted.
func Aborted() *heddlev1.HistoryEntry { return message("user", aborted) }

const compact = `The conversation is about to exceed its context window. Write a summary from which another model can go on with the work without seeing
anything else. It cannot look anything of this up again, so say:
- what the user wants, in their own words where they matter, with every constraint and preference;
- what has been done, which files were changed and how, and what was decided for which reason;
- what was tried and failed;
- the state of the work now, the commands that check it, and the next steps.
Answer with the summary alone.`

// Compact returns the user message that asks for a summary, in the person's own
// words where the config has them.
func Compact(words string) *heddlev1.HistoryEntry {
	if words == "" {
		words = compact
	}
	return message("user", words)
}

// Summary returns the user message that holds a summary after compaction.
func Summary(text string) *heddlev1.HistoryEntry {
	return message("user", "The conversation so far was replaced by this summary, written by the model that worked on it. Go on from here; do not repeat what is done.\n\n"+text)
}

// DenialOverridden returns the developer message after the person allowed what the
// approval reviewer had denied; action names it.
func DenialOverridden(action string) *heddlev1.HistoryEntry {
	return message("developer", "The user has looked at an action that the approval reviewer denied, and allows exactly this one: "+action+"\nYou may ask for it again if it is still needed.")
}

// SubAgent returns the user message that says what became of a sub-agent's work;
// note is JSON.
func SubAgent(note string) *heddlev1.HistoryEntry {
	return message("user", "<subagent_notification>\n"+note+"\n</subagent_notification>")
}

// RuleAdded returns the developer message after a rule was added by an approval.
func RuleAdded(prefix []string) *heddlev1.HistoryEntry {
	return message("developer", "The user allowed commands with this prefix for good: "+prefixText(prefix))
}

// ShellCommand returns the user message about a command that the person ran. exit
// is nil when it did not end by itself.
func ShellCommand(cmd string, exit *int32, output string) *heddlev1.HistoryEntry {
	code := "none (the command was ended)"
	if exit != nil {
		code = fmt.Sprint(*exit)
	}
	return message("user", "<user_shell_command>\n<command>\n"+cmd+"\n</command>\n<result>\nExit code: "+code+"\nOutput:\n"+output+"\n</result>\n</user_shell_command>")
}

// UserInput returns the user message of a turn's input. References to skills are
// the caller's to resolve; they add nothing here. What an agent wrote is no
// person's word.
func UserInput(m *heddlev1.UserMessage) *heddlev1.HistoryEntry {
	out := &heddlev1.HistoryMessage{Role: "user", Person: !m.GetFromAgent()}
	images := 0
	for _, p := range m.GetParts() {
		switch x := p.GetPart().(type) {
		case *heddlev1.InputPart_Text:
			out.Parts = append(out.Parts, textPart(x.Text))
		case *heddlev1.InputPart_ImageUrl:
			images++
			part := imagePart(x.ImageUrl)
			part.ImageDetail = p.GetImageDetail()
			out.Parts = append(out.Parts, part)
		case *heddlev1.InputPart_LocalImage:
			images++
			for _, part := range LocalImage(fmt.Sprintf("[Image #%d]", images), x.LocalImage, p.GetImageMime(), p.GetImageData()) {
				if part.GetImageUrl() != "" {
					part.ImageDetail = p.GetImageDetail()
				}
				out.Parts = append(out.Parts, part)
			}
		}
	}
	return &heddlev1.HistoryEntry{Entry: &heddlev1.HistoryEntry_Message{Message: out}}
}

// LocalImage returns the parts that show a file to the model: its name and path
// around a data URL, or a note when its bytes could not be read.
func LocalImage(name, path, mime string, data []byte) []*heddlev1.HistoryPart {
	if len(data) == 0 {
		return []*heddlev1.HistoryPart{textPart(fmt.Sprintf("The image %s (%s) could not be read.", name, path))}
	}
	attr := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")
	return []*heddlev1.HistoryPart{
		textPart(fmt.Sprintf(`<image name="%s" path="%s">`, attr.Replace(name), attr.Replace(path))),
		imagePart(DataURL(mime, data)),
		textPart("</image>"),
	}
}

// DataURL packs bytes into a URL.
func DataURL(mime string, data []byte) string {
	if mime == "" {
		mime = "application/octet-stream"
	}
	return "data:" + mime + ";base64," + base64.StdEncoding.EncodeToString(data)
}

func imagePart(url string) *heddlev1.HistoryPart {
	return &heddlev1.HistoryPart{Part: &heddlev1.HistoryPart_ImageUrl{ImageUrl: url}}
}

// HookContext is what a hook adds to what the model knows.
func HookContext(text string) *heddlev1.HistoryEntry { return message("developer", text) }

// HookPrompt is what stop hooks give the model to go on with.
func HookPrompt(p *heddlev1.HookPrompt) *heddlev1.HistoryEntry {
	var b strings.Builder
	for _, f := range p.GetFragments() {
		fmt.Fprintf(&b, "<hook_prompt hook_run_id=%q>%s</hook_prompt>", f.GetHookRunId(), f.GetText())
	}
	return message("user", b.String())
}
