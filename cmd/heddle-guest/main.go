//go:build cgo

// Command heddle-guest is the helper that heddle starts for its sandboxes; people do not run it. Its first
// argument is its role: keeper makes and ends sandboxes, init is a step of making one, guest runs inside.
package main

import (
	"fmt"
	"os"
	"runtime"

	"github.com/heddle-dev/heddle/sandbox/guest"
	_ "github.com/heddle-dev/heddle/sandbox/guest/early" // acts before the runtime starts
	"github.com/heddle-dev/heddle/sandbox/runc"
)

// The init role joins namespaces with the thread that the process started with, so it must run before main
// may have moved to another one.
func init() {
	if role() == "init" {
		runtime.LockOSThread()
		runc.Init()
	}
}

func main() {
	switch role() {
	case "keeper":
		runc.Keeper()
	case "guest":
		guest.Main()
	default:
		fmt.Fprintln(os.Stderr, "heddle-guest is started by heddle and does nothing on its own")
		os.Exit(2)
	}
}

func role() string {
	if len(os.Args) > 1 {
		return os.Args[1]
	}
	return ""
}
