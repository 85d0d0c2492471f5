package agent

import (
	"fmt"
	"strings"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// maxViolations bounds what the model is told about one command's.
const maxViolations = 8

// maxShownCommand is how much of a command a warning shows, in characters.
const maxShownCommand = 60

// facts says to the model what the sandbox did about a command, which its exit
// status and output do not show.
func facts(v *heddlev1.ProcessVerdict) []string {
	var out []string
	add := func(set bool, text string) {
		if set {
			out = append(out, text)
		}
	}
	add(v.GetTimedOut(), "the time limit passed and the command was ended")
	add(v.GetOomKilled(), "the sandbox's memory limit was hit and a process was killed")
	add(v.GetPidsHit(), "the sandbox's limit of processes was hit")
	add(v.GetDiskLow(), "the command was ended because too little space was left on the disk")
	add(v.GetSandboxLost(), "the sandbox was lost; how the command ended is not known")
	for i, p := range v.GetViolations() {
		if i == maxViolations {
			return append(out, fmt.Sprintf("%d more refusals", len(v.GetViolations())-i))
		}
		out = append(out, fmt.Sprintf("%s: %s", p.GetPath(), p.GetWhat()))
	}
	return out
}

// violationWarning tells the user what a command did that the sandbox could not
// prevent but undid, or refused; nil when there was nothing.
func violationWarning(turnID, cmd string, v *heddlev1.ProcessVerdict) []*heddlev1.Event {
	list := facts(&heddlev1.ProcessVerdict{Violations: v.GetViolations()})
	if len(list) == 0 {
		return nil
	}
	if r := []rune(cmd); len(r) > maxShownCommand {
		cmd = string(r[:maxShownCommand]) + "..."
	}
	return []*heddlev1.Event{warningRaised(turnID, "The sandbox stopped something of `"+cmd+"`: "+strings.Join(list, "; "))}
}
