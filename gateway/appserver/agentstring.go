package appserver

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"

	"github.com/heddle-dev/heddle/gateway/appserver/protocol"
)

// userAgent names originator, server, machine and client, in the form that
// clients of the protocol parse.
func userAgent(originator, version, terminal string, info protocol.ClientInfo) string {
	if terminal == "" {
		terminal = "unknown"
	}
	return fmt.Sprintf("%s/%s (%s; %s) %s (%s; %s)", originator, version, osName(), arch(), terminal, info.Name, info.Version)
}

func arch() string {
	switch runtime.GOARCH {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	}
	return runtime.GOARCH
}

var osName = sync.OnceValue(readOSName)

// readOSName gives name and version of the system, as "Debian 12.0.0".
func readOSName() string {
	f, err := os.Open("/etc/os-release")
	if err != nil {
		return "Linux unknown"
	}
	defer func() { _ = f.Close() }()
	fields := map[string]string{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if k, v, ok := strings.Cut(sc.Text(), "="); ok {
			fields[k] = strings.Trim(v, `"`)
		}
	}
	name, _, _ := strings.Cut(fields["NAME"], " ")
	if name == "" {
		name = "Linux"
	}
	version := fields["VERSION_ID"]
	if version == "" {
		return name + " unknown"
	}
	for strings.Count(version, ".") < 2 {
		version += ".0"
	}
	return name + " " + version
}
