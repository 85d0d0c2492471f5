// Package session keeps the registrations of client gateways.
//
// A session is one registration: an id chosen by the gateway, held by an Attach
// stream. It brings the client's folder, environment and config overrides, and
// its loss decides what becomes of the turns it started. A Registry is safe for
// concurrent use; its callbacks run on goroutines of their own, never under its
// lock.
package session
