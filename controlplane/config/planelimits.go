package config

// planeTable bounds what one control plane takes on; more is refused as
// overload, and said to be temporary:
//
//	[control_plane]
//	max_threads = 16384             # that sessions hold open
//	max_turns = 512                 # that run at a time
//	max_turns_per_principal = 512   # of one user
//	max_waiting_actions = 1024      # that wait for an executor
//
// It is read at the start, from the home's config alone.
const planeTable = "control_plane"

// PlaneLimits bound one control plane; 0 means the default.
type PlaneLimits struct {
	Threads, Turns, TurnsPerPrincipal, WaitingActions int
}

// PlaneLimits returns the configured bounds.
func (c *Config) PlaneLimits() PlaneLimits {
	var l PlaneLimits
	for i, to := range l.fields() {
		if n := c.num(planeTable, planeKeys()[i]); n > 0 && n < 1<<31 {
			*to = int(n)
		}
	}
	return l
}

func (l *PlaneLimits) fields() []*int {
	return []*int{&l.Threads, &l.Turns, &l.TurnsPerPrincipal, &l.WaitingActions}
}

func planeKeys() []string {
	return []string{"max_threads", "max_turns", "max_turns_per_principal", "max_waiting_actions"}
}

func planeNodes() map[string]*node {
	out := map[string]*node{}
	for _, k := range planeKeys() {
		out[k] = &node{kind: integer}
	}
	return out
}
