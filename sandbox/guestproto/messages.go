package guestproto

import "fmt"

// Kind tells what a frame means.
type Kind uint8

const (
	// Owner to guest, and the answers.
	KSetup    Kind = iota + 1 // first frame; answered by KReply
	KStart                    // answered by KReply, later KExit with the same id
	KExit                     // guest to owner, unasked
	KSignal                   // no answer; the id is that of the KStart
	KKill                     // no answer: end everything of the command
	KDeadline                 // no answer: move the fence
	KFile                     // a file action; answered by KReply
	KReply                    // answer to the request of the same id
	KDenied                   // guest to owner, unasked: the command of this id was refused a path (text)
	// Owner to keeper.
	KCreate // make a sandbox; answered by KReply
	KEnd    // no answer: kill and remove a sandbox
	KEnded  // keeper to owner: a sandbox is gone
	// Owner to guest again.
	KListen // open a loopback listener inside; answered by KReply with its port and descriptor
)

func (k Kind) String() string { return fmt.Sprintf("frame(%d)", uint8(k)) }

// Setup configures a guest once. Descriptors: the open cgroup.kill of the sandbox's commands, if any.
type Setup struct {
	Version   int
	Contained bool // in namespaces: harden, filter system calls, die as PID 1
	Shim      bool // no cgroups: run each command under a subreaper
	GraceMS   int  // how long leftovers may drain in shim mode
	FileBytes int64
	Pids      int64 // limit of tasks by the kernel's count for the user namespace, where there are no cgroups
	Scope     bool  // confine signals of each command to itself (Landlock)
	Connect   bool  // perform connect for the commands, and refuse sockets that were not bound inside
	HostTmp   bool  // /tmp is the host's
	// Landlock: no namespaces, but rules that the guest entered before it ran; harden as inside.
	Landlock bool
	Frozen   bool     // with Landlock: nothing of the host may change at all
	Guarded  []string // with Landlock: paths that file actions must not change, as no mount protects them
}

func (s Setup) Encode() []byte {
	var e Enc
	e.Uint(uint64(s.Version))
	e.Bool(s.Contained)
	e.Bool(s.Shim)
	e.Uint(uint64(s.GraceMS))
	e.Int(s.FileBytes)
	e.Int(s.Pids)
	for _, v := range []bool{s.Scope, s.Connect, s.HostTmp, s.Landlock, s.Frozen} {
		e.Bool(v)
	}
	e.Strs(s.Guarded)
	return e.B
}

func DecodeSetup(b []byte) (Setup, error) {
	d := Dec{B: b}
	s := Setup{Version: int(d.Uint()), Contained: d.Bool(), Shim: d.Bool(), GraceMS: int(d.Uint()), FileBytes: d.Int(), Pids: d.Int(),
		Scope: d.Bool(), Connect: d.Bool(), HostTmp: d.Bool(), Landlock: d.Bool(), Frozen: d.Bool(), Guarded: d.Strs()}
	return s, d.Err
}

// Start asks for a process. Descriptors, in this order, each only when its flag is set: cgroup directory,
// standard input, output, error. A stream without a descriptor is /dev/null; error without one is output.
type Start struct {
	Argv, Env  []string
	Dir        string
	Below      string // when set, Dir lies in this folder, no step to which may be a link
	TTY        bool
	Rows, Cols uint16
	HasCgroup  bool
	HasStdin   bool
	HasStdout  bool
	HasStderr  bool
	GivenTTY   bool // the terminal is the descriptor of standard input, made by the owner
}

func (s Start) Encode() []byte {
	var e Enc
	e.Strs(s.Argv)
	e.Strs(s.Env)
	e.Str(s.Dir)
	e.Str(s.Below)
	e.Bool(s.TTY)
	e.Uint(uint64(s.Rows))
	e.Uint(uint64(s.Cols))
	for _, v := range []bool{s.HasCgroup, s.HasStdin, s.HasStdout, s.HasStderr, s.GivenTTY} {
		e.Bool(v)
	}
	return e.B
}

func DecodeStart(b []byte) (Start, error) {
	d := Dec{B: b}
	s := Start{Argv: d.Strs(), Env: d.Strs(), Dir: d.Str(), Below: d.Str(), TTY: d.Bool(), Rows: uint16(d.Uint()), Cols: uint16(d.Uint()),
		HasCgroup: d.Bool(), HasStdin: d.Bool(), HasStdout: d.Bool(), HasStderr: d.Bool(), GivenTTY: d.Bool()}
	return s, d.Err
}

