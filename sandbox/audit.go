package sandbox

import (
	"fmt"
	"os"
)

// maxViolations bounds what one result tells.
const maxViolations = 100

// boundViolations says how many more there were. All of them were acted on.
func boundViolations(list []Violation) []Violation {
	if len(list) <= maxViolations {
		return list
	}
	more := Violation{Path: list[maxViolations].Path, What: fmt.Sprintf("this and %d more were found and treated alike; the quarantine holds them", len(list)-maxViolations-1),
		Quarantine: list[maxViolations].Quarantine}
	return append(list[:maxViolations:maxViolations], more)
}

// audit looks for what no mount prevents: a protected name that did not exist and was created, or a protected
// link that was replaced. It moves what it finds out of the workspace.
func (pl *plan) audit(quarantine string) []Violation {
	var out []Violation
	for _, path := range pl.absent {
		if _, err := os.Lstat(path); err == nil {
			out = append(out, remove(path, quarantine, "this protected name appeared while a command ran; if it is yours, take it back from there"))
		}
	}
	for _, id := range pl.guarded {
		if now := identify(id.path); !now.same(id) && now.exists {
			out = append(out, Violation{Path: id.path, What: "this protected name was replaced on the host while a command ran, which could write the new one"})
		}
	}
	for _, l := range pl.links {
		now := identify(l.path)
		if now.same(l) {
			continue
		}
		v := Violation{Path: l.path, What: "a command removed this protected link"}
		if now.exists {
			v = remove(l.path, quarantine, "a command replaced this protected link")
		}
		if err := os.Symlink(l.link, l.path); err != nil {
			v.What += fmt.Sprintf("; it could not be restored: %v", err)
		}
		out = append(out, v)
	}
	return out
}
