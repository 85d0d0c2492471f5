package boltstore

// WithoutSync returns the config of a store that does not sync, for tests that
// are not about durability.
func WithoutSync(cfg Config) Config {
	cfg.noSync = true
	return cfg
}

// Path returns the file of a store.
func (s *Store) Path() string { return s.cfg.Path }
