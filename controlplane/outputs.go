package controlplane

import (
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/heddle-dev/heddle/controlplane/artifact"
)

// outputs gives the agent and the services the stream files. Those of ephemeral
// threads lie in a folder of their own, which goes with this process.
type outputs struct {
	durable   *kept
	ephemeral *kept
	dir       string
	// threads are the ephemeral ones.
	threads sync.Map
}

// kept are the bytes of durable or of ephemeral threads.
type kept struct {
	*artifact.Streams
	blobs *artifact.Blobs
}

func openKept(streams, blobs string) (*kept, error) {
	for _, dir := range []string{streams, blobs} { // there from the beginning: sandboxes look whether what they hide is the same
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	s, err := artifact.New(artifact.Config{Dir: streams})
	if err != nil {
		return nil, err
	}
	b, err := artifact.NewBlobs(artifact.BlobConfig{Dir: blobs})
	return &kept{Streams: s, blobs: b}, err
}

// newOutputs opens the streams under dir, the blobs under blobs, and both of
// ephemeral threads under scratch, where nothing is left of an earlier process.
func newOutputs(dir, blobs, scratch string) (*outputs, error) {
	if err := clearDir(scratch); err != nil {
		return nil, err
	}
	o := &outputs{dir: scratch}
	var err error
	if o.durable, err = openKept(dir, blobs); err != nil {
		return nil, err
	}
	o.ephemeral, err = openKept(filepath.Join(scratch, "streams"), filepath.Join(scratch, "artifacts"))
	return o, err
}

// Close removes what ephemeral threads left.
func (o *outputs) Close() error { return clearDir(o.dir) }

// clearDir removes what is in a folder and keeps the folder, which sandboxes hide.
func clearDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var all error
	for _, e := range entries {
		all = errors.Join(all, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return all
}

// Ephemeral says that a thread's output must not outlive this process.
func (o *outputs) Ephemeral(threadID string) { o.threads.Store(threadID, true) }

func (o *outputs) of(threadID string) *kept {
	if _, ok := o.threads.Load(threadID); ok {
		return o.ephemeral
	}
	return o.durable
}

func (o *outputs) WriteAt(threadID, itemID string, offset int64, data []byte, cut int64) (size, dropped int64, err error) {
	w, err := o.of(threadID).Open(threadID, itemID)
	if err != nil {
		return 0, 0, err
	}
	if len(data) > 0 {
		if _, _, err := w.WriteAt(offset, data); err != nil {
			return 0, 0, err
		}
	}
	if cut > 0 {
		w.Drop(cut)
	}
	size, dropped = w.Size()
	return size, dropped, nil
}

func (o *outputs) Size(threadID, itemID string) (int64, error) {
	_, total, err := o.of(threadID).ReadAt(threadID, itemID, 0, 0)
	return total, err
}

func (o *outputs) ReadAt(threadID, itemID string, offset, length int64) ([]byte, int64, error) {
	return o.of(threadID).ReadAt(threadID, itemID, offset, int(length))
}

func (o *outputs) Aggregated(threadID, itemID string, limit int64) ([]byte, error) {
	v, err := o.of(threadID).Aggregated(threadID, itemID, int(limit))
	return v.Data, err
}

func (o *outputs) Seal(threadID, itemID string) error {
	w, err := o.of(threadID).Open(threadID, itemID)
	if err != nil {
		return err
	}
	_, err = w.Seal()
	return err
}

func (o *outputs) DeleteThread(threadID string) error {
	defer o.threads.Delete(threadID)
	k := o.of(threadID)
	return errors.Join(k.DeleteThread(threadID), k.blobs.DeleteThread(threadID))
}

func (o *outputs) Stat(threadID, itemID string) (artifact.Seal, bool, error) {
	return o.of(threadID).Stat(threadID, itemID)
}

func (o *outputs) PutBlob(threadID, owner string, data []byte) (sum string, err error) {
	return o.of(threadID).blobs.Put(threadID, owner, data)
}

func (o *outputs) KeepDraft(threadID, owner string, data []byte) error {
	return o.of(threadID).blobs.KeepDraft(threadID, owner, data)
}

func (o *outputs) Draft(threadID, owner string) ([]byte, error) {
	return o.of(threadID).blobs.Draft(threadID, owner)
}

func (o *outputs) DiscardBlobs(threadID, owner string) error {
	return o.of(threadID).blobs.Discard(threadID, owner)
}

func (o *outputs) ReadBlob(threadID, owner, sum string, offset, length int64) ([]byte, int64, error) {
	return o.of(threadID).blobs.ReadAt(threadID, owner, sum, offset, int(length))
}

// Sweep removes what is left of threads that are not kept, and returns how many
// folders that were.
func (o *outputs) Sweep(keep func(threadID string) (bool, error)) (int, error) {
	n, err := o.durable.Sweep(keep)
	m, err2 := o.durable.blobs.Sweep(keep)
	return n + m, errors.Join(err, err2)
}
