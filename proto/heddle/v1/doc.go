// Package heddlev1 is the client API of the control plane: threads, turns,
// items, events and approvals, and the services that gateways call. The
// comments of the .proto files are its specification; the code is generated.
package heddlev1
