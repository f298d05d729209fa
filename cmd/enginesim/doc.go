// Command enginesim runs many simulated LLM inference engines in one process:
// each with its own port, block cache, step loop and event stream.
package main
