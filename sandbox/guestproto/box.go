package guestproto

// MountKind is what a Mount puts in place.
type MountKind string

const (
	MountBind   MountKind = "bind"
	MountTmpfs  MountKind = "tmpfs"
	MountProc   MountKind = "proc"
	MountSysfs  MountKind = "sysfs"
	MountDevpts MountKind = "devpts"
	MountMqueue MountKind = "mqueue"
)

// Mount is one step of a sandbox's file system, applied in order.
type Mount struct {
	Kind     MountKind
	Source   string
	Dest     string
	ReadOnly bool
	// NoExec is set where programs have no business.
	NoExec bool
	Data   string
}

// Box describes a sandbox to its keeper. It is sent as JSON: the paths in it come from the owner, and every
// one was cleaned and checked to be valid UTF-8 by it.
type Box struct {
	ID        string
	StateRoot string // libcontainer's state directory
	Rootfs    string // empty skeleton
	Mounts    []Mount
	Net       bool // share the host's network
	Hostname  string
	Rootless  bool
	UID, GID  int // rootless: the caller's ids
	// UIDMap and GIDMap, not rootless: the ids that exist, each mapped to itself.
	UIDMap, GIDMap []IDRange
	Caps           []string
	Umask          uint32
	// CgroupName is the name of the sandbox's cgroups. Memory in bytes, Pids, CPU in thousandths of a processor:
	// 0 is no limit.
	CgroupName        string
	Memory, Pids, CPU int64
	ReadOnly          []string // paths under /proc to make read-only
	Mask              []string
	// Covers are further paths to hide, by the thousand: after the mounts each gets what is mounted at EmptyDir or
	// EmptyFile by then. Each is the letter d for a directory or f for a file, the path, and a zero byte.
	Covers              []byte
	EmptyDir, EmptyFile string
}

// IDRange is a run of user or group ids.
type IDRange struct{ First, Size int64 }

// KeeperSetup is the first frame to a keeper, as JSON: what it removes when its owner goes away.
type KeeperSetup struct {
	OwnerDir  string // state of the owner, below a directory named owners
	CgroupDir string // cgroup v2 directory of the owner's commands; may be empty
}
