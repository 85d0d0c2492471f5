package boltstore

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"

	"google.golang.org/protobuf/proto"

	"github.com/heddle-dev/heddle/controlplane/store"
	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// row writes the thread's row and keeps the list indexes in step with it.
func (w *writer) row() error {
	row := w.a.Changes.Row
	if row == nil {
		return nil
	}
	rows, id := w.tx.Bucket(bucketRows), []byte(w.a.ThreadID)
	old, err := decode[heddlev1.Thread](rows.Get(id))
	if err != nil {
		// There is none, or it is damaged; readers pass over index entries
		// that do not fit their row.
		old = nil
	}
	if err := w.index(bucketCreated, old, row, (*heddlev1.Thread).GetCreatedAtMs); err != nil {
		return err
	}
	if err := w.index(bucketUpdated, old, row, (*heddlev1.Thread).GetUpdatedAtMs); err != nil {
		return err
	}
	if err := w.groups(old, row); err != nil {
		return err
	}
	if text := store.SearchText(row); old == nil || text != store.SearchText(old) {
		if err := w.put(w.tx.Bucket(bucketText), id, []byte(text)); err != nil {
			return err
		}
	}
	stored := proto.CloneOf(row)
	stored.LastSeq, stored.Epoch, stored.HasForks = 0, 0, false
	v, err := frameMessage(nil, stored)
	if err != nil {
		return err
	}
	return w.put(rows, id, v)
}

func (w *writer) index(bucket []byte, old, row *heddlev1.Thread, at func(*heddlev1.Thread) int64) error {
	b := w.tx.Bucket(bucket)
	k, v := listKey(row, at(row)), filterOf(row)
	if old != nil {
		ok := listKey(old, at(old))
		if bytes.Equal(ok, k) {
			if bytes.Equal(filterOf(old), v) {
				return nil
			}
		} else if err := b.Delete(ok); err != nil {
			return err
		}
	}
	return w.put(b, k, v)
}

// listPrefix is the part of a list key that a query fixes.
func listPrefix(principal string, archived bool) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(min(len(principal), 1<<16-1)))
	b = append(b, principal...)
	if archived {
		return append(b, 1)
	}
	return append(b, 0)
}

func listKey(t *heddlev1.Thread, at int64) []byte {
	k := append(listPrefix(t.GetPrincipal(), t.GetArchived()), ord(at)...)
	return append(k, t.GetId()...)
}

// filter is what a list index says about a row without reading it. Hashes can
// collide: a row that passes is checked again.
type filter struct {
	withTurns                     bool
	cwd, provider, source, parent uint32
	section, project              uint32
}

// Filters of threads in no section and no project are short.
const (
	filterSize     = 17
	longFilterSize = 25
)

func hash(s string) uint32 { return crc32.Checksum([]byte(s), castagnoli) }

func filterOf(t *heddlev1.Thread) []byte {
	b := make([]byte, 1, longFilterSize)
	if t.GetTurnCount() > 0 {
		b[0] = 1
	}
	for _, s := range []string{t.GetSettings().GetCwd(), t.GetSettings().GetModelProvider(), t.GetSource(), t.GetParentThreadId()} {
		b = binary.BigEndian.AppendUint32(b, hash(s))
	}
	section, project := t.GetSection().GetSectionId(), t.GetProjectId()
	if section == "" && project == "" {
		return b
	}
	b = binary.BigEndian.AppendUint32(b, hash(section))
	return binary.BigEndian.AppendUint32(b, hash(project))
}

func parseFilter(v []byte) (filter, bool) {
	if len(v) != filterSize && len(v) != longFilterSize {
		return filter{}, false
	}
	n := func(i int) uint32 { return binary.BigEndian.Uint32(v[1+4*i:]) }
	f := filter{withTurns: v[0] == 1, cwd: n(0), provider: n(1), source: n(2), parent: n(3), section: hash(""), project: hash("")}
	if len(v) == longFilterSize {
		f.section, f.project = n(4), n(5)
	}
	return f, true
}

// wanted holds the hashes of a query's filters.
type wanted struct {
	withTurns               bool
	cwds, providers, source map[uint32]bool
	parent                  uint32
	anyParent               bool
	section, project        uint32
	anySection, anyProject  bool
}

func wantedBy(q *store.ThreadQuery) wanted {
	return wanted{
		withTurns: q.WithTurns(), cwds: hashes(q.Cwds()), providers: hashes(q.Providers()), source: hashes(q.Sources()),
		parent: hash(q.Parent()), anyParent: q.Parent() == "",
		section: hash(q.Section()), anySection: !q.BySection(), project: hash(q.Project()), anyProject: !q.ByProject(),
	}
}

func hashes(values []string) map[uint32]bool {
	if len(values) == 0 {
		return nil
	}
	m := make(map[uint32]bool, len(values))
	for _, v := range values {
		m[hash(v)] = true
	}
	return m
}

func (w wanted) match(f filter) bool {
	return (f.withTurns || !w.withTurns) &&
		(w.cwds == nil || w.cwds[f.cwd]) &&
		(w.providers == nil || w.providers[f.provider]) &&
		(w.source == nil || w.source[f.source]) &&
		(w.anyParent || w.parent == f.parent) &&
		(w.anySection || w.section == f.section) &&
		(w.anyProject || w.project == f.project)
}
