// Package index is the lock-free prefix index: which nodes hold which units of
// which chains. One writer, many readers.
//
// It owns the memory of what was learned and its bound. It may assume that a
// chain's hashes are well mixed and that a unit's hash stands for all units
// before it. It never does I/O, never reads a clock (times are handed in),
// never blocks a reader, and nothing of it is allocated in steady state.
//
// # Structure
//
// Forward, for readers (table.go, rows.go): a directory picks a segment by the
// first bits of a key (a hash, spread by a bijection), the next bits pick a
// bucket, which is a cache line of seven words. A word is one unit: the last 43
// bits of its key over a reference of 21 bits to its holders, which is either
// the only slot that holds it or a row. A row is a set of two or more slots;
// equal sets share it, so a fleet has few rows, and along a chain the same
// reference comes again and again and costs one comparison.
//
// Reverse, for the writer (entries.go, ids.go): an entry of 20 bytes for every
// pair of a unit and a node, in a list a node, most recently used first, and
// a table a node that finds it by key.
//
// Two units whose keys agree in the last 43 bits and that meet in one bucket
// are taken for one. The bits above choose bucket and segment, so in a large
// table that is a collision of the 64-bit hash itself or of neighbours: less
// than one look-up of an unknown unit in 10^11 finds it, and then a match is
// one unit too long.
//
// # Invariants
//
//  1. A unit has at most one word in the segments in force, and it never
//     moves inside a segment. Fingerprint and reference change in one store.
//  2. A row is written only while no word of a segment in force names it. Its
//     version is odd while it is written and grows each time. The writer
//     stores the new word before it releases the row the old one named.
//  3. A segment is replaced by copying it, storing the copy into the
//     directory in force, then marking the old one retired, then going on:
//     from its copying to its being marked nothing else changes, and nothing
//     ever writes to its words again. Directories are replaced whole.
//  4. While the key of a word in force lies beyond its home bucket, the
//     overflow counter of every bucket it passed is above 0: raised before
//     the word appears, lowered after it has gone.
//  5. In a node's list a unit stands before all units that follow it in a
//     chain, since every chain that is learned has them in this order and
//     moves them all. So eviction from the end takes the end of a chain first.
//
// # Why what a reader counts was true
//
// Claim: each unit that Match counts for a slot was held by it, as far as the
// writer had got, at some moment of the call. All loads and stores named here
// are sync/atomic, hence in one total order (the Go memory model).
//
// The directory is loaded in the call. A segment loaded from it was in force
// then or, if the directory has been replaced since, at that moment; so its
// words say what was true at a moment of the call, at the load or when the
// segment was frozen. If the word names a slot, that is all.
//
// If it names row r, the reader loads, in this order: r's version v (even),
// the word again (the same), the row, the version again (still v), the
// segment's mark (not retired). Between the two loads of the version the row
// was not written (2), so it is the set that v stands for. The second load of
// the word lies between them, and before the mark was found unset, so the
// segment was in force and the unit did name r at that moment. Without the
// version, r might have been written for another unit meanwhile; without the
// second load, r might have been passed on before v was read; without the
// mark, the word might be a frozen one and r no longer its own.
//
// Match keeps the set of the last row it read. For a unit whose word, loaded
// later, names r as well, it loads the version (still v) and the mark (not
// retired) after the word: the version was v before and after the load of the
// word, so the kept set is what the unit's word stood for then.
//
// Each of these checks has a test that fails without it (rows_test.go).
//
// A reader that a check turns away looks the unit up again, at most eight
// times; after that it takes the unit as unknown. So every call ends after a
// bounded number of steps, whatever the writer does.
//
// # Why what it misses, and what has changed since, is harmless
//
// A unit that was held all the time is found: its word does not move, its
// bucket is reached (4), and its copy is in force before the old segment goes
// stale. Only the bound of eight can hide it. A match that is too short, or one
// that was true a moment ago, costs some prefill at a node that can do it; the
// same happens when an engine evicts while the request is on its way. What
// must not happen, that a slot's next tenant inherits entries, is ruled out by
// Drop and Swept, not by readers.
//
// # Bounds
//
// Memory is bounded by counting: the worst an entry can cost in all tables,
// times Stats.Capacity, is below Options.MemoryBytes. At that bound the least
// recently used entries of the node with the most entries go first, those of
// dropped nodes before all others. Rows have an eighth of the memory; when it
// is used up, a set that would need another row is not learned, and where one
// would be needed to take a holder out, the unit is forgotten for all.
package index
