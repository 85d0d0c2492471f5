package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/agent/tool"
	"github.com/heddle-dev/heddle/controlplane/approval"
	executorv1 "github.com/heddle-dev/heddle/proto/heddle/executor/v1"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
	"github.com/heddle-dev/heddle/proto/heddle/v1/actionhash"
)

// permissionsFailed begins what the model is told where nothing was granted for a
// cause other than the person's word.
const permissionsFailed = "request_permissions failed: "

// permissionsCall asks the person for more than the sandbox allows. It runs
// alone, so that the calls of the next step are the first under a grant.
func (t *turn) permissionsCall(c *heddlev1.ToolCall, args *tool.RequestPermissions) *call {
	if !t.rt.Tools.RequestPermissions || t.private {
		return said(c, "unsupported call: "+tool.NameRequestPermissions)
	}
	s := t.lt.currentSettings()
	if why := approval.DecidePermissions(s.GetApprovalPolicy(), s.GetGranularApproval(), s.GetSandbox().GetLevel()); why != "" {
		return said(c, "request_permissions rejected: "+why)
	}
	return &call{req: c, alone: true, do: func(ctx context.Context) result { return t.askPermissions(ctx, c, args) }}
}

func (t *turn) askPermissions(ctx context.Context, c *heddlev1.ToolCall, args *tool.RequestPermissions) result {
	asked, err := t.wanted(ctx, args)
	if suspended(ctx) {
		return result{}
	}
	if err != nil {
		return text(permissionsFailed + err.Error())
	}
	risk := heddlev1.Risk_RISK_MEDIUM
	if asked.GetNetwork() {
		risk = heddlev1.Risk_RISK_HIGH
	}
	a, err := t.newApproval(&heddlev1.Item{Id: c.GetCallId(), StartedAtMs: t.agent.now()}, clipText(args.Reason, maxOneText), risk,
		actionhash.Permissions(asked, t.lt.currentSettings().GetSandbox()))
	if err != nil {
		return text(permissionsFailed + err.Error())
	}
	a.Subject = &heddlev1.Approval_Permissions{Permissions: asked}
	p := t.open(a)
	if err := t.commit(approvalRequested(a)); err != nil {
		p.Suspend()
		return text(permissionsFailed + err.Error())
	}
	return t.awaitPermissions(ctx, p)
}

// wanted is what is put to the person: folders as they are, links resolved, so
// that what is shown is what would be granted.
func (t *turn) wanted(ctx context.Context, args *tool.RequestPermissions) (*heddlev1.PermissionsRequest, error) {
	s := t.lt.currentSettings()
	if len(args.Read)+len(args.Write) > approval.MaxGrantPaths {
		return nil, fmt.Errorf("at most %d paths can be asked for at once", approval.MaxGrantPaths)
	}
	if len(t.lt.granted(t.id())) >= approval.MaxGrants {
		return nil, fmt.Errorf("this thread has %d grants already; work with these", approval.MaxGrants)
	}
	out := &heddlev1.PermissionsRequest{Cwd: s.GetCwd(), Network: args.Network}
	if args.Network && !approval.Networks(s.GetSandbox().GetNetwork()) {
		return nil, fmt.Errorf("the network has a list of hosts here: use the host, and the user is asked where the list does not decide")
	}
	for _, path := range args.Read {
		if path = join(s.GetCwd(), path); !slices.Contains(out.Read, path) {
			out.Read = append(out.Read, path)
		}
	}
	if len(out.Read) > 0 && len(s.GetSandbox().GetDenyRead()) > 0 {
		return nil, fmt.Errorf("what the user denied cannot be read by a permission, and everything else can be read without")
	}
	var named []string
	for _, path := range args.Write {
		named = append(named, join(s.GetCwd(), path))
	}
	places, err := t.locateFolders(ctx, named)
	if err != nil {
		return nil, err
	}
	for _, path := range named {
		at := places[path]
		if !at.GetDirectory() {
			return nil, fmt.Errorf("%s is no folder that exists; ask for the folder that holds it", path)
		}
		if !slices.Contains(out.Write, at.GetReal()) {
			out.Write = append(out.Write, at.GetReal())
		}
	}
	if err := t.checkFolders(places, named); err != nil {
		return nil, err
	}
	if len(out.Write) > 0 && !approval.Writes(s.GetSandbox().GetLevel(), s.GetCwd(), append(out.Write, t.lt.grantedRoots(t.id())...)) {
		return nil, fmt.Errorf("at read-only nothing can be made writable without the working folder %s: ask for it too", s.GetCwd())
	}
	return out, nil
}

