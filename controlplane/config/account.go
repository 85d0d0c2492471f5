package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// AccountDir is the folder of a home that holds the key of a login. The commands
// of threads do not see into it, which needs a folder that is there before them.
const AccountDir = "account"

const accountFile = "auth.json"

// maxKey bounds an API key.
const maxKey = 16 << 10

// Account keeps the API key that a person logged in with, in a file of the home
// that only its owner can read. It is safe for concurrent use.
type Account struct {
	home Home
	mu   sync.Mutex
}

// NewAccount returns the account of a home. With an empty Dir nothing is kept
// and nothing can be.
func NewAccount(home Home) *Account { return &Account{home: home} }

type login struct {
	Mode string `json:"auth_mode"`
	Key  string `json:"OPENAI_API_KEY"`
}

// Path is the file with the key; empty when there is no home.
func (a *Account) Path() string {
	if a.home.Dir == "" {
		return ""
	}
	return filepath.Join(a.home.Dir, AccountDir, accountFile)
}

// Prepare makes the folder that holds the key.
func (a *Account) Prepare() error {
	if a.home.Dir == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(a.Path()), 0o700); err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	return nil
}

// Key returns the key; empty means that nobody is logged in.
func (a *Account) Key() (string, error) {
	if a.home.Dir == "" {
		return "", nil
	}
	data, err := os.ReadFile(a.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the login: %w", err)
	}
	var f login
	if err := json.Unmarshal(data, &f); err != nil {
		// The text of the error could hold a part of the key.
		return "", fmt.Errorf("read the login: %s is not valid; log in again", a.Path())
	}
	return f.Key, nil
}

// Login keeps a key in the place of the one before.
func (a *Account) Login(key string) error {
	key = strings.TrimSpace(key)
	switch {
	case key == "":
		return errors.New("the API key is empty")
	case len(key) > maxKey || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return errors.New("the API key is not one: it has characters that no header can carry, or too many of them")
	case a.home.Dir == "":
		return errors.New("keep the login: there is no home folder")
	}
	data, err := json.MarshalIndent(login{Mode: "apikey", Key: key}, "", "  ")
	if err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.Prepare(); err != nil {
		return err
	}
	// A new file in its place: one that others can read, or that is a link, does
	// not get the key.
	tmp, err := os.CreateTemp(filepath.Dir(a.Path()), accountFile+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("keep the login: %w", err)
	}
	_, err = tmp.Write(append(data, '\n'))
	if err == nil {
		err = tmp.Sync()
	}
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), a.Path())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("keep the login: %w", err), os.Remove(tmp.Name()))
	}
	return nil
}

// Logout forgets the key. It reports whether there was one.
func (a *Account) Logout() (bool, error) {
	if a.home.Dir == "" {
		return false, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	err := os.Remove(a.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("forget the login: %w", err)
	}
	return true, nil
}
