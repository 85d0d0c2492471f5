// Package robust proves invariants I1 to I5 and I7 by breaking things: it drives
// the built program with several clients and a scripted model while it kills and
// freezes its processes, cuts connections and fails the model, then compares
// what clients saw, the log, and the side effects of commands.
//
// The checks of a log and of what was seen of it are plain code of this package.
// The run itself is a test behind the build tag robust: `make test-robustness`
// runs a short one, HEDDLE_ROBUST_FAULTS=1000 a long one, HEDDLE_ROBUST_SEED=N
// another sequence of choices.
package robust
