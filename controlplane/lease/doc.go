// Package lease decides who may act for a scope.
//
// A lease is the right of one holder to act for one scope until it has gone
// without renewal for its fence time. The Lessor is pure: it has no clock, no
// goroutine and no lock, it takes the time as an argument and only decides;
// its owner (controlplane/dispatch) sends, waits and serialises the calls.
//
// Guarantees:
//   - Epochs of a scope only go up. A lease under a lower epoch is superseded.
//   - Another holder gets a scope only after the old one released it, or after
//     its fence time plus the skew has passed since the last grant or renewal.
//   - A lease that is announced again after a restart is adopted under its old
//     epoch as long as nobody else was granted the scope.
package lease
