//go:build !cgo

// Command heddle-guest needs cgo: it enters namespaces before the Go runtime starts.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "heddle-guest was built without cgo and cannot make sandboxes")
	os.Exit(2)
}
