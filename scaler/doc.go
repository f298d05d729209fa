// Package scaler decides how many nodes there are, which, and where, and sees to
// it that they are.
//
// Plan is the control law: a pure function of what is known (Signals), what was
// (History) and what is asked for (Config). Book is what is owned: a pure state
// machine of nodes that were asked for, run, drain and end, written to a journal
// before anything is asked of a provider. Loop is the rim: it reads signals, asks
// Plan, steps the Book and calls the actuators; it holds no policy.
//
// It may assume that its caller can drain a node and knows when it is empty. It
// never ends a node that may have a request on it, and never makes the fleet
// smaller on signals that are missing or old.
package scaler
