//go:build hf && cgo

package hf_test

import (
	"math/rand/v2"
	"strings"
	"unicode/utf8"
)

// pieces are what adversarial strings are made of: what pre-tokenisers,
// normalisers and byte-level alphabets treat in a way of their own.
var pieces = [][]string{
	{"a", "the", "Hello", "HTTPServer", "fooBar", "x", "Straße", "naïve", "ǅ", "ʰ", "ꟋƤ", "ﬁ", "ſ", "İ", "ß"},
	{"'s", "'S", "'t", "'re", "'VE", "'ll", "'Ll", "'d", "'m", "'ſ", "’s", "’ll", "'", "''", "'re's", "don't", "I'M"},
	{"0", "7", "12", "123", "1234", "2024", "1,000.5", "٣", "०१२", "²", "Ⅷ", "¾", "１２", "𝟗", "\U0001CCF0", "\U00010D40"},
	{" ", " ", " ", "  ", "   ", "\t", "\t\t", " \t ", "\u00a0", "\u1680", "\u2003", "\u202f", "\u3000", "\u205f", "\u180e", "\u200b", "\ufeff"},
	{"\n", "\n", "\n\n", "\n\n\n", "\r", "\r\n", "\r\n\r\n", " \n", "\n ", " \n \n ", "\t\n", "\v", "\f", "\u0085", "\u2028", "\u2029", "\x1c", "\x1f"},
	{"\u0301", "\u0338", "\u0327\u0301", "\u20d7", "\u093f", "\u0e33", "\u3099", "\u0345", "\U0001D165", "e\u0301", "\u00e9", "o\u0302\u0323", "\u0958", "\u0344", "\u2126", "\u212b", "\u1100\u1161", "\U0002F800"},
	{"!", "...", "?!", "//", "</", "/>", "):\n\n", "();", "{}", "[[", "=====", "--", "_x", "$", "^", "~", "`", "#", "@", "|", "<|", "|>", "<", ">", "\\", "\"", "%", "&"},
	{"…", "—", "«", "»", "“", "€", "°", "©", "№", "→", "∑", "▁", "▁▁", "Ġ", "Ċ", "Ã", "�", "|", "｜"},
	{"👩‍👩‍👧", "👍🏽", "🇩🇪", "❤️", "☃", "1️⃣", "🏴\U000E0067\U000E0062\U000E007F", "\u200d", "\ufe0f", "😀😀"},
	{"中", "中文", "你好，世界", "。", "、", "々", "漢字カナ", "ひらがな", "ー", "가", "\u1100\u1161\u11a8", "\u1112\u1161\u11ab\u1100\u1173\u11af", "\ud7b0", "\ua960", "\u11ff"},
	{"при", "Вет", "λόγος", "ς", "שָׁלוֹם", "سلام", "ّ", "कि", "क्ष", "ไทย", "ກຳ", "မြန်", "ⴰ", "ᏸ", "Ꭰ"},
	{"\u1c89", "\ua7cb", "\ua7da", "\U00010D50", "\U00016D40", "\U0002EBF0", "\U00013460", "\U0001E5D0", "\U00011BC0", "\U000105C0", "\U00010EC2", "\U000323B0"}, // Unicode 15.1 to 17
	{"\x00", "\x00\x00", "\x01", "\x7f", "\u0080", "\u009f", "\u00ad", "\u0600", "\u061c", "\u2060", "\ue000", "\uffff", "\ufdd0", "\U0010FFFF", "\U000F0000"},
	{"<0x0A>", "<0x41>", "<s>", "</s>", "<unk>", "<pad>", "[INST]", "<|endoftext|>", "<|im_start|>user\n", "<think>", "<bos>"},
}

// stringsOf makes deterministic adversarial texts for one vocabulary.
type stringsOf struct {
	random *rand.Rand
	added  []string
}

func newStrings(seed uint64, added []string) *stringsOf {
	return &stringsOf{random: rand.New(rand.NewPCG(seed, 99)), added: added}
}

// next is one text of at most some 600 bytes. Some have runs of one piece,
// some stay within two kinds so that neighbours meet often, some are code
// points drawn from everywhere.
func (g *stringsOf) next() string {
	var b strings.Builder
	n := 1 + g.random.IntN(24)
	few := g.random.IntN(3) == 0
	kinds := [2]int{g.random.IntN(len(pieces)), g.random.IntN(len(pieces))}
	for range n {
		kind := g.random.IntN(len(pieces) + 3)
		if few {
			kind = kinds[g.random.IntN(2)]
		}
		switch {
		case kind == len(pieces):
			b.WriteString(g.anyPoints())
		case kind == len(pieces)+1:
			b.WriteString(g.special())
		case kind == len(pieces)+2:
			b.WriteString(strings.Repeat(g.piece(g.random.IntN(len(pieces))), 1+g.random.IntN(20)))
		default:
			b.WriteString(g.piece(kind))
		}
	}
	return b.String()
}

func (g *stringsOf) piece(kind int) string {
	return pieces[kind][g.random.IntN(len(pieces[kind]))]
}

// anyPoints are a few code points of one plane.
func (g *stringsOf) anyPoints() string {
	var b strings.Builder
	limit := []int32{0x80, 0x800, 0x10000, 0x20000, 0x40000, 0x110000}[g.random.IntN(6)]
	for range 1 + g.random.IntN(4) {
		if r := g.random.Int32N(limit); utf8.ValidRune(r) {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// special is an added token or what is left of one, in a neighbourhood that
// may change what matches.
func (g *stringsOf) special() string {
	if len(g.added) == 0 {
		return ""
	}
	s := []rune(g.added[g.random.IntN(len(g.added))])
	switch g.random.IntN(6) {
	case 0:
		s = s[:g.random.IntN(len(s)+1)]
	case 1:
		s = s[g.random.IntN(len(s)):]
	case 2:
		return string(s) + g.piece(3)
	case 3:
		return g.piece(3) + string(s) + g.piece(5)
	}
	return string(s)
}

// everyPoint puts all code points of the planes in use between letters,
// digits and blanks, 64 a text.
func everyPoint(yield func(string) bool) {
	var b strings.Builder
	for r := rune(0); r < 0xE1000; r++ {
		if r == 0x3_4000 {
			r = 0xE_0000 // nothing is assigned between
		}
		if utf8.ValidRune(r) {
			b.WriteString("ab ")
			b.WriteRune(r)
			b.WriteString("c1")
			b.WriteRune(r)
			b.WriteRune(r)
			b.WriteString("\n")
		}
		if r%64 == 63 {
			if !yield(b.String()) {
				return
			}
			b.Reset()
		}
	}
}
