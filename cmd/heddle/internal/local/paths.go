package local

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// sunPathMax is the longest socket path the kernel takes, without the final NUL.
const sunPathMax = 107

// paths are the files of a home that this package owns.
type paths struct {
	home         string
	run          string
	log          string
	socket       string
	socketRecord string // names the socket when it could not be in the home
	startLock    string
	lock         string
	executorLock string
}

// pathsOf makes the folders of a home and decides where its socket is.
func pathsOf(home string) (paths, error) {
	home, err := filepath.Abs(home)
	if err != nil {
		return paths{}, fmt.Errorf("resolve home: %w", err)
	}
	run := filepath.Join(home, "run")
	p := paths{
		home:         home,
		run:          run,
		log:          filepath.Join(home, "log", "controlplane.log"),
		socket:       filepath.Join(run, "control.sock"),
		socketRecord: filepath.Join(run, "control.path"),
		startLock:    filepath.Join(run, "start.lock"),
		lock:         filepath.Join(run, "lock"),
		executorLock: filepath.Join(run, "executor.lock"),
	}
	for _, dir := range []string{home, run, filepath.Dir(p.log)} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return paths{}, fmt.Errorf("make folder of the home: %w", err)
		}
	}
	if len(p.socket) > sunPathMax {
		if p.socket, err = p.shortSocket(); err != nil {
			return paths{}, err
		}
	}
	return p, nil
}

// shortSocket is the socket of a home whose own path is too long: the recorded
// one, else one in a private folder with a short name.
func (p paths) shortSocket() (string, error) {
	if recorded, err := os.ReadFile(p.socketRecord); err == nil {
		if s := strings.TrimSpace(string(recorded)); filepath.IsAbs(s) && privateDir(filepath.Dir(s)) == nil {
			return s, nil
		}
	}
	sum := sha256.Sum256([]byte(p.home))
	name := hex.EncodeToString(sum[:8]) + ".sock"
	var dirs []string
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) && privateDir(dir) == nil {
		dirs = append(dirs, filepath.Join(dir, "heddle"))
	}
	dirs = append(dirs, filepath.Join("/tmp", "heddle-"+strconv.Itoa(os.Geteuid())))
	var problems []error
	for _, dir := range dirs {
		err := privateDir(dir)
		if s := filepath.Join(dir, name); err == nil && len(s) <= sunPathMax {
			return s, nil
		}
		problems = append(problems, err)
	}
	return "", fmt.Errorf("no place for the socket of %s: %w", p.home, errors.Join(problems...))
}

// privateDir makes dir when it is missing and fails unless it is a real folder
// of this user that nobody else can enter.
func privateDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s is not a private folder of uid %d", dir, os.Geteuid())
	}
	return nil
}
