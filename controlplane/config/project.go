package config

import "path/filepath"

// maxProjectDepth bounds the folders that are looked at for a project's config.
const maxProjectDepth = 32

// ProjectFiles returns where the config file of the project around a folder may
// be, in order: the first that exists counts. It is empty unless the project is
// trusted.
func (c *Config) ProjectFiles(dir string) []string {
	if !filepath.IsAbs(dir) || c.TrustLevel(dir) != "trusted" {
		return nil
	}
	projects, _ := c.tree["projects"].(map[string]any)
	var out []string
	dir = filepath.Clean(dir)
	for range maxProjectDepth {
		for _, name := range []string{".heddle", ".codex"} {
			out = append(out, filepath.Join(dir, name, ConfigFile))
		}
		if _, named := projects[dir]; named || dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	return out
}
