package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

type kind int

const (
	anyValue kind = iota
	text
	boolean
	integer
	textList
	textMap
	table
	pathList
	hostList
	portList
	nameList
)

// node describes the values of one key.
type node struct {
	kind kind
	// enum lists the allowed texts.
	enum []string
	// children are the known keys of a table; each describes all others.
	children map[string]*node
	each     *node
	// orTable allows a table in place of a text (approval_policy), or a table in
	// place of a boolean (tools.x).
	orTable *node
}

func tableOf(children map[string]*node) *node { return &node{kind: table, children: children} }

func oneOf(values ...string) *node { return &node{kind: text, enum: values} }

// schema lists the keys that heddle reads, and under known the ones that it
// takes over from other clients' files without a meaning of its own.
func schema() *node {
	t, b, n, list, smap, open := &node{kind: text}, &node{kind: boolean}, &node{kind: integer}, &node{kind: textList}, &node{kind: textMap}, &node{}
	provider := tableOf(map[string]*node{
		"name": t, "base_url": t, "env_key": t, "env_key_instructions": t, "wire_api": t, "script": t,
		"experimental_bearer_token": t, "http_headers": smap, "env_http_headers": smap, "query_params": smap,
		"request_max_retries": n, "stream_max_retries": n, "stream_idle_timeout_ms": n,
		"requires_openai_auth": b, "supports_websockets": b, "websocket_connect_timeout_ms": n, "auth": open,
	})
	mcp := tableOf(map[string]*node{
		"command": t, "args": list, "env": smap, "env_vars": open, "cwd": t, "url": t, "bearer_token_env_var": t,
		"http_headers": smap, "env_http_headers": smap, "enabled": b, "required": b, "startup_timeout_sec": open, "startup_timeout_ms": n,
		"tool_timeout_sec": open, "enabled_tools": list, "disabled_tools": list, "scopes": list, "default_tools_approval_mode": t, "tools": open,
		"sandbox": oneOf("read-only", "workspace-write", "danger-full-access"),
	})
	children := map[string]*node{
		"model": t, "review_model": t, "model_provider": t, "oss_provider": t, "service_tier": t, "personality": oneOf("none", "friendly", "pragmatic"),
		"model_context_window": n, "model_auto_compact_token_limit": n, "model_auto_compact_token_limit_scope": t,
		"model_reasoning_effort": t, "plan_mode_reasoning_effort": t,
		"model_reasoning_summary": oneOf("auto", "concise", "detailed", "none"),
		"model_verbosity":         oneOf("low", "medium", "high"),
		"approval_policy": {kind: text, enum: []string{"untrusted", "on-request", "never"}, orTable: tableOf(map[string]*node{
			"granular": tableOf(map[string]*node{"sandbox_approval": b, "rules": b, "mcp_elicitations": b, "request_permissions": b, "skill_approval": b}),
		})},
		"approvals_reviewer":    oneOf("user", "auto_review"),
		"approval_timeout_secs": n,
		limitsTable:             tableOf(limitNodes()),
		planeTable:              tableOf(planeNodes()),
		"sandbox_mode":          oneOf("read-only", "workspace-write", "danger-full-access"),
		"sandbox_workspace_write": tableOf(map[string]*node{
			"writable_roots": {kind: pathList}, "network_access": b, "exclude_tmpdir_env_var": b, "exclude_slash_tmp": b,
			"tmp": oneOf("private", "host"), "git": oneOf("protected", "commit"),
		}),
		networkTable: tableOf(map[string]*node{
			"allow": {kind: hostList}, "deny": {kind: hostList}, "ports": {kind: portList}, "on_miss": oneOf("ask", "deny"),
		}),
		"shell_environment_policy": tableOf(map[string]*node{
			"inherit": oneOf("all", "core", "none"), "ignore_default_excludes": b, "exclude": list, "set": smap, "include_only": list,
			"experimental_use_profile": b,
		}),
		"mcp_oauth_callback_port": n,
		"model_providers":         {kind: table, each: provider},
		"openai_base_url":         t,
		"mcp_servers":             {kind: table, each: mcp},
		"projects":                {kind: table, each: tableOf(map[string]*node{"trust_level": oneOf("trusted", "untrusted")})},
		"project_doc_max_bytes":   n,
		"project_root_markers":    {kind: nameList},
		"profile":                 t,
		"hooks":                   {kind: table, each: open},
		"bypass_hook_trust":       b,
		"ignore_rules":            b,
		"tools":                   {kind: table, each: &node{kind: boolean, orTable: &node{kind: table, each: open}}},
		"features":                {kind: table, each: open},
		"web_search":              oneOf("disabled", "cached", "live", "indexed"),
		"developer_instructions":  t, "instructions": t, "compact_prompt": t, "model_instructions_file": t,
		"thread_unload_delay_secs": n, "on_disconnect": oneOf("interrupt", "continue"),
		"project_doc_fallback_filenames": {kind: nameList},
	}
	for _, k := range strings.Fields(knownElsewhere) {
		children[k] = open
	}
	root := tableOf(children)
	children["profiles"] = &node{kind: table, each: root}
	return root
}

