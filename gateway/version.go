package gateway

import (
	"regexp"
	"strings"
)

var semver = regexp.MustCompile(`^v?\d+\.\d+\.\d+`)

// WireVersion gives a version the form MAJOR.MINOR.PATCH[-REST] that clients
// parse.
func WireVersion(v string) string {
	if semver.MatchString(v) {
		return strings.TrimPrefix(v, "v")
	}
	if v == "" {
		v = "dev"
	}
	return "0.0.0-" + strings.Map(func(r rune) rune {
		switch {
		case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r == '.', r == '-':
			return r
		}
		return '-'
	}, v)
}
