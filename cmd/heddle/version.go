package main

import (
	"fmt"
	"os"
	"runtime/debug"
)

// version is set by the linker (-X main.version=...).
var version string

// buildVersion names this build. Programs of one version share a control plane,
// so a build without a linked version is told apart by its source revision or,
// failing that, by its file.
func buildVersion() string {
	if version != "" {
		return version
	}
	settings := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
	}
	if rev := settings["vcs.revision"]; rev != "" && settings["vcs.modified"] == "false" {
		return "dev-" + rev[:min(12, len(rev))]
	}
	info, err := os.Stat("/proc/self/exe")
	if err != nil {
		return "dev"
	}
	return fmt.Sprintf("dev-%x", info.ModTime().UnixNano()^info.Size())
}
