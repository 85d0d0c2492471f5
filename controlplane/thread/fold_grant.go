package thread

import (
	"bytes"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/proto/heddle/v1/actionhash"
)

// permissionsGranted adds what was granted in the open turn.
func (s *State) permissionsGranted(ev *heddlev1.Event, g *heddlev1.PermissionGrant, ch *Changes) error {
	if _, err := s.activeTurn(ev, "a grant"); err != nil {
		return err
	}
	if g.GetTurnId() != ev.GetTurnId() {
		return fmt.Errorf("fold: a grant of turn %q is not of the event's turn %q", g.GetTurnId(), ev.GetTurnId())
	}
	set := s.Row.GetSettings()
	if !bytes.Equal(g.GetUnder(), actionhash.Under(set.GetCwd(), set.GetSandbox())) {
		return nil // the settings were changed while it was being recorded
	}
	row := s.row(ch)
	row.Grants = append(slices.Clip(row.GetGrants()), g)
	return nil
}

// AfterTurn are the grants that outlive a turn.
func AfterTurn(grants []*heddlev1.PermissionGrant, turnID string) []*heddlev1.PermissionGrant {
	return slices.DeleteFunc(slices.Clone(grants), func(g *heddlev1.PermissionGrant) bool {
		return g.GetScope() != "session" && g.GetTurnId() == turnID
	})
}

// AfterSettings are the grants that outlive a change of settings: none does where
// what they were given on top of is another now.
func AfterSettings(grants []*heddlev1.PermissionGrant, before, after *heddlev1.ThreadSettings) []*heddlev1.PermissionGrant {
	if before.GetCwd() != after.GetCwd() || !proto.Equal(before.GetSandbox(), after.GetSandbox()) {
		return nil
	}
	return grants
}
