//go:build !cgo

// Package runc makes sandboxes with libcontainer. It needs cgo and is empty without it.
package runc
