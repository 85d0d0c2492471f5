package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Marks keeps small durable facts of the home.
type Marks interface {
	Meta(ctx context.Context, key string) ([]byte, error)
	SetMeta(ctx context.Context, key string, value []byte) error
}

// plainKey marks a rule that came from an approval without escalation; such a
// rule never lifts the sandbox (I7).
func plainKey(prefix []string) string {
	sum := sha256.Sum256([]byte(strings.Join(prefix, "\x00")))
	return "rule/plain/" + hex.EncodeToString(sum[:])
}

// plainRule reports whether a rule was given for commands in the sandbox only.
// A rule that cannot be looked up is taken for plain.
func (a *Agent) plainRule(prefix []string) bool {
	v, err := a.cfg.Marks.Meta(a.ctx, plainKey(prefix))
	return err != nil || v != nil
}

// addRule keeps an allowed prefix. The mark is written first, so that no crash
// leaves a rule that lifts more than was given.
func (a *Agent) addRule(ctx context.Context, prefix []string, escalated bool) error {
	known := false
	for _, p := range a.cfg.Rules.Allowed() {
		known = known || strings.Join(p, "\x00") == strings.Join(prefix, "\x00")
	}
	ctx = context.WithoutCancel(ctx)
	if !escalated {
		// A rule that lifts the sandbox already is not taken back by a lesser one.
		if known {
			return nil
		}
		if err := a.cfg.Marks.SetMeta(ctx, plainKey(prefix), []byte{1}); err != nil {
			return err
		}
		return a.cfg.Rules.Append(prefix)
	}
	if !known {
		if err := a.cfg.Rules.Append(prefix); err != nil {
			return err
		}
	}
	return a.cfg.Marks.SetMeta(ctx, plainKey(prefix), nil)
}
