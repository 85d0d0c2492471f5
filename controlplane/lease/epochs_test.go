package lease_test

import (
	"context"
	"errors"
	"testing"

	"github.com/heddle-dev/heddle/controlplane/lease"
)

type meta struct {
	values map[string][]byte
	writes int
	err    error
}

func (m *meta) Meta(_ context.Context, key string) ([]byte, error) { return m.values[key], nil }

func (m *meta) SetMeta(_ context.Context, key string, value []byte) error {
	if m.err != nil {
		return m.err
	}
	m.writes++
	m.values[key] = value
	return nil
}

func TestIncarnationsRiseAcrossRestarts(t *testing.T) {
	m := &meta{values: map[string][]byte{}}
	var last uint64
	for run := range 3 {
		e, err := lease.OpenEpochs(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			n, err := e.Next(t.Context(), "thread/a")
			if err != nil || n <= last {
				t.Fatalf("run %d: epoch %d after %d, err %v", run, n, last, err)
			}
			last = n
		}
		if m.writes != run+1 {
			t.Fatalf("run %d: %d writes, want one per start", run, m.writes)
		}
	}
}

func TestOpenEpochsFails(t *testing.T) {
	cases := map[string]*meta{
		"store refuses":  {values: map[string][]byte{}, err: errors.New("read-only")},
		"garbage":        {values: map[string][]byte{lease.MetaKey: []byte("abc")}},
		"last one is up": {values: map[string][]byte{lease.MetaKey: {0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}}},
	}
	for name, m := range cases {
		if _, err := lease.OpenEpochs(t.Context(), m); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
