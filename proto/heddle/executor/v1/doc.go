// Package executorv1 is what control plane and executors say to each other:
// sessions, leases, actions, output and results. The comments of the .proto file
// are its specification; the code is generated.
package executorv1
