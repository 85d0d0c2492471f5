// Package local starts, finds and replaces the control plane of a home.
//
// A home has at most one control plane, which holds home/run/lock for as long
// as it lives. Clients reach it over a unix socket of mode 0600 and start it
// when none answers; a start lock makes sure that many clients that come at the
// same time start one. It ends by itself when nothing needs it.
//
// The control plane keeps one executor process. A file lock that only the
// executor holds (home/run/executor.lock, handed over as an open descriptor)
// tells every later control plane whether one is alive: an executor outlives a
// crash of the control plane until its fence deadline, so that the next one can
// take its work back.
package local
