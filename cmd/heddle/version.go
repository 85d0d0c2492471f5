package main

import "runtime/debug"

// version is set by the linker (-X main.version=...).
var version string

// buildVersion names this build. Programs of one version speak the same
// protocol, so a build without a linked version is told apart by its source
// revision.
func buildVersion() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "dev"
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	rev := settings["vcs.revision"]
	if rev == "" {
		return "dev"
	}
	v := "dev-" + rev[:min(12, len(rev))]
	if settings["vcs.modified"] == "true" {
		v += "-dirty"
	}
	return v
}
