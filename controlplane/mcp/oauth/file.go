package oauth

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// maxFile bounds the file of tokens, in bytes.
const maxFile = 4 << 20

// file is the file of tokens. It is replaced as a whole, so that it is never
// half-written.
type file struct {
	path string
	mu   sync.Mutex
}

type contents struct {
	Servers []*credential `json:"servers"`
}

func (f *file) read() (*contents, error) {
	info, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return &contents{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the logins of MCP servers: %w", err)
	}
	if info.Size() > maxFile || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no file of logins; remove it and log in again", f.path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("%s can be read by others (mode %04o); set it to 0600, or remove it and log in again", f.path, info.Mode().Perm())
	}
	data, err := os.ReadFile(f.path)
	if err != nil {
		return nil, fmt.Errorf("read the logins of MCP servers: %w", err)
	}
	c := &contents{}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("%s is damaged; remove it and log in again: %w", f.path, err)
	}
	return c, nil
}

// get returns the login of a server; nil when there is none.
func (f *file) get(s Server) (*credential, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, err := f.read()
	if err != nil {
		return nil, err
	}
	for _, k := range c.Servers {
		if k.Name == s.Name && k.URL == s.URL {
			return k, nil
		}
	}
	return nil, nil
}

// set keeps the login of a server, or forgets it, and reports whether there was
// one.
func (f *file) set(s Server, k *credential) (had bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c, err := f.read()
	if err != nil {
		return false, err
	}
	before := len(c.Servers)
	c.Servers = slices.DeleteFunc(c.Servers, func(old *credential) bool { return old.Name == s.Name && old.URL == s.URL })
	had = len(c.Servers) < before
	if k != nil {
		c.Servers = append(c.Servers, k)
	} else if !had {
		return false, nil
	}
	if err := f.write(c); err != nil {
		return had, fmt.Errorf("keep the logins of MCP servers: %w", err)
	}
	return had, nil
}

func (f *file) write(c *contents) error {
	data, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(f.path), fileName+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = temp.Write(append(data, '\n'))
	if err == nil {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	return os.Rename(temp.Name(), f.path)
}
