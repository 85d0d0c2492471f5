package inspect

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	maxSmall  = 64 << 10 // HEAD, a ref, .git as a file
	maxConfig = 1 << 20
	maxPacked = 256 << 20
)

// Git is the state of a repository.
type Git struct {
	// SHA of HEAD; empty before the first commit.
	SHA string
	// Branch is empty when HEAD is detached.
	Branch string
	// OriginURL without a password.
	OriginURL string
}

// ReadGit reads the repository whose work tree is root. The error names the file
// that could not be read; the rest is filled in.
func ReadGit(root string) (Git, error) {
	dir, err := gitDir(root)
	if err != nil {
		return Git{}, fmt.Errorf("cannot read git information: %w", err)
	}
	common := commonDir(dir)
	var g Git
	err = g.head(dir, common)
	g.OriginURL = originURL(filepath.Join(common, "config"))
	if err != nil {
		return g, fmt.Errorf("cannot read git information: %w", err)
	}
	return g, nil
}

// gitDir follows a .git file of a linked work tree or submodule.
func gitDir(root string) (string, error) {
	path := filepath.Join(root, ".git")
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.IsDir() {
		return path, nil
	}
	text, err := readSmall(path)
	if err != nil {
		return "", err
	}
	dir, ok := strings.CutPrefix(text, "gitdir:")
	if !ok {
		return "", fmt.Errorf("%s does not name a git directory", path)
	}
	return join(root, strings.TrimSpace(dir)), nil
}

// commonDir is where refs and config of all work trees are.
func commonDir(dir string) string {
	text, err := readSmall(filepath.Join(dir, "commondir"))
	if err != nil || text == "" {
		return dir
	}
	return join(dir, text)
}

func join(base, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(base, path)
}

func (g *Git) head(dir, common string) error {
	text, err := readSmall(filepath.Join(dir, "HEAD"))
	if err != nil {
		return err
	}
	for range 5 { // symbolic refs may point to symbolic refs
		ref, symbolic := strings.CutPrefix(text, "ref:")
		if !symbolic {
			if isHash(text) {
				g.SHA = text
			}
			return nil
		}
		ref = strings.TrimSpace(ref)
		if !strings.HasPrefix(ref, "refs/") || !filepath.IsLocal(ref) {
			return nil
		}
		if b, ok := strings.CutPrefix(ref, "refs/heads/"); ok && b != ".invalid" {
			g.Branch = b
		}
		if text, err = readRef(dir, common, ref); err != nil {
			return err
		}
	}
	return nil
}

// readRef returns a ref's text, empty when there is no such ref.
func readRef(dir, common, ref string) (string, error) {
	for _, d := range []string{dir, common} {
		text, err := readSmall(filepath.Join(d, ref))
		if err == nil {
			return text, nil
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, syscall.EISDIR) {
			return "", err
		}
	}
	f, err := openRegular(filepath.Join(common, "packed-refs"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, maxPacked))
	for lines.Scan() {
		hash, rest, ok := bytes.Cut(lines.Bytes(), []byte{' '})
		if ok && string(rest) == ref && isHash(string(hash)) {
			return string(hash), nil
		}
	}
	return "", lines.Err()
}

func isHash(s string) bool {
	if len(s) != 40 && len(s) != 64 {
		return false
	}
	for i := range len(s) {
		if !strings.ContainsRune("0123456789abcdef", rune(s[i])) {
			return false
		}
	}
	return true
}

// originURL reads remote.origin.url; the last one wins, as in git.
func originURL(path string) string {
	f, err := openRegular(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	found, inside := "", false
	lines := bufio.NewScanner(io.LimitReader(f, maxConfig))
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "[") {
			section := strings.Join(strings.Fields(strings.Trim(line, "[]")), " ")
			name, rest, _ := strings.Cut(section, " ")
			inside = strings.EqualFold(name, "remote") && rest == `"origin"`
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if inside && ok && strings.EqualFold(strings.TrimSpace(key), "url") {
			found = strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return withoutPassword(found)
}

// withoutPassword removes a secret that people put into https URLs.
func withoutPassword(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.User == nil || (u.Scheme != "http" && u.Scheme != "https") {
		return s
	}
	u.User = nil
	return u.String()
}

func readSmall(path string) (string, error) {
	f, err := openRegular(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSmall))
	return strings.TrimSpace(string(data)), err
}

// openRegular opens a file without ever waiting for a pipe's other end.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = &fs.PathError{Op: "read", Path: path, Err: syscall.EISDIR}
	} else if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: path, Err: errNotRegular}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
