// Package scaleplot draws what became of a simulated fleet under several scaling
// laws: the load, the nodes of each law, and the share of first tokens that came in
// time, one above the other over the same hours.
//
// It may assume that all reports are of one workload and have their series. It never
// runs anything.
package scaleplot
