package tokenize

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// naiveMerge is the definition: again and again, the leftmost pair of the
// lowest rank.
func naiveMerge(ranks map[[2]uint32]int, result []uint32, symbols []uint32) []uint32 {
	symbols = slices.Clone(symbols)
	for {
		best, at := len(result), -1
		for i := range len(symbols) - 1 {
			if rank, ok := ranks[[2]uint32{symbols[i], symbols[i+1]}]; ok && rank < best {
				best, at = rank, i
			}
		}
		if at < 0 {
			return symbols
		}
		symbols = slices.Replace(symbols, at, at+2, result[best])
	}
}

// randomMerges joins random pairs of ids into new ones, or the pair of another
// merge into another one's result.
func randomMerges(random *rand.Rand, symbols, merges int) (*mergeTable, map[[2]uint32]int) {
	table, ranks := newMergeTable(merges), map[[2]uint32]int{}
	texts := map[string]uint32{}
	var spelled []string
	for i := range symbols {
		spelled = append(spelled, string(rune('a'+i)))
		texts[spelled[i]] = uint32(i)
	}
	for len(table.result) < merges {
		left, right := random.IntN(len(spelled)), random.IntN(len(spelled))
		text := spelled[left] + spelled[right]
		into, ok := texts[text]
		if !ok {
			into = uint32(len(spelled))
			spelled = append(spelled, text)
			texts[text] = into
		}
		ranks[[2]uint32{uint32(left), uint32(right)}] = len(table.result)
		table.add(uint32(left), uint32(right), into)
	}
	return table, ranks
}

func TestMergeAgainstNaive(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	var s Scratch
	for round := range 400 {
		table, ranks := randomMerges(random, 1+random.IntN(4), 1+random.IntN(40))
		lengths := []int{0, 1, 2, scanMost - 1, scanMost, scanMost + 1, random.IntN(300)}
		symbols := make([]uint32, lengths[round%len(lengths)])
		for i := range symbols {
			symbols[i] = uint32(random.IntN(4))
		}
		want := naiveMerge(ranks, table.result, symbols)
		byHeap := slices.Clone(symbols)
		if len(symbols) > 0 {
			byHeap = byHeap[:table.mergeByHeap(byHeap, &s)]
		}
		got := slices.Clone(symbols)
		if got = got[:table.merge(got, &s)]; !slices.Equal(got, want) || !slices.Equal(byHeap, want) {
			t.Fatalf("round %d: %v gives\n%v, by heap\n%v, want\n%v", round, symbols, got, byHeap, want)
		}
	}
}

// TestMergeTable looks all pairs up, those of the last ids too.
func TestMergeTable(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	table, want := newMergeTable(5000), map[[2]uint32]uint32{}
	for i := range uint32(5000) {
		pair := [2]uint32{random.Uint32N(100), random.Uint32N(100)}
		if i%10 == 0 {
			pair = [2]uint32{maxIDs - 1 - random.Uint32N(5), maxIDs - 1 - random.Uint32N(5)}
		}
		table.add(pair[0], pair[1], i)
		want[pair] = i // the later one holds
	}
	for left := range uint32(110) {
		for right := range uint32(110) {
			for _, pair := range [][2]uint32{{left, right}, {maxIDs - 1 - left, maxIDs - 1 - right}} {
				rank, ok := want[pair]
				if !ok {
					rank = noRank
				}
				if got := table.rank(pair[0], pair[1]); got != rank {
					t.Fatalf("%v has rank %d, want %d", pair, got, rank)
				}
			}
		}
	}
}

// TestScratchForgetsGiants keeps one endless word from holding memory.
func TestScratchForgetsGiants(t *testing.T) {
	tokenizer := tiny(t, "qwen")
	var s Scratch
	tokenizer.Append(nil, []byte(strings.Repeat("a", 1000)), &s)
	if s.links == nil {
		t.Error("a long word leaves nothing: the next one allocates")
	}
	tokenizer.Append(nil, []byte(strings.Repeat("a", 2*keptLinks)), &s)
	if s.links != nil || s.heap != nil {
		t.Errorf("a giant word leaves %d links and %d candidates", cap(s.links), cap(s.heap))
	}
}
