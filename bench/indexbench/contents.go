package indexbench

import (
	"warmpath/dataplane/index"
	"warmpath/dataplane/prefix"
)

// chainBlocks is how many blocks a chain of the contents has: 6,400 tokens in
// blocks of 16.
const chainBlocks = 400

// Contents are the caches of a fleet, made up and the same on every machine.
// Every node stores one chain after the other and, when it is full, removes the
// oldest, last block first, as engines do. Of three chains one is held by the
// eight nodes of a group, one by two nodes, one by one.
type Contents struct {
	Nodes  int
	Blocks int // a node can hold

	writer *index.Writer
	stored []int // blocks that each node ever stored

	names, gone []uint64 // of one report
	units       []prefix.Hash
}

// NewContents returns empty caches that are reported to writer.
func NewContents(writer *index.Writer, nodes, blocks int) *Contents {
	return &Contents{Nodes: nodes, Blocks: blocks, writer: writer, stored: make([]int, nodes)}
}

// hash returns the hash of the k-th block that a node stores.
func (c *Contents) hash(node, k int) uint64 {
	chain, unit := k/chainBlocks, k%chainBlocks
	holders := [...]int{8, 2, 1}[chain%3]
	return mix(mix(uint64(node/holders)<<8|uint64(holders))+uint64(chain)<<20+uint64(unit)) | 1
}

// block is the name that a node's engine has for a hash: engines do not agree.
func block(node int, hash uint64) uint64 { return hash*0x9E3779B97F4A7C15 ^ uint64(node) }

// mix is SplitMix64's output function.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Report stores the next blocks of a node, and removes as many if it is full.
func (c *Contents) Report(node, blocks int) {
	c.names, c.units, c.gone = c.names[:0], c.units[:0], c.gone[:0]
	for range blocks {
		k := c.stored[node]
		c.stored[node]++
		h := c.hash(node, k)
		c.names = append(c.names, block(node, h))
		c.units = append(c.units, prefix.Hash(h))
		if old := k - c.Blocks; old >= 0 {
			old += chainBlocks - 1 - 2*(old%chainBlocks) // the last block of a chain first
			c.gone = append(c.gone, block(node, c.hash(node, old)))
		}
	}
	c.writer.RemovedRun(node, index.Device, c.gone)
	c.writer.StoredRun(node, index.Device, c.names, c.units, false)
}

// Fill stores until every node is full.
func (c *Contents) Fill() {
	for k := 0; k < c.Blocks; k += chainBlocks {
		for node := range c.Nodes {
			c.Report(node, min(chainBlocks, c.Blocks-k))
		}
	}
}

// Chain stores a chain of its own at some nodes, the k-th of which holds the
// first share of (k+1)/nodes of it, and returns it.
func (c *Contents) Chain(seed uint64, length, nodes int) []prefix.Hash {
	chain := make([]prefix.Hash, length)
	for i := range chain {
		chain[i] = prefix.Hash(mix(mix(^seed)+uint64(i)) | 1)
	}
	for k := range nodes {
		for i := range chain[:length*(k+1)/nodes] {
			c.writer.Stored(k, index.Device, block(k, uint64(chain[i])), chain[i:i+1])
		}
	}
	return chain
}
