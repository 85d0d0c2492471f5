package agent

import (
	"strings"
	"testing"
)

// split feeds a text in chunks of a size and returns message and plan.
func split(text string, size int) (message, plan string, opened, closed int) {
	v := &planView{}
	var m, p strings.Builder
	take := func(pieces []piece) {
		for _, x := range pieces {
			switch {
			case x.open:
				opened++
			case x.close:
				closed++
			case x.inside:
				p.WriteString(x.text)
			default:
				m.WriteString(x.text)
			}
		}
	}
	for len(text) > 0 {
		n := min(size, len(text))
		take(v.feed(text[:n]))
		text = text[n:]
	}
	take(v.end())
	return m.String(), p.String(), opened, closed
}

// However the text is cut into deltas, the same plan comes out.
func TestPlanIsSeparated(t *testing.T) {
	for name, c := range map[string]struct {
		text, message, plan string
		plans               int
	}{
		"none":            {"just text\nmore", "just text\nmore", "", 0},
		"between":         {"intro\n<proposed_plan>\n# Plan\n- a\n</proposed_plan>\noutro", "intro\noutro", "# Plan\n- a\n", 1},
		"alone":           {"<proposed_plan>\na\n</proposed_plan>", "", "a\n", 1},
		"spaces after":    {"<proposed_plan> \r\na\n</proposed_plan>\t\nb", "b", "a\n", 1},
		"no end":          {"x\n<proposed_plan>\na", "x\n", "a", 1},
		"within a line":   {"see <proposed_plan> here\n", "see <proposed_plan> here\n", "", 0},
		"almost a tag":    {"<proposed_pla\n<proposed_plans>\n", "<proposed_pla\n<proposed_plans>\n", "", 0},
		"close without":   {"</proposed_plan>\na", "</proposed_plan>\na", "", 0},
		"open inside":     {"<proposed_plan>\n<proposed_plan>\n</proposed_plan>\n", "", "<proposed_plan>\n", 1},
		"two":             {"<proposed_plan>\na\n</proposed_plan>\nx\n<proposed_plan>\nb\n</proposed_plan>", "x\n", "a\nb\n", 2},
		"other alphabets": {"é\n<proposed_plan>\nü\n</proposed_plan>\nß", "é\nß", "ü\n", 1},
		"empty":           {"", "", "", 0},
	} {
		for _, size := range []int{1, 2, 3, 7, 1000} {
			message, plan, opened, closed := split(c.text, size)
			if message != c.message || plan != c.plan || opened != c.plans || closed != c.plans {
				t.Errorf("%s by %d: message %q, plan %q, %d opened, %d closed", name, size, message, plan, opened, closed)
			}
		}
	}
}
