//go:build !failpoint

// Package failpoint lets tests end the process at named places and make its
// store fail. It does nothing unless the program is built with the tag
// "failpoint".
package failpoint

// Env names the points that end the process, separated by commas. With ":N"
// behind its name a point ends it at the N-th time that it is reached. "@FILE"
// reads them from a file when the process starts.
const Env = "HEDDLE_FAILPOINTS"

// StoreEnv asks for faults of the store's commits; see faultstore.FromSetting.
const StoreEnv = "HEDDLE_STORE_FAULTS"

// LogEnv names a file to which each point that ends a process adds its name.
const LogEnv = "HEDDLE_FAILPOINTS_LOG"

// Enabled tells whether points do anything in this build.
const Enabled = false

// Setting is empty in this build.
func Setting(string) string { return "" }

// Hit does nothing in this build.
func Hit(string) {}
