package command

// Verdict is what rules say about a command.
type Verdict int

const (
	// NoRule: no rule matches every part.
	NoRule Verdict = iota
	Allow
	Prompt
	Forbid
)

// Rule is one prefix rule.
type Rule struct {
	Pattern  []string
	Decision Verdict
	// Justification is shown when the rule refuses; may be empty.
	Justification string
}

// Warning is one line of a rules file that was not understood.
type Warning struct {
	Path string
	Line int
	Text string
}

// Rules are the prefix rules of one home. Safe for concurrent use.
type Rules struct{}

// LoadRules reads home/rules/default.rules. A missing file is no rules; a bad line
// is a warning.
func LoadRules(home string) (*Rules, []Warning, error) { return &Rules{}, nil, nil }

// Decide returns the strictest verdict over the parts of a command line, and the
// rule that gave it. Allow needs an allow rule for every part.
func (r *Rules) Decide(cmd string) (Verdict, *Rule) { return NoRule, nil }

// Append adds an allow rule for a prefix, in the file first.
func (r *Rules) Append(prefix []string) error { return nil }

// Allowed returns the prefixes with an allow rule, in file order.
func (r *Rules) Allowed() [][]string { return nil }
