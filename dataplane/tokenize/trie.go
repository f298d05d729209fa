package tokenize

import (
	"bytes"
	"slices"
	"strings"
)

// trie finds the longest of a set of strings at a place, and the next place
// where one could begin.
type trie struct {
	nodes  []trieNode
	labels []byte  // of all edges; those of a node are sorted
	childs []int32 // where they lead

	root   [256]int32 // child of the root, 0 for none
	firsts []byte     // bytes that some string begins with
}

// trieNode has the edges [edges, edges+count).
type trieNode struct {
	edges int32
	count int32
	value int32 // of the string that ends here, -1 for none
}

// newTrie builds a trie of strings, none of them empty and no two the same;
// values are their indices.
func newTrie(set []string) *trie {
	order := make([]int32, len(set))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return strings.Compare(set[a], set[b]) })
	t := &trie{}
	t.build(set, order, 0)
	root := t.nodes[0]
	for i := root.edges; i < root.edges+root.count; i++ {
		t.root[t.labels[i]] = t.childs[i]
		t.firsts = append(t.firsts, t.labels[i])
	}
	return t
}

// build makes the node of the sorted strings that share their first depth
// bytes, and those below it, and returns its number.
func (t *trie) build(set []string, order []int32, depth int) int32 {
	number := int32(len(t.nodes))
	t.nodes = append(t.nodes, trieNode{value: -1})
	if len(order) > 0 && len(set[order[0]]) == depth {
		t.nodes[number].value = order[0]
		order = order[1:]
	}
	var groups [][]int32
	for len(order) > 0 {
		label, n := set[order[0]][depth], 1
		for n < len(order) && set[order[n]][depth] == label {
			n++
		}
		groups = append(groups, order[:n])
		order = order[n:]
	}
	edges := len(t.labels)
	t.nodes[number].edges, t.nodes[number].count = int32(edges), int32(len(groups))
	for _, group := range groups {
		t.labels = append(t.labels, set[group[0]][depth])
		t.childs = append(t.childs, 0)
	}
	for i, group := range groups {
		child := t.build(set, group, depth+1)
		t.childs[edges+i] = child
	}
	return number
}

// longest returns the longest string that begins at pos: its end and value,
// value -1 if none does.
func (t *trie) longest(text []byte, pos int) (end int, value int32) {
	value = -1
	node := t.root[text[pos]]
	for node != 0 {
		n := &t.nodes[node]
		pos++
		if n.value >= 0 {
			end, value = pos, n.value
		}
		if pos == len(text) {
			break
		}
		node = t.child(n, text[pos])
	}
	return end, value
}

// child returns the node behind the edge with the label, 0 for none.
func (t *trie) child(n *trieNode, label byte) int32 {
	labels := t.labels[n.edges : n.edges+n.count]
	if len(labels) > 8 {
		if i, found := slices.BinarySearch(labels, label); found {
			return t.childs[int(n.edges)+i]
		}
		return 0
	}
	for i, l := range labels {
		if l == label {
			return t.childs[int(n.edges)+i]
		}
	}
	return 0
}

// skipWindow bounds what is searched in vain for one first byte while another
// one is near.
const skipWindow = 4096

// skip returns the first place at or after pos where a string could begin,
// len(text) if there is none.
func (t *trie) skip(text []byte, pos int) int {
	switch {
	case len(t.firsts) == 0:
		return len(text)
	case len(t.firsts) == 1:
		if i := bytes.IndexByte(text[pos:], t.firsts[0]); i >= 0 {
			return pos + i
		}
		return len(text)
	case len(t.firsts) <= 4:
		for pos < len(text) {
			window := text[pos:min(pos+skipWindow, len(text))]
			found := len(window)
			for _, b := range t.firsts {
				if i := bytes.IndexByte(window[:found], b); i >= 0 {
					found = i
				}
			}
			if found < len(window) {
				return pos + found
			}
			pos += len(window)
		}
		return len(text)
	}
	for pos < len(text) && t.root[text[pos]] == 0 {
		pos++
	}
	return pos
}
