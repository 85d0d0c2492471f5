//go:build race

package boltstore_test

// The race detector makes building large stores slow, and times meaningless.
const raceScale = 10
