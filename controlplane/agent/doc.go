// Package agent runs turns: it asks the model, does what the model asks for
// through executors, and records every step in the thread's log.
//
// One goroutine owns each active turn. It is the only one that reads the
// model and decides what comes next; tool calls of one model step run on
// goroutines that it waits for. Steering and interrupting are messages to it:
// they are accepted under the turn's lock and end the model request or the
// running calls through contexts.
//
// Guarantees. An action's intent is durable before its executor is told of it.
// The events of a model step (what the model said, its calls, their intents and
// the results of the step before) are one durable commit. Every turn ends with
// exactly one TurnCompleted, every started item with one ItemCompleted before
// it, background terminals excepted. Methods of Agent are safe for concurrent
// use.
package agent
