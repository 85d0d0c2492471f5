// Package actionhash computes the SHA-256 that binds an approval to exactly one
// action. The control plane hashes what was shown; the executor hashes what it
// is about to do and refuses on a difference.
//
// Canonical encoding, version 1: the ASCII tag "heddle-action-v1" and the kind,
// then fields in a fixed order. A string or byte field is its length as a
// big-endian uint64 followed by its bytes; a list is its length as a big-endian
// uint64 followed by its elements; an integer is a big-endian uint64; a bool is
// one byte. Maps are lists of key and value in the byte order of the keys.
// The lists, ports and miss rule of a policy's network follow its other fields
// only when the network is proxied; before them stand limits and then denied
// paths, when bits 40 and 41 of the level field say that there are any.
// Nothing is normalised: two spellings of one path are two actions.
package actionhash

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"maps"
	"slices"

	heddlev1 "github.com/heddle-dev/heddle/proto/heddle/v1"
)

// Tag is the first field of every encoding; it changes with the encoding.
const Tag = "heddle-action-v1"

// Process returns the hash of starting a process: argument vector, folder,
// whole environment (order kept), terminal, policy and workspace.
func Process(argv []string, cwd string, env []string, tty bool, policy *heddlev1.SandboxPolicy, workspace string) []byte {
	e := newEncoder("process")
	e.strings(argv)
	e.string(cwd)
	e.strings(env)
	e.bool(tty)
	e.policy(policy)
	e.string(workspace)
	return e.h.Sum(nil)
}

// Patch returns the hash of a patch plan: the patch text, the folder its paths
// are relative to, the hash of every file it was planned against, the policy
// and the workspace.
func Patch(patch, cwd string, baseHashes map[string][]byte, policy *heddlev1.SandboxPolicy, workspace string) []byte {
	e := newEncoder("patch")
	e.string(patch)
	e.string(cwd)
	e.uint(uint64(len(baseHashes)))
	for _, path := range slices.Sorted(maps.Keys(baseHashes)) {
		e.string(path)
		e.bytes(baseHashes[path])
	}
	e.policy(policy)
	e.string(workspace)
	return e.h.Sum(nil)
}

// Stdin returns the hash of writing to a running process.
func Stdin(actionID string, data []byte) []byte {
	e := newEncoder("stdin")
	e.string(actionID)
	e.bytes(data)
	return e.h.Sum(nil)
}

type encoder struct{ h hash.Hash }

func newEncoder(kind string) encoder {
	e := encoder{sha256.New()}
	e.string(Tag)
	e.string(kind)
	return e
}

func (e encoder) uint(v uint64) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], v)
	e.h.Write(b[:])
}

func (e encoder) bytes(b []byte) {
	e.uint(uint64(len(b)))
	e.h.Write(b)
}

func (e encoder) string(s string) { e.bytes([]byte(s)) }

func (e encoder) strings(list []string) {
	e.uint(uint64(len(list)))
	for _, s := range list {
		e.string(s)
	}
}

func (e encoder) bool(v bool) {
	b := []byte{0}
	if v {
		b[0] = 1
	}
	e.h.Write(b)
}

func (e encoder) policy(p *heddlev1.SandboxPolicy) {
	// The git mode and whether there are limits and denied paths are in the upper half: the lower
	// one cannot reach it, and the defaults leave the encoding as it was before
	// there were any.
	head := uint64(p.GetLevel()) | uint64(p.GetGit())<<32
	if p.GetLimits() != nil {
		head |= 1 << 40
	}
	if len(p.GetDenyRead()) > 0 {
		head |= 1 << 41
	}
	if p.GetLandlockFallback() {
		head |= 1 << 42
	}
	e.uint(head)
	e.strings(p.GetWritableRoots())
	e.uint(uint64(p.GetNetwork()))
	e.bool(p.GetHostTmp())
	e.bool(p.GetExcludeTmpdirEnvVar())
	e.bool(p.GetExcludeSlashTmp())
	if l := p.GetLimits(); l != nil {
		for _, v := range []int64{l.GetMemoryBytes(), l.GetPids(), l.GetCpuMillis(), l.GetFileBytes(), l.GetTmpBytes(), l.GetMinFreeBytes()} {
			e.uint(uint64(v))
		}
	}
	if len(p.GetDenyRead()) > 0 {
		e.strings(p.GetDenyRead())
	}
	if p.GetNetwork() != heddlev1.NetworkMode_NETWORK_MODE_PROXIED {
		return
	}
	e.strings(p.GetNetworkAllow())
	e.strings(p.GetNetworkDeny())
	e.uint(uint64(len(p.GetNetworkPorts())))
	for _, port := range p.GetNetworkPorts() {
		e.uint(uint64(port))
	}
	e.uint(uint64(p.GetNetworkMiss()))
}
