// Package webhook makes nodes by asking a server of the user's own over HTTP, which may call
// back when a node is ready or has failed.
//
// It owns how the server is asked, what its status codes mean, and what is believed when its
// answers and its callbacks differ. Package message says what is asked and answered; each
// request is a POST to one URL, with
//
//	X-Warmpath-Timestamp: 1790000000            seconds since 1970
//	X-Warmpath-Signature: sha256=5d41…          HMAC-SHA256 of timestamp "." body, in hex
//	Idempotency-Key: K                          of create: the key. It may be sent twice
//
// 2xx holds an answer. 401 and 403 are a refusal of the credential, 402 and 429 of quota, any
// other 4xx or 3xx of settings, in the server's own words, unless the body is a refusal as
// message has it, which then counts. 408, 425, 5xx, no answer in time, one that ends early or
// cannot be read: nobody knows what was done.
//
// # Callbacks
//
// The server may POST what it knows of one node to the callback URL that create named, signed
// in the same way with the same secret:
//
//	{"key": K, "id": I, "phase": P, "url": U, "detail": D, "since": T, "sequence": N, "fleet": F}
//
// Needed are key, phase, and id unless it ended. 204 says that it was taken, be it news or
// not, 401 that the signature is wrong or the timestamp more than 5 minutes off, 400 that it
// cannot be read. Callbacks may be repeated, late and out of order. Of two that have a
// sequence, the higher one is the later. Else a node only goes forward (pending, running,
// ending, ended), and within a phase the newer timestamp counts. So a callback that comes
// again changes nothing.
//
// # The list
//
// What the server lists is the list, with what was heard while it was asked for, by callback
// or in answer to create: so it must list what it has made, also if its own provider's list
// lags. To what is listed the callbacks are added: that it runs, and its URL, where the list
// does not know that yet; that it ends or ended, for a minute, after which a list that still
// has the node is right, for it would cost and be forgotten. A sequence on both sides decides
// without that minute.
//
// A server without a list answers list with 404 or 501. The list is then what this process
// heard since it was started, and Partial says so: a node that was made before, or whose
// create was never answered, is in it only once create was called with its key again, or a
// callback came. A node is then gone when delete was answered without it, or a callback said
// that it has ended. Of what was heard, at most 10,000 nodes are kept that are there and were
// asked for, and the last 256 each of those that ended and of those that nobody asked for.
//
// It may assume that whoever knows the secret speaks for the server. Where that is in a file,
// what is there now counts. It follows no redirects, reads no environment, and keeps nothing
// on disk.
package webhook
