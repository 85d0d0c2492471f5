package config

import (
	"path"
	"slices"
)

// FeatureInfo describes one switch of the table [features].
type FeatureInfo struct {
	Name string
	// Stage is "beta" or "stable".
	Stage       string
	Title       string
	Description string
	// Default holds where the config says nothing.
	Default bool
}

// Features returns the switches that change anything here, in no order. Other
// keys of the table are accepted and do nothing.
func Features() []FeatureInfo {
	return []FeatureInfo{
		{"auto_compaction", "stable", "Automatic compaction", "Replace the history by a summary before it outgrows the model's context window.", true},
		{"goals", "beta", "Goals", "Let the model read and change the goal of its thread.", false},
		{"multi_agent", "beta", "Sub-agents", "Let the model start agents that work on tasks of their own in threads of their own.", false},
		{"plan_questions", "stable", "Questions in plan mode", "Let the model put questions to the user in plan mode.", true},
		{"request_permissions_tool", "beta", "Permission requests", "Let the model ask the user for folders to write in, or for the network, for a turn or a session.", false},
		{"skills", "stable", "Skills", "Tell the model which skills there are, and read those that an input names.", true},
		{"shell_tool", "stable", "Commands and files", "Let the model run commands, change files and look at images; off: it has no environment.", true},
		{"view_image_tool", "stable", "Images", "Let a model that sees images look at image files of the workspace.", true},
	}
}

// FeatureOn reports whether a switch is on: as configured, else as built in.
func (c *Config) FeatureOn(name string) bool {
	if on, set := c.Feature(name); set {
		return on
	}
	for _, f := range Features() {
		if f.Name == name {
			return f.Default
		}
	}
	return false
}

// SkillRoots are further folders with skills (skills.extra_roots); what is no
// absolute path is left out.
func (c *Config) SkillRoots() []string {
	return slices.DeleteFunc(texts(lookup(c.tree, "skills", "extra_roots")), func(root string) bool { return !path.IsAbs(root) })
}

// SkillEnabled reports whether a skill may be used: the last entry of
// [[skills.config]] that names it or its path decides, and without one it may.
func (c *Config) SkillEnabled(name, file string) bool {
	enabled := true
	list, _ := lookup(c.tree, "skills", "config").([]any)
	for _, v := range list {
		e, _ := v.(map[string]any)
		on, isBool := e["enabled"].(bool)
		n, _ := e["name"].(string)
		p, _ := e["path"].(string)
		if isBool && (n != "" && n == name || p != "" && p == file) {
			enabled = on
		}
	}
	return enabled
}