// knownElsewhere are keys of files that are shared with other clients.
const knownElsewhere = `analytics agents allow_login_shell apps background_terminal_max_timeout browser_use chatgpt_base_url
 check_for_update_on_startup cli_auth_credentials_store client_search_provider commit_attribution computer_use default_permissions desktop
 disable_paste_burst disable_response_storage experimental_compact_prompt_file experimental_instructions_file
 experimental_use_unified_exec_tool feedback file_opener forced_chatgpt_workspace_id forced_login_method ghost_snapshot
 hide_agent_reasoning history js_repl_node_path log_dir marketplaces mcp_oauth_credentials_store
 memories model_catalog_json model_supports_reasoning_summaries notice notify otel permissions plugins
 show_raw_agent_reasoning skills sqlite_home suppress_unstable_features_warning tool_output_token_limit tool_suggest tui windows
 windows_wsl_setup_acknowledged zsh_path`

// problem is one thing wrong with a tree.
type problem struct {
	path []string
	what string
	fix  string
	// unknown marks a key without meaning; the value is kept.
	unknown bool
}

// check compares a tree with the schema.
func check(n *node, tree map[string]any, path []string) []problem {
	var out []problem
	for _, k := range slices.Sorted(maps.Keys(tree)) {
		p := append(slices.Clone(path), k)
		child := n.children[k]
		if child == nil {
			child = n.each
		}
		if child == nil {
			fix := "remove it"
			if near := nearest(k, n.children); near != "" {
				fix = fmt.Sprintf("did you mean %q?", near)
			}
			out = append(out, problem{path: p, what: "unknown key", fix: fix, unknown: true})
			continue
		}
		out = append(out, checkValue(child, tree[k], p)...)
	}
	return out
}

func checkValue(n *node, v any, path []string) []problem {
	if m, ok := v.(map[string]any); ok && n.orTable != nil {
		return check(n.orTable, m, path)
	}
	wrong := func(want string) []problem {
		return []problem{{path: path, what: fmt.Sprintf("%s is not %s", show(v), want), fix: "write " + want}}
	}
	switch n.kind {
	case text:
		s, ok := v.(string)
		if len(n.enum) > 0 {
			if !ok || !slices.Contains(n.enum, s) {
				return wrong("one of " + strings.Join(n.enum, ", "))
			}
		} else if !ok {
			return wrong("a text")
		}
	case boolean:
		if _, ok := v.(bool); !ok {
			return wrong("true or false")
		}
	case integer:
		if i, ok := v.(int64); !ok || i < 0 {
			return wrong("a whole number of at least 0")
		}
	case textList:
		if !isTextList(v) {
			return wrong("a list of texts")
		}
	case pathList:
		if !isTextList(v) {
			return wrong("a list of texts")
		}
		for _, p := range texts(v) {
			if !filepath.IsAbs(p) && !strings.HasPrefix(p, "~/") {
				return []problem{{path: path, what: fmt.Sprintf("%s is not an absolute path", show(p)), fix: "write it in full"}}
			}
		}
	case hostList:
		if !isHostList(v) {
			return wrong("a list of host names, \"*.\" patterns or addresses, each with an optional :PORT")
		}
	case portList:
		if !isPortList(v) {
			return wrong("a list of ports from 1 to 65535")
		}
	case nameList:
		if !isNameList(v) {
			return wrong(fmt.Sprintf("a list of at most %d file names", maxNames))
		}
	case textMap:
		m, ok := v.(map[string]any)
		if !ok {
			return wrong("a table of texts")
		}
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if _, ok := m[k].(string); !ok {
				return []problem{{path: append(slices.Clone(path), k), what: fmt.Sprintf("%s is not a text", show(m[k])), fix: "put it in quotes"}}
			}
		}
	case table:
		m, ok := v.(map[string]any)
		if !ok {
			return wrong("a table")
		}
		return check(n, m, path)
	}
	return nil
}

func isTextList(v any) bool {
	l, ok := v.([]any)
	if !ok {
		return false
	}
	for _, e := range l {
		if _, ok := e.(string); !ok {
			return false
		}
	}
	return true
}

// maxNames bounds lists of file names; each is looked for in every folder.
const maxNames = 32

// isNameList accepts names of single entries of a folder.
func isNameList(v any) bool {
	if !isTextList(v) || len(v.([]any)) > maxNames {
		return false
	}
	return !slices.ContainsFunc(texts(v), func(name string) bool {
		return name == "" || name == "." || name == ".." || len(name) > 255 || strings.ContainsAny(name, "/\x00")
	})
}

func show(v any) string {
	var s string
	switch x := v.(type) {
	case string:
		s = fmt.Sprintf("%q", x)
	case map[string]any:
		return "a table"
	case []any:
		return "this list"
	default:
		s = fmt.Sprint(x)
	}
	if len(s) > 80 {
		s = s[:80] + "..."
	}
	return s
}

// nearest finds a known key that differs by at most two edits.
func nearest(k string, known map[string]*node) string {
	best, bestDist := "", 3
	for _, c := range slices.Sorted(maps.Keys(known)) {
		if d := distance(k, c); d < bestDist && d < len(k) {
			best, bestDist = c, d
		}
	}
	return best
}

func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			diag, row[j] = row[j], min(row[j]+1, row[j-1]+1, diag+cost)
		}
	}
	return row[len(b)]
}
