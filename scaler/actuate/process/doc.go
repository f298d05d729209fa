// Package process makes nodes of processes on this host: an engine simulator, vLLM, or
// whatever command serves on a port.
//
// It owns how a node's command is started, found again and ended. A node is a session of its
// own whose environment carries four marks:
//
//	WARMPATH_FLEET     the fleet
//	WARMPATH_NODE      the node's key
//	WARMPATH_PORT      the port it shall listen on
//	WARMPATH_INSTANCE  this run of it, drawn by chance: Instance.ID
//
// The kernel keeps that environment as it was given, and children inherit it. So nodes outlive
// the router, however that ends, and the next router reads them back from /proc; nothing is
// written down. To a node belong all processes with its marks, and those in a session that one
// of them leads. What a process looks like now is compared with what it was when it was found,
// by its start time and through a descriptor of it, before each signal, so that a number that
// was given to another process ends nobody.
//
// It may assume that the command stays this user's: processes of other users are never listed
// and never signalled, as anybody can put marks into an environment. (Those it started itself
// it knows as long as it runs, and says so in the log when the next router would not find
// them.) It may assume that no router has fewer capabilities or another group than the one
// before it: the kernel would show it no environment of what that one started. It may assume
// that the command keeps the environment that it was given: Python's setproctitle, which
// engines use, would write over it, and is told by SPT_NOENV, which is set for all nodes, not
// to. It may assume that nothing else ends what the router started: under systemd that takes
// KillMode=process, else a stop or crash of the router takes its nodes along.
//
// One router starts at a time, for all of one user's fleets in a network namespace: they may
// share a range of ports. That is held by the name of an abstract unix socket, which ends with
// its holder.
//
// What a node writes goes to a file that the package makes anew for each and never reads in
// full; as it must be written without the router, its size is for the host to bound (it is
// opened for appending, so that logrotate's copytruncate works). The files of nodes that are
// gone are removed, oldest first, beyond a number.
//
// It never reads its own environment, never writes a state file, never touches a process that
// has not all four marks, and never ends the process that it runs in.
package process
