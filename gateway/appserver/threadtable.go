package appserver

import "github.com/heddle-dev/heddle/gateway/appserver/protocol"

// threadTable returns what is done for a method that works on a thread beyond
// opening, listing and talking to it.
func threadTable(method string) (entry, bool) {
	switch method {
	case "thread/compact/start":
		return handle((*Server).compactStart), true
	case "review/start":
		return handle((*Server).reviewStart), true
	case "thread/shellCommand":
		return handle((*Server).shellCommand), true
	case "thread/inject_items":
		return handle((*Server).injectItems), true
	case "thread/revert":
		return handle((*Server).threadRevert), true
	case "thread/goal/set":
		return handle((*Server).goalSet), true
	case "thread/goal/get":
		return handle((*Server).goalGet), true
	case "thread/goal/clear":
		return handle((*Server).goalClear), true
	case "thread/approveGuardianDeniedAction":
		return handle((*Server).overrideDenial), true
	case "thread/metadata/update":
		return handle((*Server).metadataUpdate), true
	case "thread/readState/update":
		return handle((*Server).readStateUpdate), true
	case "thread/items/read":
		return handle((*Server).itemsRead), true
	case "thread/timeline/list":
		return handle((*Server).timelineList), true
	case "thread/searchOccurrences":
		return handle((*Server).searchOccurrences), true
	}
	return catalogTable(method)
}

// catalogTable returns what is done for a method about skills, switches,
// modes and MCP servers.
func catalogTable(method string) (entry, bool) {
	switch method {
	case "skills/list":
		return handle((*Server).skillsList), true
	case "skills/extraRoots/set":
		return handle((*Server).skillsRootsSet), true
	case "skills/config/write":
		return handle((*Server).skillsConfigWrite), true
	case "experimentalFeature/list":
		return handle((*Server).featureList), true
	case "collaborationMode/list":
		return fixed[protocol.NoParams](list{"data": modes()}), true
	case "mcpServerStatus/list":
		return handle((*Server).mcpStatusList), true
	case "mcpServer/tool/call":
		return handle((*Server).mcpToolCall), true
	case "mcpServer/resource/read":
		return handle((*Server).mcpResourceRead), true
	case "mcpServer/oauth/login":
		return handle((*Server).mcpLogin), true
	case "config/mcpServer/reload":
		return bare((*Server).mcpReload), true
	}
	return entry{}, false
}
