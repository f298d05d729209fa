package index

import (
	"encoding/binary"
	"errors"
	"fmt"

	"warmpath/dataplane/prefix"
)

// Piece is a part of what the index knows of one slot, in a form that another
// process can take up: names of blocks and hashes of units mean the same there,
// ids, slots and times do not. The order of pieces counts, and so does that of
// the learned units in them.
type Piece struct {
	// Order is the one that Learned is in.
	Order    Eviction
	Runs     []Run
	Learned  []Learned
	Expected []Expected
}

// Run is blocks that the engine has reported in a tier, each of the same number
// of units.
type Run struct {
	Tier   Tier
	Blocks []uint64
	// Copies are how many more each block has than one; nil if none has any.
	Copies []uint8
	Units  []prefix.Hash // of all blocks, in order
}

// Learned is a learned unit. A Piece has those that would go last first.
type Learned struct {
	Unit  prefix.Hash
	Age   uint32 // ticks since its last use
	Level uint8  // of its list, 0 to 127
	Flags uint8  // learnedParent, learnedForked; above them its weight
}

// Flags of a Learned.
const (
	learnedParent = 1 << iota // some unit that follows it was learned …
	learnedForked             // … and another one
	learnedWeight = iota      // two bits: half the exponent of its weight
	learnedFlags  = 1<<(learnedWeight+2) - 1
)

// Expected is speculative units that are due together.
type Expected struct {
	Left  uint32 // ticks until then, at least 1
	Units []prefix.Hash
}

// Bounds of a piece. An export fills one up to pieceUnits, beyond which only the
// units of one more block may be.
const (
	pieceUnits     = 1 << 13
	blockUnitsMost = 1 << 14 // a block of a quarter of a million tokens
	maxPieceUnits  = pieceUnits + blockUnitsMost
)

// MaxPieceBytes bounds an encoded piece: as if each unit had a section.
const MaxPieceBytes = 1 + 32*maxPieceUnits

// Kinds of sections of an encoded piece.
const (
	sectionRun = 1 + iota
	sectionLearned
	sectionExpected
)

const (
	maxLeft = uint32(maxAheadNs>>tickShift) + 1 // ticks that a speculative unit can be ahead
	hashLen = 8
)

// AppendPiece encodes a piece: the order, then sections. All numbers are
// little-endian or, where they are mostly small, varints.
func AppendPiece(b []byte, p *Piece) []byte {
	b = append(b, byte(p.Order))
	for i := range p.Runs {
		b = p.Runs[i].append(b)
	}
	if len(p.Learned) > 0 {
		b = binary.AppendUvarint(append(b, sectionLearned), uint64(len(p.Learned)))
		for _, u := range p.Learned {
			b = binary.LittleEndian.AppendUint64(b, uint64(u.Unit))
			b = binary.AppendUvarint(append(b, u.Level, u.Flags), uint64(u.Age))
		}
	}
	for _, x := range p.Expected {
		b = binary.AppendUvarint(append(b, sectionExpected), uint64(len(x.Units)))
		b = appendUnits(binary.AppendUvarint(b, uint64(x.Left)), x.Units)
	}
	return b
}

func (r *Run) append(b []byte) []byte {
	each := len(r.Units) / len(r.Blocks)
	b = binary.AppendUvarint(append(b, sectionRun), uint64(len(r.Blocks)))
	b = binary.AppendUvarint(append(b, byte(r.Tier), boolByte(r.Copies != nil)), uint64(each))
	for i, block := range r.Blocks {
		b = binary.LittleEndian.AppendUint64(b, block)
		if r.Copies != nil {
			b = append(b, r.Copies[i])
		}
		b = appendUnits(b, r.Units[i*each:(i+1)*each])
	}
	return b
}

func boolByte(is bool) byte {
	if is {
		return 1
	}
	return 0
}

func appendUnits(b []byte, units []prefix.Hash) []byte {
	for _, u := range units {
		b = binary.LittleEndian.AppendUint64(b, uint64(u))
	}
	return b
}

var errPieceShort = errors.New("it ends inside a section")

// DecodePiece reads what AppendPiece has written. It trusts nothing: the error
// says what is wrong with b. Nothing of b is kept.
func DecodePiece(b []byte) (*Piece, error) {
	p, err := decodePiece(b)
	if err != nil {
		return nil, fmt.Errorf("read a piece of the index: %w", err)
	}
	return p, nil
}

