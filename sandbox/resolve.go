package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// maxLinks is how many symbolic links a path may lead through, as in the kernel.
const maxLinks = 40

// checkRoots refuses a root that links inside of another root lead out of it: commands can change those links, and
// would choose so what they may write next.
func checkRoots(named, real []string) error {
	for _, path := range named {
		area, target := leadsOut(path, real)
		if area != "" {
			return fmt.Errorf("sandbox root %s is led to %s by a link inside of %s, which commands can change", path, target, area)
		}
	}
	return nil
}

// leadsOut follows a path and returns the area that it leaves by a link in it, and where to; empty when there is none.
func leadsOut(path string, areas []string) (area, target string) {
	at, rest := "/", strings.Split(strings.Trim(path, "/"), "/")
	var through []string // areas with a link on the way
	for links := 0; len(rest) > 0; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, name)
		to, err := os.Readlink(next)
		if err != nil { // no link, or nothing there
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", ""
		}
		for _, a := range areas {
			if within(at, a) {
				through = append(through, a)
			}
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	for _, a := range through {
		if !within(at, a) {
			return a, at
		}
	}
	return "", ""
}
