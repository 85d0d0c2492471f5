package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/heddle-dev/heddle/proto/errdefs"
)

// draftPrefix begins the name of a draft, before its owner.
const draftPrefix = "draft."

// KeepDraft keeps what an owner needs to make its blob after a restart; nil
// drops it. A draft outlives this process but perhaps not the machine, and a
// thread has one at a time. Past the quota it fails with ErrQuota.
func (b *Blobs) KeepDraft(threadID, owner string, data []byte) error {
	path, err := b.draft(threadID, owner)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if data == nil {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("drop draft: %w", err)
		}
		return nil
	}
	if int64(len(data)) > b.cfg.Quota {
		return fmt.Errorf("keep a draft of %d bytes: %w", len(data), ErrQuota)
	}
	if err := b.dropDrafts(threadID, filepath.Base(path)); err != nil {
		return err
	}
	temp := path + tempSuffix
	err = os.WriteFile(temp, data, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			err = os.WriteFile(temp, data, 0o600)
		}
	}
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp)
		return fmt.Errorf("keep draft: %w", err)
	}
	return nil
}

// Draft returns an owner's draft, nil when there is none.
func (b *Blobs) Draft(threadID, owner string) ([]byte, error) {
	path, err := b.draft(threadID, owner)
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read draft: %w", err)
	}
	return data, nil
}

// dropDrafts removes what owners left that a crash kept from dropping theirs.
func (b *Blobs) dropDrafts(threadID, except string) error {
	entries, err := os.ReadDir(b.folder(threadID))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at drafts: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), draftPrefix) && e.Name() != except {
			if err := os.Remove(filepath.Join(b.folder(threadID), e.Name())); err != nil {
				return fmt.Errorf("drop draft: %w", err)
			}
		}
	}
	return nil
}

func (b *Blobs) draft(threadID, owner string) (string, error) {
	if threadID == "" || owner == "" {
		return "", errdefs.New(errdefs.InvalidArgument, "draft of %q in thread %q: both ids are needed", owner, threadID)
	}
	return filepath.Join(b.folder(threadID), draftPrefix+fileName(owner)), nil
}
