package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	bolt "go.etcd.io/bbolt"

	"github.com/heddle-dev/heddle/proto/errdefs"
)

// Names of buckets and keys; read-only. doc.go says what they hold.
var (
	bucketMeta    = []byte("meta")
	bucketRows    = []byte("rows")
	bucketThreads = []byte("threads")
	bucketCreated = []byte("created")
	bucketUpdated = []byte("updated")
	bucketText    = []byte("text")
	bucketOpen    = []byte("open")
	bucketForks   = []byte("forks")
	bucketTrash   = []byte("trash")
	bucketGroups  = []byte("groups")
	bucketOwners  = []byte("owners")
	bucketRecords = []byte("records")

	subEvents    = []byte("events")
	subTurns     = []byte("turns")
	subTurnIDs   = []byte("turnids")
	subItems     = []byte("items")
	subItemIDs   = []byte("itemids")
	subUsers     = []byte("users")
	subHistory   = []byte("history")
	subFloors    = []byte("floors")
	subApprovals = []byte("approvals")
	subOpen      = []byte("open")
	subAttached  = []byte("attached")
	subAttachIDs = []byte("attachids")

	keySchema  = []byte("schema")
	keyRequest = []byte("request")
	keyHead    = []byte("head")
	keyQueue   = []byte("queue")
)

const (
	openTurn     = 't'
	openItem     = 'i'
	openAction   = 'a'
	openApproval = 'p'
	openQueue    = 'q'
)

// migration brings the file from the schema before it to its own.
type migration func(*bolt.Tx) error

// migrations in order; the schema number is the count of those that were run.
// Read-only. A released migration is never changed.
var migrations = []migration{createBuckets, createOrganizing}

// createOrganizing makes room for queues, attachments, groups of threads and the
// records of principals; there were none before.
func createOrganizing(tx *bolt.Tx) error {
	return createAll(tx, bucketGroups, bucketOwners, bucketRecords)
}

func createAll(tx *bolt.Tx, names ...[]byte) error {
	for _, name := range names {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return fmt.Errorf("create bucket %s: %w", name, err)
		}
	}
	return nil
}

func createBuckets(tx *bolt.Tx) error {
	return createAll(tx, bucketMeta, bucketRows, bucketThreads, bucketCreated, bucketUpdated, bucketText, bucketOpen, bucketForks, bucketTrash)
}

// migrate runs the steps that the file has not seen, each in a transaction of
// its own together with its number. A file that needs none is not written.
func migrate(db *bolt.DB, steps []migration) error {
	var have uint32
	err := db.View(func(tx *bolt.Tx) error {
		var err error
		have, err = schemaOf(tx)
		return err
	})
	if err != nil {
		return err
	}
	if have > uint32(len(steps)) {
		return errdefs.New(errdefs.VersionUnsupported,
			"%s was written by a newer heddle: it has schema %d, this one knows up to %d; use the newer heddle or another home", db.Path(), have, len(steps))
	}
	for i := have; i < uint32(len(steps)); i++ {
		err := db.Update(func(tx *bolt.Tx) error {
			if err := steps[i](tx); err != nil {
				return err
			}
			meta, err := tx.CreateBucketIfNotExists(bucketMeta)
			if err != nil {
				return err
			}
			return meta.Put(keySchema, binary.BigEndian.AppendUint32(nil, i+1))
		})
		if err != nil {
			return fmt.Errorf("migrate store to schema %d: %w", i+1, err)
		}
	}
	return nil
}

func schemaOf(tx *bolt.Tx) (uint32, error) {
	meta := tx.Bucket(bucketMeta)
	if meta == nil {
		if k, _ := tx.Cursor().First(); k != nil {
			return 0, errdefs.New(errdefs.StoreUnavailable, "%s is a bbolt file of another program", tx.DB().Path())
		}
		return 0, nil
	}
	v := meta.Get(keySchema)
	if len(v) != 4 {
		return 0, errdefs.New(errdefs.StoreUnavailable, "%s has no schema number", tx.DB().Path())
	}
	return binary.BigEndian.Uint32(v), nil
}

// compactFile rewrites a large file that is mostly free pages. bbolt never
// gives pages back by itself, and many free pages make commits slow.
func (s *Store) compactFile() error {
	info, err := os.Stat(s.cfg.Path)
	if err != nil || s.cfg.CompactBytes < 0 || info.Size() < s.cfg.CompactBytes {
		return err
	}
	pages := info.Size() / int64(s.db.Info().PageSize)
	if free := int64(s.db.Stats().FreePageN); free*2 < pages {
		return nil
	}
	temp := s.cfg.Path + ".compact"
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	dst, err := openFile(temp, s.cfg.LockTimeout)
	if err != nil {
		return err
	}
	if err := bolt.Compact(dst, s.db, 16<<20); err != nil {
		dst.Close()
		os.Remove(temp)
		return err
	}
	// The copy is complete and synced; it stays locked by us through the
	// rename, so that no other process can get between.
	if err := os.Rename(temp, s.cfg.Path); err != nil {
		dst.Close()
		return err
	}
	old := s.db
	s.db = dst
	return old.Close()
}