// locate asks the executor where paths lead. It is asked anew each time.
func (lt *live) locate(ctx context.Context, paths []string) (map[string]*heddlev1.Place, error) {
	out := map[string]*heddlev1.Place{}
	if len(paths) == 0 {
		return out, nil
	}
	ctx, cancel := placesBound(ctx)
	defer cancel()
	s := lt.currentSettings()
	res, err := lt.act(ctx, &executorv1.Action{
		Policy: proto.CloneOf(s.GetSandbox()), Workspace: s.GetCwd(),
		Kind: &executorv1.Action_Inspect{Inspect: &executorv1.Inspect{Cwd: s.GetCwd(), Places: paths, PlacesOnly: true}},
	})
	if err != nil {
		return nil, err
	}
	if why := res.GetError(); why != nil {
		return nil, &inspectError{why}
	}
	for _, p := range res.GetInspection().GetPlaces() {
		out[p.GetPath()] = p
	}
	return out, nil
}

// userHome is the home folder of those who run commands; empty when not known.
func (t *turn) userHome() string {
	for _, kv := range t.rt.Env {
		if home, ok := strings.CutPrefix(kv, "HOME="); ok && filepath.IsAbs(home) {
			return filepath.Clean(home)
		}
	}
	return ""
}

// checkFolders fails when one of the located folders must not be granted.
func (t *turn) checkFolders(places map[string]*heddlev1.Place, named []string) error {
	p := approval.Private{UserHome: places[t.userHome()].GetReal(), Home: t.agent.cfg.Home}
	if real, err := filepath.EvalSymlinks(p.Home); err == nil {
		p.Home = real
	}
	for _, path := range named {
		if err := p.CheckRoot(places[path].GetReal()); err != nil {
			return err
		}
	}
	return nil
}

// locateFolders is locate for folders that are to be written in.
func (t *turn) locateFolders(ctx context.Context, named []string) (map[string]*heddlev1.Place, error) {
	asked := named
	if home := t.userHome(); home != "" && len(named) > 0 && !slices.Contains(named, home) {
		asked = append([]string{home}, named...)
	}
	return t.lt.locate(ctx, asked)
}

// awaitPermissions waits for the answer and puts what it grants in force.
func (t *turn) awaitPermissions(ctx context.Context, p *approval.Pending) result {
	return t.answered(ctx, p, func(a *heddlev1.Approval) result { return t.applyPermissions(ctx, a) })
}

// applyPermissions makes a grant durable before it is told or used. After a
// restart it finds the one that was recorded already.
func (t *turn) applyPermissions(ctx context.Context, a *heddlev1.Approval) result {
	switch {
	case a.GetDecidedBy() == approval.ByDeadline:
		return text("request_permissions was not answered in time; nothing was granted")
	case a.GetDecision() == heddlev1.Decision_DECISION_CANCEL:
		r := text("request_permissions was cancelled before receiving a response")
		r.cancel = a.GetDecidedBy() == approval.ByClient
		return r
	case a.GetDecision() == heddlev1.Decision_DECISION_UNUSABLE:
		return text("request_permissions got an answer that cannot be used; nothing was granted")
	}
	var g *heddlev1.PermissionGrant
	if accepts(a.GetDecision()) {
		g = approval.Granted(a.GetPermissions(), a.GetAnswer())
	}
	if g == nil {
		return text(grantText(nil))
	}
	for _, known := range t.lt.granted(t.id()) {
		if known.GetApprovalId() == a.GetId() {
			return text(grantText(known))
		}
	}
	if err := t.putInForce(ctx, a, g); err != nil {
		if suspended(ctx) {
			return result{}
		}
		return text(permissionsFailed + err.Error() + "; nothing was granted")
	}
	r := text(grantText(g))
	r.after = t.changedSurroundings()
	return r
}

// putInForce looks where the folders of a grant lead by now, records it, and lets
// it hold.
func (t *turn) putInForce(ctx context.Context, a *heddlev1.Approval, g *heddlev1.PermissionGrant) error {
	s := t.lt.currentSettings()
	if why := approval.DecidePermissions(s.GetApprovalPolicy(), s.GetGranularApproval(), s.GetSandbox().GetLevel()); why != "" {
		return errors.New(why) // the settings were changed meanwhile
	}
	if !unchanged(a, s) {
		return errors.New("the working folder or the sandbox policy was changed since it was asked")
	}
	places, err := t.locateFolders(ctx, g.GetWrite())
	if err != nil {
		return err
	}
	var pins []*heddlev1.Place
	for _, path := range g.GetWrite() {
		at := places[path]
		if at.GetReal() != path || !at.GetDirectory() {
			return fmt.Errorf("%s is not the folder any more that was asked for", path)
		}
		pins = append(pins, at)
	}
	if err := t.checkFolders(places, g.GetWrite()); err != nil {
		return err
	}
	if len(g.GetWrite()) > 0 && !approval.Writes(s.GetSandbox().GetLevel(), s.GetCwd(), append(slices.Clone(g.GetWrite()), t.lt.grantedRoots(t.id())...)) {
		return fmt.Errorf("nothing can be made writable at read-only without the working folder")
	}
	t.lt.placing.Lock()
	err = t.lt.notePlaces(ctx, g.GetWrite(), pins)
	t.lt.placing.Unlock()
	if err != nil {
		return err
	}
	g.ApprovalId, g.TurnId, g.GrantedAtMs = a.GetId(), t.id(), t.agent.now()
	g.Under = actionhash.Under(s.GetCwd(), s.GetSandbox())
	if err := t.commit(&heddlev1.Event{TurnId: t.id(), Payload: &heddlev1.Event_PermissionsGranted{
		PermissionsGranted: &heddlev1.PermissionsGranted{Grant: proto.CloneOf(g)}}}); err != nil {
		return err
	}
	t.lt.mu.Lock()
	held := unchanged(a, t.lt.settings)
	if held {
		t.lt.grants = append(slices.Clip(t.lt.grants), g)
	}
	t.lt.mu.Unlock()
	if !held {
		return errors.New("the working folder or the sandbox policy was changed meanwhile")
	}
	t.agent.cfg.Logger.Info("permissions granted", "thread", t.lt.id, "turn", t.id(), "approval", a.GetId(), "scope", g.GetScope(), "write", g.GetWrite(), "network", g.GetNetwork())
	return nil
}

