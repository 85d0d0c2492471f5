package thread_test

import (
	"testing"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/proto/heddle/v1/actionhash"
)

func grantedIn(turn, scope string) *ev {
	return &ev{TurnId: turn, Payload: &heddlev1.Event_PermissionsGranted{PermissionsGranted: &heddlev1.PermissionsGranted{
		Grant: &heddlev1.PermissionGrant{ApprovalId: turn + scope, TurnId: turn, Scope: scope, Network: true,
			Under: actionhash.Under("/w", &heddlev1.SandboxPolicy{Level: heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE})}}}}
}

func settings(cwd string, level heddlev1.SandboxLevel, model string) *ev {
	return &ev{Payload: &heddlev1.Event_SettingsChanged{SettingsChanged: &heddlev1.SettingsChanged{Settings: &heddlev1.ThreadSettings{
		Cwd: cwd, Model: model, Sandbox: &heddlev1.SandboxPolicy{Level: level}}}}}
}

// The grant of a turn ends with it; that of a session ends when what it was laid
// over is changed.
func TestHowLongGrantsLast(t *testing.T) {
	const write, read = heddlev1.SandboxLevel_SANDBOX_LEVEL_WORKSPACE_WRITE, heddlev1.SandboxLevel_SANDBOX_LEVEL_READ_ONLY
	open := []*ev{created(), settings("/w", write, "a"), accepted("t", "q"), started("t", 1), grantedIn("t", "turn"), grantedIn("t", "session")}
	for name, c := range map[string]struct {
		events []*ev
		want   int
	}{
		"in the turn":       {open, 2},
		"after it":          {plus(open, completed("t")), 1},
		"another model":     {plus(open, settings("/w", write, "b")), 2},
		"another folder":    {plus(open, settings("/x", write, "a")), 0},
		"another sandbox":   {plus(open, completed("t"), settings("/w", read, "a")), 0},
		"laid over another": {plus(open, settings("/x", write, "a"), grantedIn("t", "session")), 0},
		"the next turn":     {plus(open, completed("t"), accepted("u", "q"), started("u", 1), grantedIn("u", "turn")), 2},
	} {
		st, _, err := fold(t, c.events...)
		if err != nil || len(st.Row.GetGrants()) != c.want {
			t.Errorf("%s: %v, want %d (%v)", name, st.Row.GetGrants(), c.want, err)
		}
	}
	for name, events := range map[string][]*ev{
		"no turn":      {created(), grantedIn("t", "session")},
		"ended turn":   plus(open, completed("t"), grantedIn("t", "session")),
		"another turn": plus(open, &ev{TurnId: "t", Payload: grantedIn("u", "session").Payload}),
	} {
		if _, _, err := fold(t, events...); err == nil {
			t.Errorf("%s: was folded", name)
		}
	}
}
