// Package dispatch decides which executor runs which action and follows every
// action to its one end.
//
// The Dispatcher owns the sessions of the executors, the leases of the scopes
// (controlplane/lease decides, this package sends and waits), the queue of
// actions that have no executor yet, the delivery of output and results, and the
// recovery after the loss of an executor or a restart of the control plane.
//
// Guarantees:
//   - Every message of an executor is checked for session, lease and epoch in one
//     place (admit). What makes it stale is a superseding epoch, never the clock.
//   - Delivery is at least once, an action id is done at most once by its
//     executor: an action is sent again only to the executor that may have it.
//   - Every handle ends: with the executor's result, or with a typed error
//     (ExecutorLost, NoExecutor, UnknownOutcome).
//   - Output reaches its consumer in order and without the duplicates of a
//     reconnect, and before the result. It is acknowledged after the consumer
//     took it, so a slow consumer holds the sender's credits and never memory
//     beyond the window.
//   - A result stays with the executor until Handle.Ack.
//   - All queues are bounded; an executor that does not read loses its session.
//
// A Dispatcher is safe for concurrent use. Run drives everything that depends on
// time and must be running. Consumers are called without any lock held, one call
// at a time per action.
package dispatch
