package appserver

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/google/uuid"
	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
)

// entry is one method: how its parameters are decoded and what it does.
type entry struct {
	decode func(raw json.RawMessage) (params any, experimental []string, err error)
	run    func(s *Server, ctx context.Context, r *call, params any) (any, error)
	// inline methods run in the reading goroutine, before the next message.
	inline bool
}

// handle makes an entry of a typed handler.
func handle[P any](f func(*Server, context.Context, *call, *P) (any, error)) entry {
	return entry{
		decode: func(raw json.RawMessage) (any, []string, error) {
			p := new(P)
			experimental, err := protocol.Decode(raw, p)
			return p, experimental, err
		},
		run: func(s *Server, ctx context.Context, r *call, params any) (any, error) {
			return f(s, ctx, r, params.(*P))
		},
	}
}

// inline makes an entry that runs before the next message is read.
func inline[P any](f func(*Server, context.Context, *call, *P) (any, error)) entry {
	e := handle(f)
	e.inline = true
	return e
}

// bare makes an entry of a method without parameters.
func bare(f func(*Server, context.Context, *call) (any, error)) entry {
	return entry{
		decode: func(raw json.RawMessage) (any, []string, error) { return nil, nil, protocol.NoMore(raw) },
		run:    func(s *Server, ctx context.Context, r *call, _ any) (any, error) { return f(s, ctx, r) },
	}
}

// fixed makes an entry with one true answer.
func fixed[P any](result any) entry {
	return handle(func(*Server, context.Context, *call, *P) (any, error) { return result, nil })
}

// optional makes an entry of a method whose parameters may be left out as a
// whole.
func optional[P any](f func(*Server, context.Context, *call, *P) (any, error)) entry {
	e := handle(f)
	decode := e.decode
	e.decode = func(raw json.RawMessage) (any, []string, error) {
		if protocol.NoMore(raw) == nil {
			return new(P), nil, nil
		}
		return decode(raw)
	}
	return e
}

// paged is fixed for a list that has one page.
func paged[P any](cursor func(*P) *string, result any) entry {
	return handle(func(_ *Server, _ context.Context, _ *call, p *P) (any, error) {
		if c := cursor(p); c != nil {
			return nil, invalid("invalid cursor: " + *c)
		}
		return result, nil
	})
}

type list = map[string]any

// table returns what is done for a method.
func table(method string) (entry, bool) {
	switch method {
	case "initialize":
		return inline((*Server).initialize), true
	case "thread/start":
		return handle((*Server).threadStart), true
	case "thread/resume":
		return handle((*Server).threadResume), true
	case "thread/fork":
		return handle((*Server).threadFork), true
	case "thread/read":
		return handle((*Server).threadRead), true
	case "thread/list":
		return handle((*Server).threadList), true
	case "thread/loaded/list":
		return handle((*Server).threadLoadedList), true
	case "thread/archive":
		return handle((*Server).threadArchive), true
	case "thread/unarchive":
		return handle((*Server).threadUnarchive), true
	case "thread/delete":
		return handle((*Server).threadDelete), true
	case "thread/name/set":
		return handle((*Server).threadNameSet), true
	case "thread/unsubscribe":
		return handle((*Server).threadUnsubscribe), true
	case "thread/turns/list":
		return handle((*Server).turnsList), true
	case "thread/items/list":
		return handle((*Server).itemsList), true
	case "thread/settings/update":
		return handle((*Server).settingsUpdate), true
	case "thread/backgroundTerminals/list":
		return handle((*Server).terminalsList), true
	case "thread/backgroundTerminals/terminate":
		return handle((*Server).terminalsTerminate), true
	case "thread/backgroundTerminals/clean":
		return handle((*Server).terminalsClean), true
	case "turn/start":
		return handle((*Server).turnStart), true
	case "turn/steer":
		return handle((*Server).turnSteer), true
	case "turn/settings/update":
		return handle((*Server).turnSettingsUpdate), true
	case "turn/interrupt":
		return handle((*Server).turnInterrupt), true
	case "command/exec":
		return inline((*Server).commandExec), true
	case "command/exec/write":
		return inline((*Server).execWrite), true
	case "command/exec/resize":
		return inline((*Server).execResize), true
	case "command/exec/terminate":
		return inline((*Server).execTerminate), true
	case "model/list":
		return handle((*Server).modelList), true
	case "config/read":
		return handle((*Server).configRead), true
	case "permissionProfile/list":
		return handle((*Server).profileList), true
	}
	if e, ok := fileTable(method); ok {
		return e, true
	}
	if e, ok := threadTable(method); ok {
		return e, true
	}
	if e, ok := processTable(method); ok {
		return e, true
	}
	if e, ok := providerTable(method); ok {
		return e, true
	}
	if e, ok := serverTable(method); ok {
		return e, true
	}
	if e, ok := environmentTable(method); ok {
		return e, true
	}
	if e, ok := queueTable(method); ok {
		return e, true
	}
	return absent(method)
}

