// Package wrk holds the Lua scripts that wrk runs, embedded so that warmbench
// finds them wherever it is started. Each script can be used with plain wrk
// too; its head says how. The package never runs anything.
package wrk
