// Package command makes nodes by programs of the user's own: one that makes a node, one that
// ends one, one that lists them.
//
// It owns how they are run and what becomes of what they say. Each call starts one program, by
// no shell, with the environment of Options and in this process's folder. It reads one line of
// JSON from standard input, a request of package message, and writes one answer of that
// package to standard output:
//
//	create: {"action":"create","fleet":"f","key":"k","model":"m","settings":{…}}
//	delete: {"action":"delete","fleet":"f","key":"k","id":"i","settings":{…}}
//	list:   {"action":"list","fleet":"f","settings":{…}}
//
//	{"nodes":[{"key":"k","id":"i","phase":"running","url":"http://10.0.0.7:8000"}]}
//	{"refused":{"reason":"quota","message":"4 of 4 cards are in use"}}
//
// Package message says which names there are, which are needed and what they mean.
//
// Exit code 0 with an answer is the answer. Exit code 0 without one, any other exit code, an
// end by a signal, more than 1 MiB of output, and a program that is not done in time mean that
// nobody knows what was done; the error holds the end of standard error. list tells then, so
// it must be right: all nodes of the fleet, those of earlier runs and of other routers too, or
// a failure. A program that cannot be started at all has done nothing, and that is a refusal
// for settings.
//
// create may be called again with the key of a node that is there, by another router too, and
// then answers with that node; so the key belongs on the node, as a tag or a name. delete may
// be called for a node that is gone, and then answers {"nodes":[]}. Programs may run side by
// side, never two about one key from one router.
//
// A program that is not done when its time is over, or when its caller has gone, is killed
// with its whole process group. What it started and left running when it ended by itself is
// left alone; what shall stay should have a session of its own (setsid) and its output
// elsewhere. Output counts up to the program's own end.
//
// It may assume that a program does what it says. It never runs a shell, never reads its own
// environment, and keeps nothing.
package command
