package controlplane

import (
	"os"
	"sync"

	"github.com/heddle-dev/heddle/controlplane/artifact"
)

// outputs gives the agent and the services the stream files. Those of ephemeral
// threads lie in a folder of their own, which goes with this process.
type outputs struct {
	durable   *artifact.Streams
	ephemeral *artifact.Streams
	dir       string
	// threads are the ephemeral ones.
	threads sync.Map
}

// newOutputs opens the streams under dir, and those of ephemeral threads under
// scratch, where nothing is left of an earlier process.
func newOutputs(dir, scratch string) (*outputs, error) {
	if err := os.RemoveAll(scratch); err != nil {
		return nil, err
	}
	o := &outputs{dir: scratch}
	var err error
	if o.durable, err = artifact.New(artifact.Config{Dir: dir}); err != nil {
		return nil, err
	}
	o.ephemeral, err = artifact.New(artifact.Config{Dir: scratch})
	return o, err
}

// Close removes what ephemeral threads left.
func (o *outputs) Close() error { return os.RemoveAll(o.dir) }

// Ephemeral says that a thread's output must not outlive this process.
func (o *outputs) Ephemeral(threadID string) { o.threads.Store(threadID, true) }

func (o *outputs) of(threadID string) *artifact.Streams {
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
	return o.of(threadID).DeleteThread(threadID)
}
