package appserver

import (
	"cmp"
	"context"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// hooksList answers with the hooks of folders, or of a loaded thread's folder.
func (s *Server) hooksList(ctx context.Context, _ *call, p *protocol.CwdsParams) (any, error) {
	if err := s.someLoaded(p.Thread); err != nil {
		return nil, err
	}
	cwds := s.absolutes(p.Cwds)
	for i := range cwds {
		cwds[i] = cmp.Or(cwds[i], s.session.Cwd()) // as the reference takes an empty one
	}
	if id := text(p.Thread); id != "" {
		t, err := s.getThread(ctx, id)
		if err != nil {
			return nil, err
		}
		cwds = []string{t.GetSettings().GetCwd()}
	}
	resp, err := catalog(ctx, s, func(ctx context.Context, c heddlev1.CatalogServiceClient) (*heddlev1.ListHooksResponse, error) {
		return c.ListHooks(ctx, &heddlev1.ListHooksRequest{Cwds: cwds})
	})
	if err != nil {
		return nil, err
	}
	data := []any{}
	for _, f := range resp.GetFolders() {
		hooks, warnings := []any{}, []any{}
		for _, h := range f.GetHooks() {
			hooks = append(hooks, list{
				"key": h.GetKey(), "eventName": h.GetEventName(), "handlerType": "command", "command": h.GetCommand(), "async": false,
				"matcher": some(h.GetMatcher()), "timeoutSec": h.GetTimeoutSec(), "statusMessage": some(h.GetStatusMessage()),
				"additionalContextLimit": nil, "sourcePath": h.GetSourcePath(), "source": h.GetSource(), "pluginId": nil, "environmentId": nil,
				"displayOrder": h.GetDisplayOrder(), "enabled": h.GetEnabled(), "isManaged": false, "currentHash": h.GetHash(), "trustStatus": h.GetTrust(),
			})
		}
		for _, w := range f.GetWarnings() {
			warnings = append(warnings, w)
		}
		data = append(data, list{"cwd": f.GetCwd(), "hooks": hooks, "warnings": warnings, "errors": []any{}})
	}
	return list{"data": data}, nil
}

// hookNote is the content of hook/started and hook/completed.
func hookNote(thread, turn string, run *heddlev1.HookRun) any {
	entries := []any{}
	for _, e := range run.GetEntries() {
		entries = append(entries, list{"kind": e.GetKind(), "text": protocol.Clip(e.GetText())})
	}
	out := list{
		"id": run.GetId(), "eventName": run.GetEventName(), "handlerType": "command", "executionMode": "sync", "scope": run.GetScope(),
		"sourcePath": run.GetSourcePath(), "source": run.GetSource(), "displayOrder": run.GetDisplayOrder(), "status": run.GetStatus(),
		"statusMessage": some(run.GetStatusMessage()), "startedAt": run.GetStartedAtMs() / 1000, "completedAt": nil, "durationMs": nil, "entries": entries,
	}
	if ms := run.GetCompletedAtMs(); ms > 0 {
		out["completedAt"], out["durationMs"] = ms/1000, run.GetDurationMs()
	}
	return list{"threadId": thread, "turnId": turn, "run": out}
}

// some is a text, nil when it is empty.
func some(s string) any {
	if s == "" {
		return nil
	}
	return s
}
