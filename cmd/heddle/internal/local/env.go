package local

import (
	"os"
	"slices"
	"strings"

	"github.com/heddle-dev/heddle/proto/failpoint"
)

// Both lists hold names only of what the process needs to find its way; keys
// of model providers come with each client's session instead.
var (
	executorEnv = []string{
		"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "XDG_RUNTIME_DIR",
		"HEDDLE_GUEST", "HEDDLE_LOG", "GOTRACEBACK",
	}
	controlPlaneEnv = append([]string{
		"HEDDLE_HOME", "CODEX_HOME", "HEDDLE_IDLE_EXIT", "TMPDIR",
		"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
		"SSL_CERT_FILE", "SSL_CERT_DIR",
	}, executorEnv...)
)

// withFailpoints adds what tests set in a build with failpoints.
func withFailpoints(names []string) []string {
	if !failpoint.Enabled {
		return names
	}
	return append(slices.Clone(names), failpoint.Env, failpoint.LogEnv, failpoint.StoreEnv)
}

// pick returns the entries of environ whose names are listed or begin with LC_.
func pick(environ, names []string) []string {
	var out []string
	for _, kv := range environ {
		name, _, ok := strings.Cut(kv, "=")
		if ok && (slices.Contains(names, name) || strings.HasPrefix(name, "LC_")) {
			out = append(out, kv)
		}
	}
	return out
}

// executable is the path of the running program, usable also after the file was
// replaced or removed.
func executable() string {
	exe, err := os.Executable()
	if err == nil {
		if _, err = os.Stat(exe); err == nil {
			return exe
		}
	}
	return "/proc/self/exe"
}