// fileTable returns what is done for a method about files, the config file or its
// hooks.
func fileTable(method string) (entry, bool) {
	switch method {
	case "fs/readFile":
		return handle((*Server).fsReadFile), true
	case "fs/writeFile":
		return handle((*Server).fsWriteFile), true
	case "fs/createDirectory":
		return handle((*Server).fsCreateDirectory), true
	case "fs/getMetadata":
		return handle((*Server).fsGetMetadata), true
	case "fs/readDirectory":
		return handle((*Server).fsReadDirectory), true
	case "fs/remove":
		return handle((*Server).fsRemove), true
	case "fs/copy":
		return handle((*Server).fsCopy), true
	case "fs/watch":
		return inline((*Server).fsWatch), true
	case "fs/unwatch":
		return inline((*Server).fsUnwatch), true
	case "hooks/list":
		return handle((*Server).hooksList), true
	case "config/value/write":
		return handle((*Server).configValueWrite), true
	case "config/batchWrite":
		return handle((*Server).configBatchWrite), true
	case "fuzzyFileSearch":
		return handle((*Server).fuzzyFileSearch), true
	case "fuzzyFileSearch/sessionStart":
		return inline((*Server).searchStart), true
	case "fuzzyFileSearch/sessionUpdate":
		return inline((*Server).searchUpdate), true
	case "fuzzyFileSearch/sessionStop":
		return inline((*Server).searchStop), true
	}
	return entry{}, false
}

// Requirements is what an administrator's requirements come to, as clients read
// it: heddle has none.
func Requirements() map[string]any { return list{"requirements": nil} }

// absent answers for what heddle does not have, where an empty answer is true.
func absent(method string) (entry, bool) {
	switch method {
	case "account/rateLimits/read":
		return optional(func(*Server, context.Context, *call, *protocol.RateLimitsParams) (any, error) {
			return list{"rateLimits": protocol.RateLimits{}, "rateLimitsByLimitId": nil}, nil
		}), true
	case "account/bedrock/checkGovCloudRequirements":
		return fixed[protocol.NoParams](list{"isGovCloud": false, "shouldWarn": false}), true
	case "memory/status":
		return handle((*Server).memoryStatus), true
	case "memory/reset":
		return bare(func(*Server, context.Context, *call) (any, error) { return list{}, nil }), true
	case "thread/memory/read":
		return handle((*Server).memoryRead), true
	case "configRequirements/read":
		return bare(func(*Server, context.Context, *call) (any, error) { return Requirements(), nil }), true
	case "plugin/installed":
		return fixed[protocol.PluginsInstalledParams](list{"marketplaces": []any{}, "marketplaceLoadErrors": []any{}}), true
	case "plugin/list":
		return fixed[protocol.PluginListParams](list{"marketplaces": []any{}, "marketplaceLoadErrors": []any{}, "featuredPluginIds": []any{}}), true
	case "accountSession/list":
		return fixed[protocol.AccountSessionsParams](list{"activeSessionId": nil, "sessions": []any{}}), true
	case "remoteControl/status/read":
		return bare(func(s *Server, _ context.Context, _ *call) (any, error) { return s.remoteControl(), nil }), true
	case "windowsSandbox/readiness":
		return bare(func(*Server, context.Context, *call) (any, error) { return list{"status": "notConfigured"}, nil }), true
	case "app/installed":
		return fixed[protocol.AppsInstalledParams](list{"data": []any{}}), true
	case "app/list":
		return paged(func(p *protocol.AppsParams) *string { return p.Cursor }, list{"data": []any{}, "nextCursor": nil}), true
	}
	return entry{}, false
}

// lookup finds a method and decodes its parameters.
//
// Additions of ours are there for clients that asked for them; to all others
// they are as unknown as any name.
func lookup(method string, raw json.RawMessage, experimental, extended bool) (entry, any, error) {
	if e, ok := extensionTable(method); ok && extended {
		params, _, err := e.decode(raw)
		if err == nil {
			err = checkLane(params)
		} else {
			err = invalid("Invalid request: " + err.Error())
		}
		if err != nil {
			return entry{}, nil, err
		}
		return e, params, nil
	}
	known, needs := protocol.Known(method)
	if !known {
		return entry{}, nil, invalid("Invalid request: " + protocol.UnknownVariant(method, protocol.Methods()).Error())
	}
	e, ok := table(method)
	if ok {
		params, used, err := e.decode(raw)
		if err != nil {
			return entry{}, nil, invalid("Invalid request: " + err.Error())
		}
		if needs && !experimental {
			return entry{}, nil, invalid(method + " requires experimentalApi capability")
		}
		if len(used) > 0 && !experimental {
			return entry{}, nil, invalid(method + "." + slices.Min(used) + " requires experimentalApi capability")
		}
		if err := checkLane(params); err != nil {
			return entry{}, nil, err
		}
		return e, params, nil
	}
	if needs && !experimental {
		return entry{}, nil, invalid(method + " requires experimentalApi capability")
	}
	e2 := invalid(fmt.Sprintf("%s is not supported by this server", method))
	e2.Data = map[string]any{"reason": "NOT_SUPPORTED"}
	return entry{}, nil, e2
}

// checkLane refuses what is no id of a thread.
func checkLane(params any) error {
	id, named := threadOf(params)
	if !named {
		return nil
	}
	if _, err := uuid.Parse(id); err != nil {
		return invalid("invalid thread id: " + err.Error())
	}
	return nil
}

// laneOf is the thread that a request is about, empty for none.
func laneOf(params any) string {
	id, _ := threadOf(params)
	return id
}

// threadOf is the thread that the parameters of a request must name.
func threadOf(params any) (id string, named bool) {
	v := reflect.ValueOf(params)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return "", false
	}
	f := v.Elem().FieldByName("ThreadID")
	if !f.IsValid() {
		return "", false
	}
	return f.String(), true
}
