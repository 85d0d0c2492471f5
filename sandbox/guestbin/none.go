//go:build !embed_guest

// Package guestbin carries the helper binary inside the program when it was built with the tag embed_guest.
package guestbin

// Embedded returns the helper, or nil when this program carries none.
func Embedded() []byte { return nil }
