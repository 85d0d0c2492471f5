package sandboxtest

import (
	"os"
	"strings"

	"github.com/heddle-dev/heddle/sandbox"
)

// LandlockGap says why sandbox.FallbackLandlock cannot hold a row at a level, or is empty. Each reason is one of
// those that sandbox.LandlockGaps names to users, or a policy that the fallback refuses.
func LandlockGap(row Row, level sandbox.Level) string {
	write := level == sandbox.WorkspaceWrite
	switch {
	case write && strings.HasSuffix(row.What, ", git may commit"):
		return "git = \"commit\" is refused: parts of .git cannot be kept read-only"
	case strings.HasPrefix(row.ID, "N14"), strings.HasPrefix(row.ID, "N") && strings.HasSuffix(row.ID, "p"), row.ID == "L01p", row.ID == "N01b":
		return "a network other than off is refused"
	case write && strings.HasPrefix(row.ID, "F26"):
		return insideDenied
	case row.ID == "R02" && os.Geteuid() != 0:
		return "without a cgroup controller the limit of processes would count all of the user's"
	case !write && row.What == "programs of a build work":
		return "changes of modes and times are refused at read-only, also in the private tmp"
	}
	if why := landlockGaps[row.ID]; write || !strings.HasPrefix(why, writeOnly) {
		return strings.TrimPrefix(why, writeOnly)
	}
	return ""
}

// writeOnly marks rows that hold at read-only.
const writeOnly = "workspace-write: "

const (
	protectedGap = writeOnly + "protected names below a writable folder cannot be kept from writing"
	insideDenied = "a denied path in a writable folder is refused as a policy"
	listGap      = "names in denied folders can be listed; their content cannot be read"
	tmpGap       = "there is no private /tmp and /dev/shm: the host's are read-only, and TMPDIR names a folder without a limit"
	inside       = "IP sockets, netlink, unix datagrams and every connect are refused, also inside"
)

var landlockGaps = map[string]string{
	"F07": protectedGap, "F08": protectedGap, "F09": protectedGap, "F18": protectedGap, "F19": protectedGap, "F21": protectedGap, "F21b": protectedGap,
	"T11": protectedGap, "T12": protectedGap, "T12b": protectedGap,
	"S10b": "a refused write says permission denied, not read-only file system, and .git can be written",
	"H14":  writeOnly + insideDenied,
	"S16b": "ten thousand denied files beside allowed ones are as many rules, which take longer; in a writable folder they are refused",
	"S10":  writeOnly + "git = \"commit\" is refused: parts of .git cannot be kept read-only",
	"F15":  listGap, "L03": listGap,
	"F16": tmpGap, "F17": tmpGap, "R04": tmpGap,
	"F20":  writeOnly + "owner, mode, times and attributes of files outside are not covered by Landlock",
	"K21":  "there is no user namespace",
	"P05":  "/proc cannot be written, /proc/self included",
	"P08":  "there is no pid namespace: processes of the host are seen",
	"N04":  "sockets of the host are seen, but cannot be connected to",
	"N05c": "the refusal of a connect is not told: no supervisor sees it", "S07": "the refusal of a connect is not told: no supervisor sees it",
	"N05b": writeOnly + inside, "N05g": inside, "N10": inside, "N12": inside, "N12b": inside, "N12c": inside,
	"L02b": "TMPDIR is set, because /tmp cannot be written",
	"S15":  writeOnly + "root has no capability, so it cannot write a workspace of another user",
}
