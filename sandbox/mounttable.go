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

// checkMounts compares the writable mounts that the guest sees with those that were asked for. Commands of another
// sandbox may have changed paths of the workspace while these mounts were made, so that one landed elsewhere.
func (b *box) checkMounts(ctx context.Context) error {
	a, err := b.call(ctx, guestproto.KFile, guestproto.File{Op: guestproto.OpMounts}.Encode())
	if err != nil {
		return err
	}
	if at := straying(string(a.Body), b.plan.mounts); at != "" {
		return fmt.Errorf("a mount at %s was not asked for: a path changed while the sandbox was set up", at)
	}
	return nil
}

// straying returns the mount point of a writable mount in a table (as /proc/self/mountinfo) that none of the mounts
// explains, or nothing.
func straying(table string, mounts []guestproto.Mount) string {
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
		f := strings.Fields(line)
		if len(f) < 6 || f[5] == "ro" || strings.HasPrefix(f[5], "ro,") {
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

// unescape undoes what the kernel does to names in its tables.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
