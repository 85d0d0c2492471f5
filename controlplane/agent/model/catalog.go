package model

import (
	"fmt"
	"slices"
	"strings"
)

// EffortOption is one reasoning effort that a model supports.
type EffortOption struct {
	Effort      string
	Description string
}

// Info is what is known about a model.
type Info struct {
	ID          string
	DisplayName string
	Description string
	Hidden      bool
	Default     bool
	Efforts     []EffortOption
	// DefaultEffort is the effort that the service uses when none is given.
	DefaultEffort string
	// Modalities are "text" and "image".
	Modalities []string
	// ContextWindow is the usable size in tokens; AutoCompactLimit the size from
	// which the history is compacted before the next turn. 0 means unknown.
	ContextWindow    int64
	AutoCompactLimit int64
	// FreeformPatch says that apply_patch is offered as a freeform tool.
	FreeformPatch     bool
	ParallelToolCalls bool
	// Reasoning says that effort and summary may be sent.
	Reasoning bool
	// Verbosity says that text verbosity may be sent.
	Verbosity bool
}

// Overrides are the user's own settings for a model; zero fields change nothing.
type Overrides struct {
	ContextWindow    int64
	AutoCompactLimit int64
}

// Catalog is the list of known models. It does not change after New; the zero
// value knows no model.
type Catalog struct {
	models []Info
}

// fallbackWindow is assumed for a model that is not in the catalogue: the usable
// part of the window that the current models share.
const fallbackWindow = 258400

var (
	effortMinimal = EffortOption{"minimal", "Hardly any reasoning, for the fastest answers"}
	effortLow     = EffortOption{"low", "Short reasoning, for quick and simple work"}
	effortMedium  = EffortOption{"medium", "A balance of speed and depth for everyday work"}
	effortHigh    = EffortOption{"high", "Long reasoning, for complex problems"}
	effortXHigh   = EffortOption{"xhigh", "The longest reasoning, for the hardest problems"}
)

// NewCatalog returns the built-in catalogue.
func NewCatalog() *Catalog {
	deep := []EffortOption{effortLow, effortMedium, effortHigh, effortXHigh}
	classic := []EffortOption{effortMinimal, effortLow, effortMedium, effortHigh}
	small := []EffortOption{effortMedium, effortHigh}
	return &Catalog{models: []Info{
		known("gpt-5.5", "GPT-5.5", "Current model for complex coding and agent work", deep, withDefault),
		known("gpt-5.4", "GPT-5.4", "Previous model for coding and agent work", deep),
		known("gpt-5.4-mini", "GPT-5.4 mini", "Small and fast model for simpler work", deep),
		known("gpt-5.3-codex", "GPT-5.3 Codex", "Model trained for coding agents", deep),
		known("gpt-5.2", "GPT-5.2", "Earlier general model", deep),
		known("gpt-5.2-codex", "GPT-5.2 Codex", "Earlier model trained for coding agents", deep, hidden),
		known("gpt-5.1", "GPT-5.1", "Earlier general model", classic[1:], hidden),
		known("gpt-5.1-codex", "GPT-5.1 Codex", "Earlier model trained for coding agents", classic[1:], hidden),
		known("gpt-5.1-codex-mini", "GPT-5.1 Codex mini", "Earlier small model trained for coding agents", small, hidden),
		known("gpt-5", "GPT-5", "First model of its family", classic, hidden),
		known("gpt-5-mini", "GPT-5 mini", "First small model of its family", classic, hidden),
		known("gpt-5-codex", "GPT-5 Codex", "First model of its family trained for coding agents", classic[1:], hidden),
		scriptedModel(),
	}}
}

func known(id, name, description string, efforts []EffortOption, opts ...func(*Info)) Info {
	m := Info{
		ID: id, DisplayName: name, Description: description, Efforts: efforts, DefaultEffort: "medium",
		Modalities: []string{"text", "image"}, ContextWindow: fallbackWindow, AutoCompactLimit: autoCompact(fallbackWindow),
		FreeformPatch: true, ParallelToolCalls: true, Reasoning: true, Verbosity: true,
	}
	for _, o := range opts {
		o(&m)
	}
	return m
}

// claudeWindow is the window that all current Claude models have.
const claudeWindow = 200000

// claude is what holds for the models of the Messages API, whose names tell.
func claude(name string) Info {
	effortMax := EffortOption{"max", "Reasoning without a limit, where only the result counts"}
	m := known(name, name, "Model of the Anthropic Messages API", []EffortOption{effortLow, effortMedium, effortHigh, effortMax})
	m.DefaultEffort = "high"
	m.ContextWindow, m.AutoCompactLimit = claudeWindow, autoCompact(claudeWindow)
	m.FreeformPatch, m.Verbosity = false, false
	return m
}

func withDefault(m *Info) { m.Default = true }

func hidden(m *Info) { m.Hidden = true }

// scriptedModel stands for the scripted provider: no model at all.
func scriptedModel() Info {
	m := known("scripted", "scripted", "Plays a script instead of asking a model", []EffortOption{effortMedium}, hidden)
	m.Reasoning, m.Verbosity = false, false
	return m
}

// autoCompact leaves a tenth of the window for the next turn.
func autoCompact(window int64) int64 { return window / 10 * 9 }

// List returns the models in the order in which they are shown.
func (c *Catalog) List(includeHidden bool) []Info {
	var out []Info
	for _, m := range c.models {
		if includeHidden || !m.Hidden {
			out = append(out, m.clone())
		}
	}
	return out
}

// Default is the model that is used when none is configured.
func (c *Catalog) Default() Info {
	for _, m := range c.models {
		if m.Default {
			return m.clone()
		}
	}
	return Info{}
}

// Lookup returns what is known about a model, with the user's overrides laid
// over it. For an unknown name it returns cautious values and a warning for the
// user.
func (c *Catalog) Lookup(name string, o Overrides) (info Info, warning string) {
	i := slices.IndexFunc(c.models, func(m Info) bool { return m.ID == name })
	switch {
	case i >= 0:
		info = c.models[i].clone()
	case strings.HasPrefix(name, "claude-"):
		info = claude(name)
	default:
		info = Info{
			ID: name, DisplayName: name, Efforts: []EffortOption{effortLow, effortMedium, effortHigh}, DefaultEffort: "medium",
			Modalities: []string{"text", "image"}, ContextWindow: fallbackWindow, AutoCompactLimit: autoCompact(fallbackWindow),
		}
		warning = fmt.Sprintf("Model `%s` is not in the catalogue: cautious default metadata is used for it, without the freeform patch tool. Set model_context_window to its true size.", name)
	}
	if o.ContextWindow > 0 {
		info.ContextWindow, info.AutoCompactLimit = o.ContextWindow, autoCompact(o.ContextWindow)
	}
	if o.AutoCompactLimit > 0 {
		info.AutoCompactLimit = o.AutoCompactLimit
	}
	return info, warning
}

func (m Info) clone() Info {
	m.Efforts, m.Modalities = slices.Clone(m.Efforts), slices.Clone(m.Modalities)
	return m
}
