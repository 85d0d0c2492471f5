//go:build !failpoint

// Package failpoint lets tests end the process at named places. It does nothing
// unless the program is built with the tag "failpoint".
package failpoint

// Env names the points that end the process, separated by commas.
const Env = "HEDDLE_FAILPOINTS"

// Enabled tells whether points do anything in this build.
const Enabled = false

// Hit does nothing in this build.
func Hit(string) {}
