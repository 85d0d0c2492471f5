//go:build embed_guest

// Package guestbin carries the helper binary inside the program when it was built with the tag embed_guest.
package guestbin

import _ "embed"

//go:embed heddle-guest
var helper []byte

// Embedded returns the helper, or nil when this program carries none. The bytes must not be changed.
func Embedded() []byte { return helper }
