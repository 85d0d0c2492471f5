package model

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

// Catalog is the list of known models. It does not change after New.
type Catalog struct {
	models []Info
}

// NewCatalog returns the built-in catalogue.
func NewCatalog() *Catalog { return &Catalog{} }

// List returns the models in the order in which they are shown.
func (c *Catalog) List(includeHidden bool) []Info { return nil }

// Default is the model that is used when none is configured.
func (c *Catalog) Default() Info { return Info{} }

// Lookup returns what is known about a model, with the user's overrides laid
// over it. For an unknown name it returns cautious values and a warning for the
// user.
func (c *Catalog) Lookup(name string, o Overrides) (info Info, warning string) { return Info{}, "" }
