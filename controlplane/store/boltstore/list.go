package boltstore

import (
	"bytes"
	"context"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/heddle-dev/heddle/controlplane/store"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// ListThreads implements store.Reader by walking the index of the sort key.
func (s *Store) ListThreads(ctx context.Context, principal string, req *heddlev1.ListThreadsRequest) (*heddlev1.ListThreadsResponse, error) {
	q, err := store.ParseThreadQuery(principal, req)
	if err != nil {
		return nil, err
	}
	var found []*heddlev1.Thread
	err = s.view(func(tx *bolt.Tx) error {
		l := lister{store: s, tx: tx, q: q, want: wantedBy(q)}
		found, err = l.collect(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	return q.Respond(found), nil
}

type lister struct {
	store *Store
	tx    *bolt.Tx
	q     *store.ThreadQuery
	want  wanted
}

// collect returns up to one row more than the page holds.
func (l lister) collect(ctx context.Context) ([]*heddlev1.Thread, error) {
	name, prefix := bucketCreated, listPrefix(l.q.Principal, l.q.Archived())
	switch {
	case l.q.Placed:
		name, prefix = bucketGroups, groupPrefix(l.q.Principal, groupSection, l.q.Section(), l.q.Archived())
	case l.q.Updated && l.q.Project() != "":
		name, prefix = bucketGroups, groupPrefix(l.q.Principal, groupProject, l.q.Project(), l.q.Archived())
	case l.q.Updated:
		name = bucketUpdated
	}
	c := l.tx.Bucket(name).Cursor()
	var found []*heddlev1.Thread
	steps := 0
	for k, v := l.seek(c, prefix); k != nil && bytes.HasPrefix(k, prefix) && len(found) <= l.q.Size; k, v = l.step(c) {
		if steps++; steps%1024 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if t := l.row(k, v, len(prefix)); t != nil {
			found = append(found, t)
		}
	}
	return found, nil
}

// seek moves to the first key to read.
func (l lister) seek(c *bolt.Cursor, prefix []byte) (k, v []byte) {
	if l.q.Start == nil {
		if l.q.Ascending {
			return c.Seek(prefix)
		}
		// The key after all those with the prefix: its last byte is 0 or 1.
		after := slices.Clone(prefix)
		after[len(after)-1]++
		k, _ = c.Seek(after)
		return prevOrLast(c, k)
	}
	at := slices.Concat(prefix, ord(l.q.Start.Major), []byte(l.q.Start.ID))
	if l.q.Placed {
		at = slices.Concat(prefix, []byte(l.q.Start.ID))
	}
	k, v = c.Seek(at)
	here := bytes.Equal(k, at)
	switch {
	case l.q.Ascending && here && !l.q.Start.Inclusive:
		return c.Next()
	case l.q.Ascending, here && l.q.Start.Inclusive:
		return k, v
	}
	return prevOrLast(c, k)
}

func (l lister) step(c *bolt.Cursor) (k, v []byte) {
	if l.q.Ascending {
		return c.Next()
	}
	return c.Prev()
}

// row returns the row of an index entry if it matches.
func (l lister) row(k, v []byte, prefix int) *heddlev1.Thread {
	id := l.idOf(k[prefix:])
	if f, ok := parseFilter(v); !ok || !l.want.match(f) || len(id) == 0 {
		return nil
	}
	if l.q.Term != "" && !bytes.Contains(l.tx.Bucket(bucketText).Get(id), []byte(l.q.Term)) {
		return nil
	}
	t, err := l.store.rowOf(l.tx, string(id))
	if err != nil {
		l.store.skip("row", string(id), id)
		return nil
	}
	// An entry that a damaged row left behind does not fit the row.
	if !l.q.Match(t) || !l.fits(k[prefix:], t) {
		return nil
	}
	return t
}

// idOf is the thread id in what a key holds after its prefix.
func (l lister) idOf(k []byte) []byte {
	if l.q.Placed {
		_, id, _ := bytes.Cut(k, []byte{0})
		return id
	}
	if len(k) < 8 {
		return nil
	}
	return k[8:]
}

// fits reports whether a key stands where the row says.
func (l lister) fits(k []byte, t *heddlev1.Thread) bool {
	if l.q.Placed {
		return string(k) == store.Place(t)
	}
	at, _ := readU64(k[:8])
	return at == uint64(max(0, l.q.Key(t)))
}
