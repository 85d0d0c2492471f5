package boltstore

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Each step runs once, in order, in one transaction with its number; a step
// that fails leaves the file at the schema before it.
func TestMigrate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	db, err := openFile(path, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var ran []int
	step := func(n int, err error) migration {
		return func(tx *bolt.Tx) error {
			ran = append(ran, n)
			b, e := tx.CreateBucketIfNotExists([]byte("x"))
			return errors.Join(e, b.Put([]byte{byte(n)}, none), err)
		}
	}
	schema := func() (n uint32, keys int) {
		if err := db.View(func(tx *bolt.Tx) error {
			n, err = schemaOf(tx)
			keys = tx.Bucket([]byte("x")).Stats().KeyN
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return n, keys
	}
	if err := migrate(db, []migration{step(1, nil)}); err != nil {
		t.Fatal(err)
	}
	bad := errors.New("no")
	if err := migrate(db, []migration{step(1, nil), step(2, nil), step(3, bad)}); !errors.Is(err, bad) {
		t.Errorf("failing step: %v", err)
	}
	if n, keys := schema(); n != 2 || keys != 2 {
		t.Errorf("schema %d with %d keys after a failed step, want 2 and 2", n, keys)
	}
	if err := migrate(db, []migration{step(1, nil), step(2, nil), step(3, nil)}); err != nil {
		t.Fatal(err)
	}
	if n, keys := schema(); n != 3 || keys != 3 || len(ran) != 4 {
		t.Errorf("schema %d, %d keys, runs %v", n, keys, ran)
	}
	if err := migrate(db, []migration{step(1, nil)}); err == nil {
		t.Error("a newer schema was accepted")
	}
}

// The first released schema has exactly these buckets; a change needs a
// migration.
func TestSchemaOne(t *testing.T) {
	db, err := openFile(filepath.Join(t.TempDir(), "m.db"), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := migrate(db, migrations[:1]); err != nil {
		t.Fatal(err)
	}
	var names string
	if err := db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, _ *bolt.Bucket) error { names += string(name) + " "; return nil })
	}); err != nil {
		t.Fatal(err)
	}
	if want := "created forks meta open rows text threads trash updated "; names != want {
		t.Errorf("buckets %q, want %q", names, want)
	}
}