// Exit tells how a command's main process ended. In shim mode everything it started is gone by then.
type Exit struct {
	Status     uint32 // wait status
	UserUS     int64
	SystemUS   int64
	Leftovers  bool // shim mode: processes had to be killed
	ShimKilled bool // shim mode: the subreaper itself was killed from inside
}

func (x Exit) Encode() []byte {
	var e Enc
	e.Uint(uint64(x.Status))
	e.Int(x.UserUS)
	e.Int(x.SystemUS)
	e.Bool(x.Leftovers)
	e.Bool(x.ShimKilled)
	return e.B
}

func DecodeExit(b []byte) (Exit, error) {
	d := Dec{B: b}
	x := Exit{Status: uint32(d.Uint()), UserUS: d.Int(), SystemUS: d.Int(), Leftovers: d.Bool(), ShimKilled: d.Bool()}
	return x, d.Err
}

// Reply answers a request. Errno is 0 for success; Text says what failed when the number is not enough.
type Reply struct {
	Errno int
	Text  string
	Body  []byte
}

func (r Reply) Encode() []byte {
	var e Enc
	e.Uint(uint64(r.Errno))
	e.Str(r.Text)
	e.Bytes(r.Body)
	return e.B
}

func DecodeReply(b []byte) (Reply, error) {
	d := Dec{B: b}
	r := Reply{Errno: int(d.Uint()), Text: d.Str(), Body: d.Bytes()}
	return r, d.Err
}

// FileOp is a file action.
type FileOp uint8

const (
	OpRead FileOp = iota + 1 // answers with a descriptor of a regular file
	OpStat                   // FlagNoFollow for the name itself
	OpReadDir
	OpWrite // data in Data, or in a descriptor
	OpMkdirAll
	OpRemove
	OpRename
	OpVerify // like OpStat for many paths (Data: encoded strings), with the read-only flag of the mount
	OpMkdir
	OpCopy   // FlagRecursive for a tree
	OpMounts // answers with the guest's mount table, of about Max bytes
)

// Changes reports whether the action may change files.
func (o FileOp) Changes() bool {
	return o != OpRead && o != OpStat && o != OpReadDir && o != OpVerify
}

// Flags of File.
const (
	FlagNoFollow = 1 << iota
	FlagExclusive
	FlagMustExist
	FlagMkdirAll
	FlagInPlace
	FlagSync
	FlagRecursive
	FlagNoReplace
)

// File is a file action. With OpWrite, a descriptor replaces Data.
type File struct {
	Op       FileOp
	Path, To string
	Root     string
	Mode     uint32
	Flags    uint32
	Max      int64
	Data     []byte
}

func (f File) Encode() []byte {
	var e Enc
	e.Uint(uint64(f.Op))
	e.Str(f.Path)
	e.Str(f.To)
	e.Str(f.Root)
	e.Uint(uint64(f.Mode))
	e.Uint(uint64(f.Flags))
	e.Int(f.Max)
	e.Bytes(f.Data)
	return e.B
}

func DecodeFile(b []byte) (File, error) {
	d := Dec{B: b}
	f := File{Op: FileOp(d.Uint()), Path: d.Str(), To: d.Str(), Root: d.Str(), Mode: uint32(d.Uint()), Flags: uint32(d.Uint()), Max: d.Int(), Data: d.Bytes()}
	return f, d.Err
}

// Stat describes a file. Mode is the kernel's st_mode.
type Stat struct {
	Dev, Ino         uint64
	Mode             uint32
	UID, GID         uint32
	Nlink            uint64
	Size, MtimeNS    int64
	Link             string
	ReadOnly, Absent bool
}

func (s Stat) Append(e *Enc) {
	e.Uint(s.Dev)
	e.Uint(s.Ino)
	e.Uint(uint64(s.Mode))
	e.Uint(uint64(s.UID))
	e.Uint(uint64(s.GID))
	e.Uint(s.Nlink)
	e.Int(s.Size)
	e.Int(s.MtimeNS)
	e.Str(s.Link)
	e.Bool(s.ReadOnly)
	e.Bool(s.Absent)
}

func TakeStat(d *Dec) Stat {
	return Stat{Dev: d.Uint(), Ino: d.Uint(), Mode: uint32(d.Uint()), UID: uint32(d.Uint()), GID: uint32(d.Uint()),
		Nlink: d.Uint(), Size: d.Int(), MtimeNS: d.Int(), Link: d.Str(), ReadOnly: d.Bool(), Absent: d.Bool()}
}
