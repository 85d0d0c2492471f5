package robust

import (
	"fmt"
	"regexp"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Token is the pattern of what a command appends to the side-effect file: each
// tool call of the model has one of its own.
var Token = regexp.MustCompile(`TKN-[0-9]+-[0-9]+`)

// Effects is what CheckEffects counted.
type Effects struct {
	Lines, Commands, Unknown int
}

// CheckEffects compares the lines of the side-effect file with the commands in
// all logs (I3): no line twice, no line without the item of its command, and a
// command that is said to have succeeded left its line.
func CheckEffects(lines []string, logs map[string][]*heddlev1.Event) (Effects, []Violation) {
	var out []Violation
	count := map[string]int{}
	for _, l := range lines {
		count[l]++
	}
	sum := Effects{Lines: len(lines)}
	known := map[string]bool{}
	for thread, events := range logs {
		for _, ev := range events {
			item := ev.GetItemCompleted().GetItem()
			cmd := item.GetCommandExecution()
			if cmd == nil {
				continue
			}
			sum.Commands++
			if cmd.GetError().GetCode() == "outcome_unknown" {
				sum.Unknown++
			}
			for _, tok := range Token.FindAllString(cmd.GetCommand(), -1) {
				known[tok] = true
				done := item.GetStatus() == heddlev1.ItemStatus_ITEM_STATUS_COMPLETED && cmd.ExitCode != nil && cmd.GetExitCode() == 0
				if done && count[tok] == 0 {
					out = append(out, Violation{thread, ev.GetSeq(), fmt.Sprintf("command %q succeeded and left no line", cmd.GetCommand())})
				}
				if item.GetStatus() == heddlev1.ItemStatus_ITEM_STATUS_DECLINED && count[tok] > 0 {
					out = append(out, Violation{thread, ev.GetSeq(), fmt.Sprintf("command %q was declined and ran", cmd.GetCommand())})
				}
			}
		}
	}
	for tok, n := range count {
		if n > 1 {
			out = append(out, Violation{What: fmt.Sprintf("%s ran %d times", tok, n)})
		}
		if !known[tok] {
			out = append(out, Violation{What: fmt.Sprintf("%s ran and no item says so", tok)})
		}
	}
	return sum, out
}
