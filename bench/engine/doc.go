// Package engine simulates LLM inference engines: it answers HTTP as vLLM
// 0.32 does, publishes the same KV-cache events over ZeroMQ, exposes the same
// metrics, and takes the time that continuous batching would take on a GPU.
//
// It owns, for each simulated engine, one HTTP port, one block cache, one
// scheduler and one event stream. The physics are pure: Cache and Scheduler
// know neither sockets nor clocks, and Scheduler.Begin says how long a step
// lasts without sleeping. The step loop alone turns that into real time.
//
// It may assume that it runs on a test bench: it uses net/http, locks and a
// goroutine for each request.
//
// It never computes with a model. A token is four bytes of the rendered text
// (Tokenize), or that of a real vocabulary (Model): then prompts are rendered
// by Python's jinja2 and tokenized by Hugging Face's library, which needs a
// build with the tag hf. Answers are words drawn from a hash of the prompt, the
// same on every engine. Faults happen only when asked for.
package engine
