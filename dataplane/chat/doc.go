// Package chat renders chat templates: it turns the messages of a request into
// the prompt text that an engine would make of them, byte for byte.
//
// It owns a small Jinja, exact to Python's jinja2 3.1 in the sandbox that
// Hugging Face transformers sets up for chat templates (ImmutableSandboxedEnvironment
// with trim_blocks, lstrip_blocks, loop controls, the generation tag, its own
// tojson, raise_exception and strftime_now; transformers,
// utils/chat_template_utils.py), and what engines do to messages before the
// template sees them.
//
// Three rules hold everywhere:
//
//   - It never guesses. Compile refuses a template that it does not understand
//     as a whole; Render fails where Python's output cannot be known. The caller
//     falls back to identifying the prompt by its text.
//   - It never copies a message. Strings of the request stay where they are, in
//     the body and still escaped; the output is a Rope of references.
//   - It is bounded. Steps, depth, output and memory have limits, all recursion
//     is counted, so that no template and no request can end the process.
//
// A Template is immutable and shared. A Machine belongs to one goroutine; it
// owns the memory of the values and of the text made while rendering, all of
// which is given back by Machine.Reset. Once warm it does not allocate.
//
// The package may assume that a request's body was checked by package scan:
// its strings are valid UTF-8 without control characters. It does no I/O and
// reads no clock: the caller says what time it is.
package chat
