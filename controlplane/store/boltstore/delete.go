package boltstore

import (
	"bytes"
	"context"
	"errors"

	bolt "go.etcd.io/bbolt"

	"github.com/heddle-dev/heddle/controlplane/store"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// DeleteThread implements store.Store. The thread disappears in one
// transaction; its records are freed in further small ones, so that a large
// thread does not hold up commits.
func (s *Store) DeleteThread(ctx context.Context, threadID string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := s.update(func(tx *bolt.Tx) error {
		if threadBucket(tx, threadID) == nil {
			return store.NotFound(threadID)
		}
		if hasForks(tx, threadID) {
			return store.HasForks(threadID)
		}
		if err := unlist(tx, threadID); err != nil {
			return err
		}
		trash := tx.Bucket(bucketTrash)
		if err := tx.Bucket(bucketThreads).MoveBucket([]byte(threadID), trash); err != nil {
			return err
		}
		_, err := purgeSome(trash)
		return err
	})
	if err != nil {
		return err
	}
	return s.purge()
}

// unlist removes a thread's row and its entries in the indexes.
func unlist(tx *bolt.Tx, threadID string) error {
	id := []byte(threadID)
	var errs []error
	if row, err := decode[heddlev1.Thread](tx.Bucket(bucketRows).Get(id)); err == nil {
		errs = append(errs,
			tx.Bucket(bucketCreated).Delete(listKey(row, row.GetCreatedAtMs())),
			tx.Bucket(bucketUpdated).Delete(listKey(row, row.GetUpdatedAtMs())),
			tx.Bucket(bucketForks).Delete(forkKey(row.GetForkedFromId(), threadID)),
			ungroup(tx, row), disown(tx, row))
	}
	for _, name := range [][]byte{bucketRows, bucketText, bucketOpen} {
		errs = append(errs, tx.Bucket(name).Delete(id))
	}
	return errors.Join(errs...)
}

// purgeStep bounds the records that one transaction frees.
const purgeStep = 2000

// purge frees the records of removed threads until none is left.
func (s *Store) purge() error {
	for {
		select {
		case <-s.stop:
			return nil
		default:
		}
		var left bool
		err := s.view(func(tx *bolt.Tx) error {
			k, _ := tx.Bucket(bucketTrash).Cursor().First()
			left = k != nil
			return nil
		})
		if err != nil || !left {
			return err
		}
		err = s.update(func(tx *bolt.Tx) error {
			_, err := purgeSome(tx.Bucket(bucketTrash))
			return err
		})
		if err != nil {
			return err
		}
	}
}

// purgeSome frees up to purgeStep records of a bucket and its buckets.
func purgeSome(b *bolt.Bucket) (freed int, err error) {
	var keys, buckets [][]byte
	c := b.Cursor()
	for k, v := c.First(); k != nil && len(keys)+len(buckets) < purgeStep; k, v = c.Next() {
		if v == nil {
			buckets = append(buckets, bytes.Clone(k))
		} else {
			keys = append(keys, bytes.Clone(k))
		}
	}
	for _, k := range keys {
		if err := b.Delete(k); err != nil {
			return freed, err
		}
	}
	freed = len(keys)
	for _, name := range buckets {
		if freed >= purgeStep {
			return freed, nil
		}
		sub := b.Bucket(name)
		n, err := purgeSome(sub)
		freed += n
		if err != nil {
			return freed, err
		}
		if k, _ := sub.Cursor().First(); k == nil {
			if err := b.DeleteBucket(name); err != nil {
				return freed, err
			}
			freed++
		}
	}
	return freed, nil
}
