//go:build cgo

package runc

import (
	"github.com/opencontainers/cgroups"
	devices "github.com/opencontainers/cgroups/devices/config"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"github.com/heddle-dev/heddle/sandbox/guestproto"
)

const (
	setNosuidNodev = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	plainFlags     = unix.MS_NOSUID | unix.MS_NODEV

	cpuPeriod = 100000 // microseconds over which processor use is counted
)

// config translates a box. Everything that is not named here is off: no capabilities, no devices but the six
// that programs expect, no new keyring, no seccomp (the guest installs its own).
func config(b guestproto.Box) *configs.Config {
	noCore := configs.Rlimit{Type: unix.RLIMIT_CORE}
	c := &configs.Config{
		Rootfs:          b.Rootfs,
		Readonlyfs:      true,
		RootPropagation: unix.MS_PRIVATE | unix.MS_REC,
		NoNewPrivileges: true,
		NoNewKeyring:    true,
		Hostname:        b.Hostname,
		Umask:           &b.Umask,
		Capabilities:    &configs.Capabilities{Bounding: b.Caps, Effective: b.Caps, Permitted: b.Caps, Inheritable: b.Caps, Ambient: b.Caps},
		Rlimits:         []configs.Rlimit{noCore},
		ReadonlyPaths:   b.ReadOnly,
		MaskPaths:       b.Mask,
		Devices:         nodes(),
		RootlessEUID:    b.Rootless,
		RootlessCgroups: b.Rootless,
		Namespaces: configs.Namespaces{{Type: configs.NEWUSER}, {Type: configs.NEWNS}, {Type: configs.NEWPID},
			{Type: configs.NEWIPC}, {Type: configs.NEWUTS}},
		Cgroups: &cgroups.Cgroup{
			Name:     b.CgroupName,
			Rootless: b.Rootless,
			Resources: &cgroups.Resources{Devices: []*devices.Rule{{Type: devices.WildcardDevice, Major: devices.Wildcard,
				Minor: devices.Wildcard, Permissions: "rwm", Allow: true}}},
		},
		// Children of this user namespace may make none of their own; the one is the guest's, see early.NestEnv.
		Sysctl: map[string]string{"user.max_user_namespaces": "0"},
	}
	if b.Memory > 0 {
		c.Cgroups.Memory = b.Memory
	}
	if b.Pids > 0 {
		c.Cgroups.PidsLimit = &b.Pids
	}
	if b.CPU > 0 {
		c.Cgroups.CpuPeriod = cpuPeriod
		c.Cgroups.CpuQuota = max(1000, b.CPU*cpuPeriod/1000)
	}
	if b.Rootless {
		c.Sysctl["user.max_user_namespaces"] = "1"
		c.UIDMappings = []configs.IDMap{{ContainerID: 0, HostID: int64(b.UID), Size: 1}}
		c.GIDMappings = []configs.IDMap{{ContainerID: 0, HostID: int64(b.GID), Size: 1}}
	} else {
		c.UIDMappings = idMap(b.UIDMap)
		c.GIDMappings = idMap(b.GIDMap)
	}
	if !b.Net {
		c.Namespaces = append(c.Namespaces, configs.Namespace{Type: configs.NEWNET})
		c.Networks = []*configs.Network{{Type: "loopback"}}
	}
	for _, m := range b.Mounts {
		c.Mounts = append(c.Mounts, mount(m))
	}
	return c
}

func idMap(l []guestproto.IDRange) []configs.IDMap {
	var out []configs.IDMap
	for _, r := range l {
		out = append(out, configs.IDMap{ContainerID: r.First, HostID: r.First, Size: r.Size})
	}
	return out
}

func mount(m guestproto.Mount) *configs.Mount {
	c := &configs.Mount{Source: m.Source, Destination: m.Dest, Device: string(m.Kind), Data: m.Data, Flags: plainFlags}
	if m.Kind == guestproto.MountBind {
		set := uint64(setNosuidNodev)
		if m.ReadOnly {
			set |= unix.MOUNT_ATTR_RDONLY
		}
		c.Flags = unix.MS_BIND | unix.MS_REC
		c.RecAttr = &unix.MountAttr{Attr_set: set}
		return c
	}
	if m.Source == "" {
		c.Source = string(m.Kind)
	}
	if m.ReadOnly {
		c.Flags |= unix.MS_RDONLY
	}
	if m.NoExec {
		c.Flags |= unix.MS_NOEXEC
	}
	if m.Kind == guestproto.MountDevpts || m.Dest == "/dev" {
		c.Flags &^= unix.MS_NODEV
	}
	return c
}

func nodes() []*devices.Device {
	var l []*devices.Device
	for _, d := range []struct {
		path         string
		major, minor int64
	}{{"/dev/null", 1, 3}, {"/dev/zero", 1, 5}, {"/dev/full", 1, 7}, {"/dev/random", 1, 8}, {"/dev/urandom", 1, 9}, {"/dev/tty", 5, 0}} {
		l = append(l, &devices.Device{Path: d.path, FileMode: 0o666,
			Rule: devices.Rule{Type: devices.CharDevice, Major: d.major, Minor: d.minor, Permissions: "rwm", Allow: true}})
	}
	return l
}
