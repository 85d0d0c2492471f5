package sandbox

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

// devices are bound from the host one by one.
var deviceNodes = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// mountLine is about what a line of the mount table takes beside the mount point.
const mountLine = 192

// checkMounts compares the writable mounts that the guest sees with those that were asked for. Commands of another
// sandbox may have changed paths of the workspace while these mounts were made, so that one landed elsewhere.
func (b *box) checkMounts(ctx context.Context) error {
	size := int64(64 << 10)
	for _, c := range b.plan.coverList {
		size += int64(len(c)) + mountLine
	}
	a, err := b.call(ctx, guestproto.KFile, guestproto.File{Op: guestproto.OpMounts, Max: size}.Encode())
	if err != nil {
		return err
	}
	hidden := make(map[string]bool, len(b.plan.coverList))
	for _, c := range b.plan.coverList {
		hidden[c] = true
	}
	if at := straying(string(a.Body), b.plan.mounts, hidden); at != "" {
		return fmt.Errorf("a mount at %s was not asked for: a path changed while the sandbox was set up", at)
	}
	for at := range hidden {
		return fmt.Errorf("%s is not hidden: a path changed while the sandbox was set up", at)
	}
	return nil
}

// straying returns the mount point of a writable mount in a table (as /proc/self/mountinfo) that none of the mounts
// explains, or nothing. It takes what is mounted read-only out of hidden.
func straying(table string, mounts []guestproto.Mount, hidden map[string]bool) string {
	private := map[string]bool{} // made new for this sandbox: each there once
	var roots []string
	for _, m := range mounts {
		switch {
		case m.Kind != guestproto.MountBind:
			private[m.Dest] = true
		case !m.ReadOnly:
			roots = append(roots, m.Dest)
		}
	}
	for line := range strings.Lines(table) {
		if at, o := mountPoint(line); o == "ro" || strings.HasPrefix(o, "ro,") {
			if delete(hidden, at); strings.ContainsRune(at, '\\') {
				delete(hidden, unescape.Replace(at))
			}
			continue
		}
		f := strings.Fields(line)
		if len(f) < 6 {
			continue
		}
		root, at := f[3], unescape.Replace(f[4])
		switch {
		case private[at] && root == "/":
			delete(private, at)
		case slices.Contains(deviceNodes, at), root == "/null" && within(at, "/proc"):
		case slices.ContainsFunc(roots, func(r string) bool { return within(at, r) }):
		default:
			return at
		}
	}
	return ""
}

// mountPoint returns the fifth and sixth fields of a line. There are thousands of lines when many paths are hidden.
func mountPoint(line string) (at, options string) {
	for range 4 {
		_, line, _ = strings.Cut(line, " ")
	}
	at, line, _ = strings.Cut(line, " ")
	options, _, _ = strings.Cut(line, " ")
	return at, options
}

// unescape undoes what the kernel does to names in its tables.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
