package engine

import (
	"encoding/binary"
	"strings"

	"github.com/cespare/xxhash/v2"
)

const (
	// TokenBytes is how many bytes of the rendered text make one token.
	TokenBytes = 4
	// VocabularySize bounds token ids: every id is below it.
	VocabularySize = 151_000
)

// Message is one chat message as the template sees it.
type Message struct {
	Role    string
	Content string
}

// RenderChat renders messages as the simulated engines' chat template does.
// The form is ChatML, with the tools in a system turn of their own in front,
// and with one peculiarity: the newline after a role is repeated until the
// content starts on a token boundary. So an answer, whose tokens are four
// bytes each, is grouped in the same way when it comes back as a message: the
// tokens of turn n+1 extend prompt and answer of turn n.
func RenderChat(messages []Message, tools []byte, generationPrompt bool) []byte {
	size := len(tools) + 64
	for i := range messages {
		size += len(messages[i].Role) + len(messages[i].Content) + 32
	}
	out := make([]byte, 0, size)
	if len(tools) > 0 {
		out = appendRole(out, "system")
		out = append(out, "# Tools\n"...)
		out = append(out, tools...)
		out = append(out, "<|im_end|>\n"...)
	}
	for i := range messages {
		out = appendRole(out, messages[i].Role)
		out = append(out, messages[i].Content...)
		out = append(out, "<|im_end|>\n"...)
	}
	if generationPrompt {
		out = appendRole(out, "assistant")
	}
	return out
}

// appendRole starts a message and pads to the next token boundary.
func appendRole(out []byte, role string) []byte {
	out = append(out, "<|im_start|>"...)
	out = append(out, role...)
	out = append(out, '\n')
	for len(out)%TokenBytes != 0 {
		out = append(out, '\n')
	}
	return out
}

// Tokenize cuts text into groups of four bytes; a group's id is its value as
// a little-endian 32-bit number modulo VocabularySize. A shorter last group
// is filled with zero bytes.
func Tokenize(text []byte) []uint32 {
	ids := make([]uint32, 0, (len(text)+TokenBytes-1)/TokenBytes)
	for ; len(text) >= TokenBytes; text = text[TokenBytes:] {
		ids = append(ids, binary.LittleEndian.Uint32(text)%VocabularySize)
	}
	if len(text) > 0 {
		var last [TokenBytes]byte
		copy(last[:], text)
		ids = append(ids, binary.LittleEndian.Uint32(last[:])%VocabularySize)
	}
	return ids
}

// answerWords are common words of four bytes with the blank before them: one
// token in the simulated vocabulary, and nearly all of them in real ones.
var answerWords = [64]string{
	" the", " sea", " and", " sky", " old", " fox", " ran", " far", " for", " all", " day", " sun", " met", " two", " men", " who",
	" saw", " her", " red", " hat", " but", " not", " one", " bit", " was", " new", " now", " let", " him", " sit", " low", " dew",
	" ice", " oak", " elm", " ash", " bay", " fog", " dry", " wet", " hot", " mud", " map", " key", " box", " jar", " cup", " tea",
	" pie", " rye", " egg", " hen", " dog", " cat", " owl", " bee", " ant", " elk", " ram", " cow", " our", " few", " may", " win",
}

// answerTable holds the words of answers, one token each.
type answerTable struct {
	text [64]string // nothing that JSON would escape
	ids  [64]uint32
}

var fourByteAnswers = func() answerTable {
	t := answerTable{text: answerWords}
	for i, w := range answerWords {
		t.ids[i] = Tokenize([]byte(w))[0]
	}
	return t
}()

// words returns the text of answer tokens from (inclusive) to end (exclusive).
func (t *answerTable) words(start uint64, from, end int64) string {
	var b strings.Builder
	for i := from; i < end; i++ {
		b.WriteString(t.text[answerWord(start, int(i))])
	}
	return b.String()
}

// wordIDs returns the ids of answer tokens from (inclusive) to end (exclusive).
func (t *answerTable) wordIDs(start uint64, from, end int64) []uint32 {
	ids := make([]uint32, 0, end-from)
	for i := from; i < end; i++ {
		ids = append(ids, t.ids[answerWord(start, int(i))])
	}
	return ids
}

// answerStart condenses a prompt to the number that decides its answer.
// Engines with the same prompt answer the same, as greedy sampling does.
func answerStart(prompt []uint32) uint64 {
	var d xxhash.Digest
	d.Reset()
	writeTokens(&d, prompt)
	return d.Sum64()
}

// answerWord is the index of the word at a position of an answer.
func answerWord(start uint64, position int) int {
	x := start + uint64(position)*0x9e3779b97f4a7c15
	x ^= x >> 31
	x *= 0xbf58476d1ce4e5b9
	return int(x >> 58)
}

// writeTokens adds token ids to a digest, four bytes little-endian each.
func writeTokens(d *xxhash.Digest, ids []uint32) {
	var buf [512]byte
	for len(ids) > 0 {
		n := min(len(ids), len(buf)/4)
		for i, id := range ids[:n] {
			binary.LittleEndian.PutUint32(buf[4*i:], id)
		}
		_, _ = d.Write(buf[:4*n]) // a digest never fails
		ids = ids[n:]
	}
}
