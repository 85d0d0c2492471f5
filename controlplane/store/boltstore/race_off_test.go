//go:build !race

package boltstore_test

const raceScale = 1
