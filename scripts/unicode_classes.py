"""Prints dataplane/tokenize/classes_table.go: how the Hugging Face tokenizers
library classes, normalises and strips each code point.

Its regular expressions, its normaliser and its white-space rule come from
three libraries with three versions of Unicode, none of them Go's. So nothing
is taken from a Unicode table: every code point is shown to the library, and
what it answers is written down.

    python3 -m venv .cache/venv && .cache/venv/bin/pip install tokenizers==0.23.3
    .cache/venv/bin/python scripts/unicode_classes.py | gofmt > dataplane/tokenize/classes_table.go

Python's unicodedata only proposes values of the combining class; a proposal
that the library does not bear out is dropped.
"""

import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
EVERYTHING = "".join(map(chr, POINTS))
BLOCK = 128  # code points in a block of the two-stage table

# The bits of a class byte, as classes.go names them.
CLASSES = [r"[\p{Lu}\p{Lt}]", r"\p{Ll}", r"[\p{Lm}\p{Lo}]", r"\p{M}", r"\p{N}", r"\s", r"[\p{P}\p{S}]"]
ACTIVE = 1 << len(CLASSES)


def matching(pattern):
    """The code points that a one-character pattern matches."""
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    return {ord(c) for piece, _ in split.pre_tokenize_str(EVERYTHING) for c in piece}


def beside_token(before, after, **flags):
    """Tokenises before + U+E000 + after for every code point, and returns per
    code point the ids found. U+E000 is an added token, the rest unknown."""
    tokenizer = Tokenizer(models.WordLevel({"?": 0}, unk_token="?"))
    tokenizer.add_tokens([AddedToken("\ue000", normalized=False, **flags)])
    points = [c for c in POINTS if c != 0xE000]
    texts = [before(chr(c)) + "\ue000" + after(chr(c)) for c in points]
    answers = []
    for at in range(0, len(texts), 1 << 16):
        answers += [e.ids for e in tokenizer.encode_batch(texts[at : at + (1 << 16)])]
    return dict(zip(points, answers))


def words():
    """What single_word takes for a part of a word: the token is not found."""
    return {c for c, ids in beside_token(lambda c: "", lambda c: c, single_word=True).items() if 1 not in ids}


def stripped():
    """What rstrip swallows: nothing is left but the token."""
    return {c for c, ids in beside_token(lambda c: "", lambda c: c, rstrip=True).items() if ids == [1]}


def numeric():
    """What the Digits pre-tokenizer takes for a digit."""
    digits = pre_tokenizers.Digits(individual_digits=False)
    return {ord(c) for c in EVERYTHING if len(digits.pre_tokenize_str("a" + c)) == 2}


class Normaliser:
    """NFC as the library does it, taken apart."""

    nfc = staticmethod(normalizers.NFC().normalize_str)
    nfd = staticmethod(normalizers.NFD().normalize_str)

    def __init__(self):
        hangul = range(0xAC00, 0xD7A4)  # by arithmetic, see nfc.go
        self.decompositions = {c: self.nfd(chr(c)) for c in POINTS if c not in hangul and self.nfd(chr(c)) != chr(c)}
        self.compositions = {}
        for c, parts in self.decompositions.items():
            if self.nfc(parts) == chr(c) and len(parts) > 1:
                first = self.nfc(parts[:-1])
                assert len(first) == 1, hex(c)
                self.compositions[ord(first), ord(parts[-1])] = c
        self.combining = self.combining_classes()
        seconds = {second for _, second in self.compositions}
        seconds |= set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
        changed = {c for c in self.decompositions if self.nfc(chr(c)) != chr(c)}
        self.active = set(self.combining) | seconds | changed

    def combining_classes(self):
        proposed = {c: unicodedata.combining(chr(c)) for c in POINTS}
        sample = {}
        for c, k in proposed.items():
            if k and c < 0x800 and c not in self.decompositions:
                sample.setdefault(k, chr(c))
        moved = lambda a, b: self.nfd(a + b) != a + b  # b has the lower class, but not 0
        low, high = sample[1], sample[240]
        found = {}
        for c in POINTS:
            ch = chr(c)
            if self.nfd(ch) != ch:
                continue
            if not moved(high, ch) and not moved(ch, low) and ch not in (low, high):
                continue  # it moves past nothing: a starter
            k = proposed[c]
            assert k, f"U+{c:04X} combines, but this Python does not know it"
            for other, sign in sample.items():
                assert moved(sign, ch) == (k < other) and moved(ch, sign) == (other < k), hex(c)
            found[c] = k
        return found


