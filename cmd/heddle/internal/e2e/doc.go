// Package e2e tests the built programs as real processes: several clients on one
// home, and the death of each part in the middle of its work. The model is a
// local HTTP server that speaks the Responses API.
package e2e
