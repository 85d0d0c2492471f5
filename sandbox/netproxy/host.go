package netproxy

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/idna"
)

// Normalize returns the one form of a host that decisions are made about: an address literal as netip prints it,
// or a lower-case ASCII name without a trailing dot. Hosts that different programs read differently are refused:
// control bytes, addresses in decimal, octal, hexadecimal or shortened form, zones, mapped addresses.
func Normalize(host string) (string, error) {
	if host == "" || len(host) > 1024 {
		return "", fmt.Errorf("host of %d bytes", len(host))
	}
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")); err == nil {
		if a.Zone() != "" || a.Is4In6() {
			return "", fmt.Errorf("address %q is not in its usual form", host)
		}
		return a.String(), nil
	}
	name, err := normalizeName(host)
	if err != nil {
		return "", err
	}
	if endsInNumber(name) {
		return "", fmt.Errorf("host %q is a number or an address in an unusual form", host)
	}
	return name, nil
}

func normalizeName(host string) (string, error) {
	name := strings.ToLower(host)
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c == 0x7f {
			return "", fmt.Errorf("host %q contains a space or a control byte", host)
		}
		if name[i] >= 0x80 {
			ascii, err := idna.Lookup.ToASCII(name)
			if err != nil {
				return "", fmt.Errorf("host %q is not a valid international name", host)
			}
			name = ascii
			break
		}
	}
	name = strings.TrimSuffix(name, ".")
	if len(name) == 0 || len(name) > 253 {
		return "", fmt.Errorf("host %q is not a valid name", host)
	}
	for label := range strings.SplitSeq(name, ".") {
		if !validLabel(label) {
			return "", fmt.Errorf("host %q is not a valid name", host)
		}
	}
	return name, nil
}

// validLabel takes letters, digits, hyphens and underscores, which names of services have.
func validLabel(l string) bool {
	if len(l) == 0 || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' {
		return false
	}
	for i := range len(l) {
		c := l[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// endsInNumber reports whether some program would read the name as an IPv4 address.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if strings.Trim(last, "0123456789") == "" {
		return true
	}
	_, err := strconv.ParseUint(last, 0, 64)
	return err == nil || last == "0x"
}

// splitTarget reads "host:port" where the port may be left out if there is a default.
func splitTarget(target string, port uint16) (string, uint16, error) {
	host := target
	if strings.HasPrefix(target, "[") {
		end := strings.IndexByte(target, ']')
		if end < 0 {
			return "", 0, fmt.Errorf("target %q has an open bracket", target)
		}
		host = target[1:end]
		if _, err := netip.ParseAddr(host); err != nil || !strings.Contains(host, ":") {
			return "", 0, fmt.Errorf("target %q has no address in its brackets", target)
		}
		target = target[end+1:]
		if target != "" && target[0] != ':' {
			return "", 0, fmt.Errorf("target has %q behind its brackets", target)
		}
		target = strings.TrimPrefix(target, ":")
	} else if i := strings.IndexByte(target, ':'); i >= 0 {
		host, target = target[:i], target[i+1:]
	} else {
		target = ""
	}
	if target != "" {
		n, err := strconv.ParseUint(target, 10, 16)
		if err != nil || n == 0 || target[0] == '+' {
			return "", 0, fmt.Errorf("port %q is not a number from 1 to 65535", target)
		}
		port = uint16(n)
	}
	if port == 0 {
		return "", 0, fmt.Errorf("no port given")
	}
	name, err := Normalize(host)
	return name, port, err
}
