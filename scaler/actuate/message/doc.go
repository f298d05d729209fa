// Package message is what the scaler says to providers that others write, be it a script or a
// server, and what they answer: JSON, the same for both.
//
// It owns the shapes and their strictness. A request is
//
//	{"action": "create", "fleet": F, "key": K, "model": M, "callback": URL, "settings": {…}}
//	{"action": "delete", "fleet": F, "key": K, "id": I, "settings": {…}}
//	{"action": "list", "fleet": F, "settings": {…}}
//
// where what is empty is left out, except action, fleet, and the key of create. An answer is
//
//	{"nodes": [{"key": K, "id": I, "phase": P, "url": U, "detail": D, "since": T, "sequence": N}, …]}
//	{"refused": {"reason": R, "message": M}}
//
// and one of the two. Of a node, phase (pending, running, ending, ended) and, unless it has
// ended, id are needed; what it has no value for is left out. T is as in RFC 3339, N a whole
// number that grows with each change of a node's. R is settings, credential, quota or
// capacity, and says that nothing was made, changed or ended.
//
// To create the answer has one node, of that key: the one that was made, or that has the key
// since before, for a key names one node for ever. To delete it has none, if the node is gone
// or never was, or the one, as it is now. To list it has all nodes of that fleet; those that
// have ended may be left out. A node without key is one that has the fleet's mark and none of
// its keys.
//
// What is not as it must be is an error that says where, what is there and what should be: an
// unknown name, a name given twice, a value of another type, null, a second value after the
// first. It never guesses, since a list that was read wrongly ends nodes. It does no I/O.
package message
