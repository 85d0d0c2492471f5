package sandbox

import (
	"testing"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

func TestStrayingMounts(t *testing.T) {
	mounts := []guestproto.Mount{
		{Kind: guestproto.MountBind, Source: "/usr", Dest: "/usr", ReadOnly: true},
		{Kind: guestproto.MountTmpfs, Dest: "/tmp"}, {Kind: guestproto.MountTmpfs, Dest: "/dev"}, {Kind: guestproto.MountProc, Dest: "/proc"},
		{Kind: guestproto.MountBind, Source: "/w s", Dest: "/w s"},
		{Kind: guestproto.MountBind, Source: "/w s/.git", Dest: "/w s/.git", ReadOnly: true},
	}
	const good = `1 0 8:1 /rootfs / ro,relatime - ext4 /dev/vda rw
2 1 8:1 /usr /usr ro,nosuid - ext4 /dev/vda rw
3 1 0:5 / /tmp rw,nosuid - tmpfs tmpfs rw
4 1 0:6 / /dev rw,nosuid - tmpfs tmpfs rw
5 4 0:7 /null /dev/null rw - devtmpfs devtmpfs rw
6 1 0:8 / /proc rw - proc proc rw
7 6 0:7 /null /proc/kmsg rw - devtmpfs devtmpfs rw
8 1 8:1 /w\040s /w\040s rw,nosuid - ext4 /dev/vda rw
9 8 9:1 / /w\040s/mounted rw,nosuid - ext4 /dev/vdb rw
10 8 8:1 /w\040s/.git /w\040s/.git ro,nosuid - ext4 /dev/vda rw
`
	if at := straying(good, mounts, nil); at != "" {
		t.Errorf("%s was asked for", at)
	}
	for line, want := range map[string]string{
		"11 1 8:1 /home /home rw - ext4 /dev/vda rw":      "/home",
		"11 1 8:1 /tmp/x /tmp/x rw - ext4 /dev/vda rw":    "/tmp/x",
		"11 1 0:9 / /tmp rw - tmpfs tmpfs rw":             "/tmp", // a second one over the first
		"11 1 8:1 /w\\040sx /w\\040sx rw - ext4 /dev/vda": "/w sx",
		"11 1 8:1 /etc /proc/fs rw - ext4 /dev/vda rw":    "/proc/fs",
		"11 1 8:1 /usr/lib /usr/lib rw,nosuid - ext4 x x": "/usr/lib",
	} {
		if at := straying(good+line+"\n", mounts, nil); at != want {
			t.Errorf("%s: %q", line, at)
		}
	}
}
