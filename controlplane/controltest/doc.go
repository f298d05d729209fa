// Package controltest is a whole router without a process, for the tests of
// the control plane: engines that answer over loopback, a data plane, a control
// plane. It owns nothing that a program uses.
package controltest