def ranges(points):
    """Sorted [first, last] pairs that cover the points."""
    out = []
    for c in sorted(points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def two_stages(table):
    """Splits a byte per code point into blocks that occur once, and an index."""
    blocks, index = {}, []
    for at in range(0, len(table), BLOCK):
        index.append(blocks.setdefault(bytes(table[at : at + BLOCK]), len(blocks)))
    return index, b"".join(blocks)


def text(name, data):
    """A Go string constant."""
    print(f"const {name} = \"\" +")
    lines = ["".join(f"\\x{b:02x}" for b in data[at : at + 32]) for at in range(0, len(data), 32)]
    print(" +\n".join(f'\t"{line}"' for line in lines) + "\n")


def rows(declaration, values, per_line=8):
    print(f"var {declaration} = [...]{values[0]}{{")
    cells = values[1]
    for at in range(0, len(cells), per_line):
        print("\t" + ", ".join(cells[at : at + per_line]) + ",")
    print("}\n")


def main():
    normaliser = Normaliser()
    table = bytearray(0x110000)
    for bit, pattern in enumerate(CLASSES):
        for c in matching(pattern):
            table[c] |= 1 << bit
    assert stripped() == matching(r"\s"), "white space of the two libraries differs: split the class"
    for c in normaliser.active:
        table[c] |= ACTIVE
    index, blocks = two_stages(table)

    print("// Code generated by scripts/unicode_classes.py. DO NOT EDIT.")
    print(f"// It shows every code point to tokenizers {tokenizers.__version__}; see there for how to run it.\n")
    print("package tokenize\n")
    print("// classIndex gives the block of 128 code points, classBlocks a class byte for each.")
    text("classBlocks", blocks)
    rows("classIndex", ("uint16", [str(i) for i in index]), 24)
    print("// wordRanges are the code points that single_word takes for a part of a word.")
    rows("wordRanges", ("[2]rune", [f"{{{a:#x}, {b:#x}}}" for a, b in ranges(words())]))
    digits, numbers = numeric(), matching(r"\p{N}")
    assert digits >= numbers
    print("// numericRanges are the code points that Digits takes for digits, beyond \\p{N}.")
    rows("numericRanges", ("[2]rune", [f"{{{a:#x}, {b:#x}}}" for a, b in ranges(digits - numbers)]))
    print("// combiningClasses are ranges of code points with a combining class other than 0.")
    cells = []
    for k in sorted(set(normaliser.combining.values())):
        of_class = ranges(c for c, other in normaliser.combining.items() if other == k)
        cells += [(a, f"{{{a:#x}, {b:#x}, {k}}}") for a, b in of_class]
    rows("combiningClasses", ("[3]rune", [cell for _, cell in sorted(cells)]))
    print("// decompositions are full canonical ones, without those of Hangul.")
    rows("decompositions", ("decomposition", [
        f'{{{c:#x}, "' + "".join(f"\\x{b:02x}" for b in parts.encode()) + '"}'
        for c, parts in sorted(normaliser.decompositions.items())]), 4)
    print("// compositions are pairs that NFC joins, without those of Hangul.")
    rows("compositions", ("composition", [
        f"{{{a:#x}, {b:#x}, {c:#x}}}" for (a, b), c in sorted(normaliser.compositions.items())]), 6)


if __name__ == "__main__":
    main()
