// Command warmpath is the router and its tools: serve, check, doctor, demo, scale (the
// scaler alone), and the verbs that talk to a running router's admin address.
//
// Noun commands read, verb commands change. Exit codes: 0 ok, 1 failed,
// 2 wrong usage. Every reading command takes --output json.
package main
