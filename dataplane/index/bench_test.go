package index

import (
	"math/rand/v2"
	"testing"

	"warmpath/dataplane/prefix"
)

// chainOf makes a chain of n units that no other seed makes.
func chainOf(seed uint64, n int) []prefix.Hash {
	r := rand.New(rand.NewPCG(seed, 1))
	chain := make([]prefix.Hash, n)
	for i := range chain {
		chain[i] = prefix.Hash(r.Uint64() | 1)
	}
	return chain
}

// staircase is an index of some nodes where node k holds the first share of
// (k+1)/nodes of a chain, among other units.
func staircase(nodes, length, others int) (x *Index, chain []prefix.Hash, live SlotSet) {
	x = New(Options{Capacity: 1 << 20})
	w := x.Writer()
	chain = chainOf(1, length)
	for k := range nodes {
		live.Add(k)
		for i := range others {
			w.Learn(k, chainOf(uint64(k)<<32|uint64(i)+2, 256), 0)
		}
		w.Learn(k, chain[:length*(k+1)/nodes], 0)
	}
	return x, chain, live
}

func benchmarkMatch(b *testing.B, nodes, length, others int) {
	x, chain, live := staircase(nodes, length, others)
	units := make([]uint32, 1024)
	b.ReportAllocs()
	for b.Loop() {
		if x.Match(chain, &live, units) != length {
			b.Fatal("chain not found")
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(length), "ns/unit")
}

func BenchmarkMatch512Units16Nodes(b *testing.B) { benchmarkMatch(b, 16, 512, 8) }
func BenchmarkMatch16Units4Nodes(b *testing.B)   { benchmarkMatch(b, 4, 16, 8) }

// BenchmarkMatchMillion has four million other units around the chain's, so
// that a chain that was not looked at lately is not in any cache.
func BenchmarkMatchMillion(b *testing.B) {
	const nodes, chains, length = 16, 8192, 512
	x := New(Options{Capacity: 1 << 20})
	w := x.Writer()
	var live SlotSet
	all := make([][]prefix.Hash, chains)
	for i := range all {
		all[i] = chainOf(uint64(i), length)
		live.Add(i % nodes)
		w.Learn(i%nodes, all[i], 0)
	}
	units := make([]uint32, 1024)
	i := 0
	for b.Loop() {
		if x.Match(all[i%chains], &live, units) != length {
			b.Fatal("chain not found")
		}
		i += 4099
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/length, "ns/unit")
}

// BenchmarkLearn sends chains that are half known to full nodes, so that every
// new unit evicts one.
func BenchmarkLearn(b *testing.B) {
	const nodes, length, capacity, chains = 16, 512, 50_000, 4096
	x := New(Options{Capacity: capacity})
	w := x.Writer()
	all := make([][]prefix.Hash, chains)
	for i := range all {
		all[i] = append(chainOf(uint64(i%64), length/2), chainOf(uint64(i)+1000, length/2)...)
		w.Learn(i%nodes, all[i], 0)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		w.Learn((i+i/chains)%nodes, all[i%chains], int64(i))
		i++
	}
	b.ReportMetric(float64(b.N)*length*1e9/float64(b.Elapsed().Nanoseconds()), "units/s")
	s := x.Stats()
	b.ReportMetric(float64(s.Bytes)/float64(s.HolderUnits), "B/holder-unit")
}

// BenchmarkFill builds an index of units that each one node holds, the most
// expensive kind, and reports what they cost.
func BenchmarkFill(b *testing.B) {
	const nodes, length, chains = 256, 512, 8192
	for b.Loop() {
		x := New(Options{Capacity: 1 << 20})
		w := x.Writer()
		chain := make([]prefix.Hash, length)
		r := rand.New(rand.NewPCG(1, 2))
		for i := range chains {
			for k := range chain {
				chain[k] = prefix.Hash(r.Uint64() | 1)
			}
			w.Learn(i%nodes, chain, 0)
		}
		s := x.Stats()
		b.ReportMetric(float64(s.Bytes)/float64(s.HolderUnits), "B/holder-unit")
	}
	b.ReportMetric(float64(b.N)*length*chains*1e9/float64(b.Elapsed().Nanoseconds()), "units/s")
}

func BenchmarkMatch128Units1Node(b *testing.B)    { benchmarkMatch(b, 1, 128, 8) }
func BenchmarkMatch8192Units64Nodes(b *testing.B) { benchmarkMatch(b, 64, 8192, 8) }

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 9)) }
