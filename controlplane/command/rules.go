package command

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Verdict is what rules say about a command.
type Verdict int

const (
	// NoRule: no rule matches, or not every part is allowed.
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

// Warning is one place of a rules file that was not understood.
type Warning struct {
	Path string
	Line int
	Text string
}

// maxRulesFile bounds the size of a rules file.
const maxRulesFile = 4 << 20

// Rules are the prefix rules of one home. Safe for concurrent use.
type Rules struct {
	path string

	mu    sync.RWMutex
	rules []Rule
}

// RulesPath is the rules file of a home.
func RulesPath(home string) string { return filepath.Join(home, "rules", "default.rules") }

// LoadRules reads home/rules/default.rules. A missing file is no rules; what is
// not understood is a warning and no rule.
func LoadRules(home string) (*Rules, []Warning, error) {
	r := &Rules{path: RulesPath(home)}
	data, err := os.ReadFile(r.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, nil, nil
	case err != nil:
		return r, nil, fmt.Errorf("read rules: %w", err)
	case len(data) > maxRulesFile:
		return r, nil, fmt.Errorf("read rules %s: larger than %d bytes", r.path, maxRulesFile)
	}
	rules, warnings := parseRules(string(data))
	for i := range warnings {
		warnings[i].Path = r.path
	}
	r.rules = rules
	return r, warnings, nil
}

// Decide returns the strictest verdict over the parts of a command line, and the
// rule that gave it. Forbid and Prompt hold for every simple command wherever it
// stands. Allow needs a line of plain commands, each with an allow rule or known
// to be safe, and at least one rule.
func (r *Rules) Decide(cmd string) (Verdict, *Rule) {
	r.mu.RLock()
	rules := r.rules
	r.mu.RUnlock()
	if len(rules) == 0 {
		return NoRule, nil
	}
	l := parse(cmd)
	var strictest *Rule
	allowed := l.err == nil && l.plain
	var allow *Rule
	for _, c := range l.calls {
		best := match(rules, c.args)
		switch {
		case best == nil:
			allowed = allowed && safeCall(c)
		case best.Decision == Allow:
			if allow == nil {
				allow = best
			}
		case strictest == nil || best.Decision > strictest.Decision:
			strictest = best
		}
	}
	switch {
	case strictest != nil:
		return strictest.Decision, strictest
	case allowed && allow != nil:
		return Allow, allow
	}
	return NoRule, nil
}

// match returns the strictest rule for one argv. A rule that allows means the
// program as it is written, any other also the program behind a path.
func match(rules []Rule, args []string) *Rule {
	var best *Rule
	byName := append([]string{base(args[0])}, args[1:]...)
	for i := range rules {
		r := &rules[i]
		hit := hasPrefix(args, r.Pattern) || r.Decision != Allow && hasPrefix(byName, r.Pattern)
		if hit && (best == nil || r.Decision > best.Decision) {
			best = r
		}
	}
	return best
}

// Append adds an allow rule for a prefix: durably in the file, then in memory. A
// rule that exists is not written again.
func (r *Rules) Append(prefix []string) error {
	if len(prefix) == 0 || prefix[0] == "" || slices.Contains(prefix, opaque) {
		return errors.New("add rule: the prefix is empty")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(r.rules, func(x Rule) bool { return x.Decision == Allow && slices.Equal(x.Pattern, prefix) }) {
		return nil
	}
	if err := appendLine(r.path, formatRule(prefix)); err != nil {
		return fmt.Errorf("add rule: %w", err)
	}
	// A new slice: readers may still use the old one.
	r.rules = append(slices.Clone(r.rules), Rule{Pattern: slices.Clone(prefix), Decision: Allow})
	return nil
}

func appendLine(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	// A file whose last line has no end must not swallow the new rule.
	if info, err := f.Stat(); err == nil && info.Size() > 0 {
		var last [1]byte
		if _, err := f.ReadAt(last[:], info.Size()-1); err == nil && last[0] != '\n' {
			text = "\n" + text
		}
	}
	if _, err := f.WriteString(text + "\n"); err != nil {
		return err
	}
	return f.Sync()
}

// Allowed returns the prefixes with an allow rule, in file order.
func (r *Rules) Allowed() [][]string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var out [][]string
	for _, x := range r.rules {
		if x.Decision == Allow {
			out = append(out, slices.Clone(x.Pattern))
		}
	}
	return out
}

func formatRule(prefix []string) string {
	quoted := make([]string, len(prefix))
	for i, p := range prefix {
		quoted[i] = quoteString(p)
	}
	return `prefix_rule(pattern=[` + strings.Join(quoted, ", ") + `], decision="allow")`
}
