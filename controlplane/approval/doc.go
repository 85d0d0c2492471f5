// Package approval decides which actions must be asked for and keeps the
// questions that wait for an answer.
//
// Policy and Broker are independent. The policy functions are pure: facts about
// one action in, a verdict out. A Broker holds the pending questions of this
// control plane; the questions themselves are durable events of their threads
// (ApprovalRequested, ApprovalResolved), so a Broker can be filled again from
// the store after a restart. All Broker methods are safe for concurrent use.
package approval
