// Package index is the lock-free prefix index: which nodes hold which units of
// which chains, and in which tier. One writer, many readers.
//
// It owns the memory of what was reported, expected and learned, and its bound.
// It may assume that a chain's hashes are well mixed and that a unit's hash
// stands for all units before it. It never does I/O, never reads a clock (times
// are handed in), never blocks a reader, and nothing of it is allocated in
// steady state.
//
// # Structure
//
// Forward, for readers (table.go, rows.go, reading.go, walk.go): a directory
// picks a segment by the first bits of a key (a hash, spread by a bijection),
// the next bits pick a bucket, which is a cache line of seven words. A word is
// one unit: the last 43 bits of its key over a reference of 21 bits to its
// holders. A holder is a position, a slot and a tier. The reference is either
// the only position or a row: a set of two or more positions. Equal sets share
// a row, so a fleet has few, and along a chain the same reference comes again
// and again and costs one comparison. A row whose set knows Device only has one
// run of words, another has one for each tier.
//
// Reverse, for the writer (entries.go, ids.go, node.go): why a position's bit
// of a unit is set. An entry of 20 bytes each, of one of three kinds, and tables
// that find them. Reported (reported.go): from events of the engine, found by
// slot, tier and the engine's own name of the block; they stay until the engine
// removes them. Speculative (speculative.go): a prompt was sent there; they stay
// until the engine reports them or their time is over. Learned (learned.go,
// orders.go): the same for engines that report nothing; they go in the order in
// which such an engine evicts.
//
// Export and Import take what is known of a slot to another process (export.go,
// import.go, piece.go): names and hashes mean the same there, ids and times do
// not.
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
//  5. In a node's lists a unit goes later than all units that follow it in a
//     chain, whatever the order (eviction.go says how exact each is): a lower
//     level before a higher one, in a level the oldest end first. So eviction
//     takes the end of a chain first.
//  6. A unit of a slot in Device has entries of one kind only. Reported beats
//     both others, learned beats speculative: the stronger takes the unit over
//     without touching its bit, the weaker is not made. Learned and speculative
//     units are in Device; tiers do not hold each other off.
//  7. A position's bit of a unit is set only while some entry stands for it, and
//     cleared when the last goes. Blocks of a tier that share a unit are counted
//     beyond the first; copies of a block are counted in its entry. (A bit may
//     be missing where rows ran out; then the counts are too low, never the
//     other way, and the bit is cleared early.)
//  8. A slot is blind from before the first of its entries goes because it was
//     dropped or cleared until after the last is gone. A blind slot's bits are
//     only cleared, never set.
//
// # Why what a reader counts was true
//
// Claim: each unit that Match or a Walk counts for a slot was held by it, as far
// as the writer had got, at some moment between Start and Finish. All loads and
// stores named here are sync/atomic, hence in one total order (the Go memory
// model).
//
// Take a directory that is loaded after some moment m of the call. A segment
// loaded from it was in force then or, if the directory has been replaced
// since, at that moment; so its words say what was true at a moment after m, at
// the load or when the segment was frozen. If the word names a position, that
// is all.
//
// If it names row r, and the unit is looked up by itself, the reader loads, in
// this order: r's version v (even), the word again (the same), the row, the
// version again (still v), the segment's mark (not retired). Between the two
// loads of the version the row was not written (2), so it is the set that v
// stands for. The second load of the word lies between them, and before the
// mark was found unset, so the segment was in force and the unit did name r at
// that moment. Without the version, r might have been written for another unit
// meanwhile; without the second load, r might have been passed on before v was
// read; without the mark, the word might be a frozen one and r no longer its
// own. All tiers are in the one row, so what a unit counts for was true at one
// moment too.
//
// A Walk keeps the set of the last row it read and asks of the next units only
// whether their words name r as well, sixteen at a time (Index.run). For that it
// loads the directory anew, after r's version v was read, then the words, then
// the version (still v). By the above each word was true at a moment after that
// load of the directory; at that moment the version was v, since it was before
// and after; so the kept set is what the unit's word stood for then. It is the
// order that does it: a word frozen before v was read could name an r that has
// become another unit's.
//
// Start takes blind slots out. A slot that is cleared later in the call was not
// blind at Start, so a bit that is found set was set then, or was set later and
// not yet cleared: it was true at a moment of the call. A slot that is not blind
// any more has lost all bits from before (8), and what is found was set anew.
//
// Each of these checks has a test that fails without it (rows_test.go,
// reported_test.go), and TestReadersSeeWhatWas checks the claim itself.
//
// A reader that a check turns away looks the unit up again, at most eight
// times; after that it takes the unit as unknown. So every call ends after a
// bounded number of steps, whatever the writer does.
//
// Every unit is looked up, also where skipping ahead would be faster: engines
// mostly evict the end of a chain first, but a set of holders that stands for
// unit i and unit i+k need not stand for those between (an engine's tiers, a
// bound that was reached, a lost event), and then more would be counted than is
// held.
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
// times Stats.Capacity, is below Options.MemoryBytes. At that bound entries go
// in this order: those of slots that are being swept; learned ones, of the node
// with the most, in its order of eviction; speculative ones, those due first;
// reported blocks of the node with the most, any of them. None makes room for
// one of a later kind. A node that lost reported blocks has a shorter match and
// says so (Writer.Lost). At most a sixteenth of the entries are speculative.
// Rows have an eighth of the memory; when it is used up, a set that would need
// another row is not held, and where one would be needed to take a holder out,
// the unit is forgotten for all.
package index
