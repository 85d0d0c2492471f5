// Package server is the gRPC skin of the control plane: one file per service,
// which validates, calls and converts, and decides nothing.
//
// Handlers return typed errors of proto/errdefs; the interceptors there give
// them their wire form.
package server
