package inspect

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Shell returns the preferred shell when it can be run, else bash, else sh.
func Shell(preferred string) string {
	for _, path := range []string{preferred, "/bin/bash"} {
		if path != "" && filepath.IsAbs(path) && executable(path) {
			return path
		}
	}
	return "/bin/sh"
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// Timezone returns the machine's IANA time zone: of the TZ variable, the file
// that names it, or the link to its rules; "UTC" when nothing tells.
func Timezone(tz string) string {
	if name := strings.TrimPrefix(tz, ":"); known(name) {
		return name
	}
	if data, err := readSmall("/etc/timezone"); err == nil && known(data) {
		return data
	}
	if target, err := filepath.EvalSymlinks("/etc/localtime"); err == nil {
		if _, name, ok := strings.Cut(target, "zoneinfo/"); ok && known(name) {
			return name
		}
	}
	return "UTC"
}

func known(name string) bool {
	if name == "" || name == "Local" || strings.HasPrefix(name, "/") {
		return false
	}
	_, err := time.LoadLocation(name)
	return err == nil
}

// Host tells this machine, or container, from others. It is derived from the
// machine id, which is not to be shown to others as it is.
func Host() string {
	id, err := readSmall("/etc/machine-id")
	if err != nil || id == "" {
		id, _ = os.Hostname()
	}
	sum := sha256.Sum256([]byte("heddle host " + id))
	return hex.EncodeToString(sum[:8])
}
