package search

import (
	"context"
	"io"
	"os"
	"path"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/junegunn/fzf/src/util"
)

const (
	// maxFiles and maxWalk bound what is looked at for one search.
	maxFiles = 300_000
	maxWalk  = 30 * time.Second
	maxDepth = 100
	readMany = 1024
)

// found is one file or folder below a root.
type found struct {
	root int
	path util.Chars
	dir  bool
}

// index is what was found so far.
type index struct {
	mu      sync.Mutex
	files   []found
	done    bool
	partial bool
	// ended is closed when the walk has ended.
	ended chan struct{}
}

// state returns what was found so far; the slice is only ever appended to.
func (x *index) state() (files []found, done, partial bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.files, x.done, x.partial
}

// walk fills the index with what is below the roots.
func (x *index) walk(ctx context.Context, roots []string) {
	ctx, cancel := context.WithTimeout(ctx, maxWalk)
	defer cancel()
	w := walker{ctx: ctx, index: x}
	for i, root := range roots {
		if root == "" {
			continue
		}
		w.root = i
		w.rules = above(root)
		w.dir(root, ".", nil, len(w.rules) > 0 || isRepo(root))
	}
	x.mu.Lock()
	x.done, x.partial = true, w.full || ctx.Err() != nil
	x.mu.Unlock()
	close(x.ended)
}

type walker struct {
	ctx   context.Context
	index *index
	root  int
	// rules in force, outermost first.
	rules []*rules
	full  bool
}

type inode struct{ dev, ino uint64 }

// dir walks one folder. over are the folders above it, against loops of links;
// repo tells that it lies in a repository, where ignore files count.
func (w *walker) dir(full, rel string, over []inode, repo bool) {
	if w.full || w.ctx.Err() != nil || len(over) > maxDepth {
		return
	}
	f, err := os.OpenFile(full, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.IsDir() {
		return
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		here := inode{st.Dev, st.Ino}
		for _, o := range over {
			if o == here {
				return
			}
		}
		over = append(over[:len(over):len(over)], here)
	}
	if rel != "." {
		repo = repo || isRepo(full)
	}
	if repo {
		kept := len(w.rules)
		defer func() { w.rules = w.rules[:kept] }()
		if rel == "." || isRepo(full) {
			w.add(readRules(full, rel, "", ".git/info/exclude"))
		}
		w.add(readRules(full, rel, "", ".gitignore", ".ignore"))
	}
	var folders []string
	for {
		list, err := f.ReadDir(readMany)
		folders = w.take(full, rel, list, folders)
		if err != nil || w.full || w.ctx.Err() != nil {
			if err != nil && err != io.EOF {
				w.full = true // something stays unseen
			}
			break
		}
	}
	for _, name := range folders {
		w.dir(filepath.Join(full, name), path.Join(rel, name), over, repo)
	}
}

func (w *walker) add(r *rules) {
	if r != nil {
		w.rules = append(w.rules, r)
	}
}

// take adds the entries of a folder to the index and returns the folders among
// them.
func (w *walker) take(full, rel string, list []os.DirEntry, folders []string) []string {
	batch := make([]found, 0, len(list))
	for _, e := range list {
		dir, file := e.IsDir(), e.Type().IsRegular()
		if e.Type()&os.ModeSymlink != 0 {
			info, err := os.Stat(filepath.Join(full, e.Name()))
			if err != nil {
				continue
			}
			dir, file = info.IsDir(), info.Mode().IsRegular()
		}
		if !dir && !file {
			continue
		}
		name := path.Join(rel, e.Name())
		if w.ignored(name, dir) {
			continue
		}
		batch = append(batch, found{root: w.root, path: util.ToChars([]byte(name)), dir: dir})
		if dir {
			folders = append(folders, e.Name())
		}
	}
	x := w.index
	x.mu.Lock()
	defer x.mu.Unlock()
	if room := maxFiles - len(x.files); len(batch) >= room {
		batch, w.full = batch[:room], true
	}
	x.files = append(x.files, batch...)
	return folders
}

func (w *walker) ignored(name string, dir bool) bool {
	for i := len(w.rules) - 1; i >= 0; i-- {
		if ignored, known := w.rules[i].ignored(name, dir); known {
			return ignored
		}
	}
	return false
}

func isRepo(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, ".git"))
	return err == nil
}

// above returns the rules of the folders above a root, up to that of its
// repository; none outside of a repository.
func above(root string) []*rules {
	if isRepo(root) {
		return nil
	}
	var list []*rules
	prefix := filepath.Base(root)
	for dir := filepath.Dir(root); ; dir = filepath.Dir(dir) {
		names := []string{".gitignore", ".ignore"}
		repo := isRepo(dir)
		if repo {
			names = append([]string{".git/info/exclude"}, names...)
		}
		r := readRules(dir, ".", prefix, names...)
		if r == nil {
			r = &rules{base: ".", prefix: prefix}
		}
		list = append([]*rules{r}, list...)
		if repo {
			return list
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
		prefix = filepath.Join(filepath.Base(dir), prefix)
	}
}
