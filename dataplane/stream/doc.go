// Package stream watches the bytes of an answer as they are relayed: where
// server-sent events end, whether one is an error, and what the engine says it
// took from its cache. It never holds, copies or changes a byte of them, and
// knows neither sockets nor clocks.
package stream
