package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
)

// audit looks for what no mount prevents: a protected name that did not exist and was created, or a protected
// link that was replaced. It moves what it finds out of the workspace.
func (pl *plan) audit(quarantine string) []Violation {
	var out []Violation
	for _, path := range pl.absent {
		if _, err := os.Lstat(path); err == nil {
			out = append(out, remove(path, quarantine, "a command created this protected name"))
		}
	}
	for _, id := range pl.guarded {
		if now := identify(id.path); !now.same(id) && now.exists {
			out = append(out, Violation{Path: id.path, What: "this protected name was replaced on the host while a command ran, which could write the new one"})
		}
	}
	for _, l := range pl.links {
		now := identify(l.path)
		if now.same(l) {
			continue
		}
		v := Violation{Path: l.path, What: "a command removed this protected link"}
		if now.exists {
			v = remove(l.path, quarantine, "a command replaced this protected link")
		}
		if err := os.Symlink(l.link, l.path); err != nil {
			v.What += fmt.Sprintf("; it could not be restored: %v", err)
		}
		out = append(out, v)
	}
	return out
}

// remove moves path into the quarantine. Across file systems it is copied; what cannot be copied stays, renamed
// so that nothing uses it.
func remove(path, quarantine, what string) Violation {
	v := Violation{Path: path, What: what}
	if err := os.MkdirAll(quarantine, 0o700); err != nil {
		v.What += fmt.Sprintf("; it is still there: %v", err)
		return v
	}
	to := filepath.Join(quarantine, randomID()+"-"+filepath.Base(path))
	err := os.Rename(path, to)
	if err != nil {
		err = moveAcross(path, to)
	}
	if err != nil {
		v.What += fmt.Sprintf("; it is still there: %v", err)
		return v
	}
	v.Quarantine = to
	return v
}

// moveAcross takes path out of use first, by renaming it in place, and then copies it. os.Root keeps the copy
// from following a link out of the tree.
func moveAcross(path, to string) error {
	aside := filepath.Join(filepath.Dir(path), ".heddle-quarantine-"+randomID())
	if err := os.Rename(path, aside); err != nil {
		return err
	}
	fi, err := os.Lstat(aside)
	if err != nil {
		return err
	}
	if fi.IsDir() {
		r, err := os.OpenRoot(aside)
		if err != nil {
			return err
		}
		err = os.CopyFS(to, r.FS())
		r.Close()
		if err != nil { // a device, a link to outside: the content is not worth keeping unsafe names for
			_ = os.RemoveAll(to)
		}
	} else if fi.Mode().IsRegular() {
		if b, err := os.ReadFile(aside); err == nil {
			_ = os.WriteFile(to, b, 0o600)
		}
	}
	return os.RemoveAll(aside)
}
