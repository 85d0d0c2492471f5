package prompt

import (
	"fmt"
	"strings"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Skill is one skill that the model may read.
type Skill struct{ Name, Description, Path string }

// maxSkillsBytes bounds the list of skills.
const maxSkillsBytes = 24 << 10

// skillsText is the developer's list of skills; empty without any.
func skillsText(skills []Skill) string {
	if len(skills) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("<skills_instructions>\nA skill is a file of instructions for one kind of task. When the user names one ($name), or the task is clearly what its description says, read its file " +
		"in full before you begin, and follow it. Paths in it are relative to its folder. Read no more of it than the task needs.\nSkills:\n")
	for i, s := range skills {
		line := fmt.Sprintf("- %s: %s (file: %s)\n", s.Name, s.Description, s.Path)
		if b.Len()+len(line) > maxSkillsBytes {
			fmt.Fprintf(&b, "(%d more are not listed)\n", len(skills)-i)
			break
		}
		b.WriteString(line)
	}
	b.WriteString("</skills_instructions>")
	return b.String()
}

// SkillText returns the user message with a skill that an input names.
func SkillText(name, path, text string) *heddlev1.HistoryEntry {
	return message("user", "<skill>\n<name>"+escaper.Replace(name)+"</name>\n<path>"+escaper.Replace(path)+"</path>\n"+text+"\n</skill>")
}
