package tokenize

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/zeebo/xxh3"
)

// entryOf gives the word of a number, and ids that depend on it alone.
func entryOf(i int) (word []byte, ids []uint32) {
	word = fmt.Appendf(nil, "%d%s", i, bytes.Repeat([]byte{'x'}, i%40))
	for k := range 1 + i%len(word) {
		ids = append(ids, uint32(i+k))
	}
	return word, ids
}

// TestCache finds what was added, or nothing, and after the ring has gone round
// still what is new.
func TestCache(t *testing.T) {
	const ring, words = 1 << 14, 10_000 // some six times what the ring holds
	c := newRing(ring)
	for i := range words {
		word, ids := entryOf(i)
		if _, ok := c.find(nil, word, xxh3.Hash(word)); ok {
			t.Fatalf("%q is found before it was added", word)
		}
		c.add(word, xxh3.Hash(word), ids)
		got, ok := c.find([]uint32{7}, word, xxh3.Hash(word))
		if !ok || got[0] != 7 || !slices.Equal(got[1:], ids) {
			t.Fatalf("%q: got %v, %v, want %v", word, got, ok, ids)
		}
	}
	found := 0
	for i := range words {
		word, ids := entryOf(i)
		got, ok := c.find(nil, word, xxh3.Hash(word))
		if ok && !slices.Equal(got, ids) {
			t.Fatalf("%q: got %v, want %v", word, got, ids)
		}
		if ok {
			found++
		}
	}
	if found < words/12 || found > words/3 {
		t.Errorf("%d of %d words are left", found, words)
	}
}

// TestCacheComparesKeys has words of one hash and length.
func TestCacheComparesKeys(t *testing.T) {
	c := newWordCache()
	var words [][]byte
	for _, n := range []int{1, 7, 8, 9, 16, cachedMost} {
		for _, b := range "abc" {
			word := bytes.Repeat([]byte{'-'}, n)
			word[n-1] = byte(b)
			words = append(words, word)
		}
	}
	const hash = 12345
	for i, word := range words {
		got, ok := c.find(nil, word, hash)
		if ok {
			t.Errorf("%q is taken for another word: %v", word, got)
		}
		c.add(word, hash, slices.Repeat([]uint32{uint32(i)}, len(word)))
		if got, ok = c.find(nil, word, hash); !ok || len(got) != len(word) || got[0] != uint32(i) {
			t.Errorf("%q: got %v, %v", word, got, ok)
		}
	}
}

// TestCacheShared reads and writes the same few words from several goroutines
// while the ring goes round under them.
func TestCacheShared(t *testing.T) {
	c := newRing(1 << 12)
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 0))
			for range 30_000 {
				i := random.IntN(2000)
				word, ids := entryOf(i)
				got, ok := c.find(nil, word, xxh3.Hash(word))
				if ok && !slices.Equal(got, ids) {
					t.Errorf("%q: got %v, want %v", word, got, ids)
					return
				}
				if !ok || random.IntN(2) == 0 {
					c.add(word, xxh3.Hash(word), ids)
				}
			}
		})
	}
	group.Wait()
}

func TestWordTable(t *testing.T) {
	table := newWordTable(3000)
	words := map[string]uint32{}
	for i := range uint32(3000) {
		word := fmt.Sprintf("%x", i*i)
		if i%3 == 0 { // the length tells words with zeros at the end apart
			word += "\x00"
		}
		if _, ok := words[word]; ok {
			continue
		}
		words[word] = i
		table.add(shortAt([]byte(word), 0, len(word)), i)
	}
	words["\x00"], words["\x00\x00"], words["123456789012345"] = 1, 2, 3
	for _, word := range []string{"\x00", "\x00\x00", "123456789012345"} {
		table.add(shortAt([]byte(word), 0, len(word)), words[word])
	}
	for word, id := range words {
		text := []byte("..." + word + "123456789abcdef")
		for _, text := range [][]byte{text, text[:3+len(word)]} { // with and without 16 bytes to read
			w := shortAt(text, 3, len(word))
			if got, ok := table.find(w, w.hash()); !ok || got != id {
				t.Fatalf("%q: got %d, %v, want %d", word, got, ok, id)
			}
		}
	}
	for _, word := range []string{"g", "\x00\x00\x00", "12345678901234"} {
		w := shortAt([]byte(word), 0, len(word))
		if id, ok := table.find(w, w.hash()); ok {
			t.Errorf("%q is found as %d", word, id)
		}
	}
}