func decodePiece(b []byte) (*Piece, error) {
	if len(b) == 0 {
		return nil, errPieceShort
	}
	p := &Piece{Order: Eviction(b[0])}
	if p.Order >= evictions {
		return nil, fmt.Errorf("there is no eviction order %d", b[0])
	}
	d := pieceDecoder{b: b[1:]}
	for len(d.b) > 0 && d.err == nil {
		switch kind, count := d.byte(), d.number(maxPieceUnits); {
		case d.err != nil:
		case count == 0:
			d.fail(errors.New("a section is empty"))
		case kind == sectionRun:
			p.Runs = append(p.Runs, d.run(count))
		case kind == sectionLearned:
			p.Learned = append(p.Learned, d.learned(count)...)
		case kind == sectionExpected:
			left := d.number(uint64(maxLeft))
			if d.err == nil && left == 0 {
				d.fail(errors.New("units that are due already"))
			}
			p.Expected = append(p.Expected, Expected{Left: uint32(left), Units: d.units(nil, count)})
		default:
			d.fail(fmt.Errorf("there is no section %d", kind))
		}
	}
	return p, d.err
}

// pieceDecoder reads numbers; after an error it reads nothing more.
type pieceDecoder struct {
	b     []byte
	taken int // units
	err   error
}

func (d *pieceDecoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

func (d *pieceDecoder) byte() byte {
	if len(d.b) == 0 {
		d.fail(errPieceShort)
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *pieceDecoder) number(most uint64) int {
	v, n := binary.Uvarint(d.b)
	switch {
	case n <= 0:
		d.fail(errPieceShort)
		return 0
	case v > most:
		d.fail(fmt.Errorf("%d where %d is the most", v, most))
		return 0
	}
	d.b = d.b[n:]
	return int(v)
}

func (d *pieceDecoder) word() uint64 {
	if len(d.b) < hashLen {
		d.fail(errPieceShort)
		return 0
	}
	v := binary.LittleEndian.Uint64(d.b)
	d.b = d.b[hashLen:]
	return v
}

// claim checks that count more units fit the bound, and that b can hold them.
func (d *pieceDecoder) claim(count int) bool {
	if d.err == nil && count > len(d.b)/hashLen {
		d.fail(errPieceShort)
	}
	if d.taken += count; d.err == nil && d.taken > maxPieceUnits {
		d.fail(fmt.Errorf("it has more than %d units", maxPieceUnits))
	}
	return d.err == nil
}

func (d *pieceDecoder) units(dst []prefix.Hash, count int) []prefix.Hash {
	if !d.claim(count) {
		return dst
	}
	for range count {
		dst = append(dst, prefix.Hash(d.word()))
	}
	return dst
}

func (d *pieceDecoder) run(count int) (r Run) {
	tier, copied, each := d.byte(), d.byte(), d.number(blockUnitsMost)
	switch {
	case d.err != nil:
		return r
	case tier >= Tiers:
		d.fail(fmt.Errorf("there is no tier %d", tier))
	case copied > 1:
		d.fail(fmt.Errorf("copies are marked by %d, not 0 or 1", copied))
	case each == 0:
		d.fail(errors.New("a block has no units"))
	}
	r.Tier = Tier(tier)
	for range count {
		block := d.word()
		if copied == 1 {
			copies := d.byte()
			if copies > maxCopies {
				d.fail(fmt.Errorf("%d copies where %d are the most", copies, maxCopies))
			}
			r.Copies = append(r.Copies, copies)
		}
		r.Blocks = append(r.Blocks, block)
		if r.Units = d.units(r.Units, each); d.err != nil {
			return r
		}
	}
	return r
}

func (d *pieceDecoder) learned(count int) (all []Learned) {
	if !d.claim(count) {
		return nil
	}
	for range count {
		u := Learned{Unit: prefix.Hash(d.word()), Level: d.byte(), Flags: d.byte(), Age: uint32(d.number(1<<32 - 1))}
		switch {
		case u.Level > maxLevel:
			d.fail(fmt.Errorf("there is no level %d", u.Level))
		case u.Flags&^learnedFlags != 0:
			d.fail(fmt.Errorf("there are no flags %#x", u.Flags))
		}
		if d.err != nil {
			return nil
		}
		all = append(all, u)
	}
	return all
}