// unchanged reports whether a request would still be laid over what it was asked
// for.
func unchanged(a *heddlev1.Approval, s *heddlev1.ThreadSettings) bool {
	asked := a.GetPermissions()
	return asked.GetCwd() == s.GetCwd() && bytes.Equal(a.GetActionHash(), actionhash.Permissions(asked, s.GetSandbox()))
}

// resumePermissions goes on with a request from before a restart.
func (t *turn) resumePermissions(c *pastCall, p *approval.Pending) *call {
	return &call{req: c.req, alone: true, do: func(ctx context.Context) result {
		switch {
		case p != nil:
			return t.awaitPermissions(ctx, p)
		case ctx.Err() != nil:
			return result{}
		}
		return t.applyPermissions(ctx, c.decided)
	}}
}

// grantText is the grant as JSON; without one nothing is permitted.
func grantText(g *heddlev1.PermissionGrant) string {
	type files struct {
		Read  []string `json:"read,omitempty"`
		Write []string `json:"write,omitempty"`
	}
	type network struct {
		Enabled bool `json:"enabled"`
	}
	var out struct {
		Permissions struct {
			Network    *network `json:"network,omitempty"`
			FileSystem *files   `json:"file_system,omitempty"`
		} `json:"permissions"`
		Scope string `json:"scope"`
	}
	out.Scope = approval.ScopeTurn
	if g != nil {
		out.Scope = g.GetScope()
		if g.GetNetwork() {
			out.Permissions.Network = &network{true}
		}
		if len(g.GetRead())+len(g.GetWrite()) > 0 {
			out.Permissions.FileSystem = &files{g.GetRead(), g.GetWrite()}
		}
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return permissionsFailed + err.Error()
	}
	return string(raw)
}

// granted are the grants that hold in a turn.
func (lt *live) granted(turnID string) []*heddlev1.PermissionGrant {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	return inTurn(lt.grants, turnID)
}

func inTurn(grants []*heddlev1.PermissionGrant, turnID string) []*heddlev1.PermissionGrant {
	var out []*heddlev1.PermissionGrant
	for _, g := range grants {
		if g.GetScope() == approval.ScopeSession || g.GetTurnId() == turnID {
			out = append(out, g)
		}
	}
	return out
}

func (lt *live) grantedRoots(turnID string) []string {
	var out []string
	for _, g := range lt.granted(turnID) {
		out = append(out, g.GetWrite()...)
	}
	return out
}

// grantedSettings are the settings under which a turn acts.
func (lt *live) grantedSettings(turnID string) *heddlev1.ThreadSettings {
	lt.mu.Lock()
	defer lt.mu.Unlock()
	return extended(lt.settings, inTurn(lt.grants, turnID))
}

// extended lays grants over settings; without any it is the settings themselves.
func extended(s *heddlev1.ThreadSettings, grants []*heddlev1.PermissionGrant) *heddlev1.ThreadSettings {
	if len(grants) == 0 {
		return s
	}
	out := proto.CloneOf(s)
	out.Sandbox = approval.Extend(s.GetSandbox(), s.GetCwd(), grants)
	return out
}

// endGranted ends the processes that were started under a grant of the turn: they
// would keep it beyond its end.
func (t *turn) endGranted() {
	since := int64(-1)
	for _, g := range t.lt.granted(t.id()) {
		if g.GetScope() == approval.ScopeTurn && (since < 0 || g.GetGrantedAtMs() < since) {
			since = g.GetGrantedAtMs()
		}
	}
	if since < 0 {
		return
	}
	t.lt.endProcesses(func(p *process) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.turnID == t.id() && p.item.GetStartedAtMs() >= since
	})
}
