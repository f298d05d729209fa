package tokenize

import (
	"encoding/json"
	"fmt"
	"strings"
)

// bpeModel is the model part of a file.
type bpeModel struct {
	Type                    string            `json:"type"`
	Dropout                 *float64          `json:"dropout"`
	UnkToken                *string           `json:"unk_token"`
	ContinuingSubwordPrefix *string           `json:"continuing_subword_prefix"`
	EndOfWordSuffix         *string           `json:"end_of_word_suffix"`
	FuseUnk                 bool              `json:"fuse_unk"`
	ByteFallback            bool              `json:"byte_fallback"`
	IgnoreMerges            bool              `json:"ignore_merges"`
	Vocab                   map[string]uint32 `json:"vocab"`
	Merges                  mergeList         `json:"merges"`

	vocab map[string]uint32
}

// mergeList holds pairs of entries; older files write a pair as one string
// with a space between the two.
type mergeList [][2]string

func (l *mergeList) UnmarshalJSON(data []byte) error {
	var pairs [][2]string
	if json.Unmarshal(data, &pairs) == nil {
		*l = pairs
		return nil
	}
	var lines []string
	if err := json.Unmarshal(data, &lines); err != nil {
		return fmt.Errorf("merges are neither pairs nor strings: %w", err)
	}
	for _, line := range lines {
		if strings.HasPrefix(line, "#version") {
			continue
		}
		left, right, ok := strings.Cut(line, " ")
		if !ok || strings.Contains(right, " ") {
			return fmt.Errorf("merge %q is not two entries with a space between them", line)
		}
		*l = append(*l, [2]string{left, right})
	}
	return nil
}

// loadBPE reads the model and checks what holds for every family.
func loadBPE(raw json.RawMessage) (*bpeModel, error) {
	kind, err := typeOf("model", raw)
	if err != nil {
		return nil, err
	}
	if kind != "BPE" {
		return nil, &Unsupported{"model.type", fmt.Sprintf("%q is not BPE", kind)}
	}
	var m bpeModel
	if err := strict("model", raw, &m); err != nil {
		return nil, err
	}
	switch {
	case m.Dropout != nil && *m.Dropout != 0:
		return nil, &Unsupported{"model.dropout", "makes ids random"}
	case m.ContinuingSubwordPrefix != nil && *m.ContinuingSubwordPrefix != "":
		return nil, &Unsupported{"model.continuing_subword_prefix", fmt.Sprintf("%q; only none is understood", *m.ContinuingSubwordPrefix)}
	case m.EndOfWordSuffix != nil && *m.EndOfWordSuffix != "":
		return nil, &Unsupported{"model.end_of_word_suffix", fmt.Sprintf("%q; only none is understood", *m.EndOfWordSuffix)}
	case len(m.Vocab) == 0:
		return nil, &Unsupported{"model.vocab", "is empty"}
	case len(m.Vocab) > maxIDs || len(m.Merges) > maxMerges:
		return nil, &Unsupported{"model", fmt.Sprintf("has %d entries and %d merges, more than %d and %d", len(m.Vocab), len(m.Merges), maxIDs, maxMerges)}
	}
	m.vocab = m.Vocab
	// An id must name one text, or a merge could be taken for another one.
	taken := make(map[uint32]string, len(m.vocab))
	for entry, id := range m.vocab {
		if other, ok := taken[id]; ok {
			return nil, &Unsupported{"model.vocab", fmt.Sprintf("%q and %q have the same id %d", min(entry, other), max(entry, other), id)}
		}
		if id >= maxIDs {
			return nil, &Unsupported{"model.vocab", fmt.Sprintf("%q has id %d, more than %d", entry, id, maxIDs-1)}
		}
		taken[id] = entry
	}
	return &m, nil
}

// checkPlain refuses what a byte-level model has no use for: every byte has
// its entry, so nothing is ever unknown.
func (m *bpeModel) checkPlain() error {
	if m.ByteFallback {
		return &Unsupported{"model.byte_fallback", "is set for a byte-level model"}
	}
	return nil
}

// mergeTable returns the merges by ids.
func (m *bpeModel) mergeTable() (*mergeTable, error) {
	table := newMergeTable(len(m.Merges))
	var joined []byte
	for i, pair := range m.Merges {
		joined = append(append(joined[:0], pair[0]...), pair[1]...)
		left, okLeft := m.vocab[pair[0]]
		right, okRight := m.vocab[pair[1]]
		into, okInto := m.vocab[string(joined)]
		if !okLeft || !okRight || !okInto {
			return nil, &Unsupported{fmt.Sprintf("model.merges[%d]", i), fmt.Sprintf("%q and %q, or what they make, are not in the vocabulary", pair[0], pair[1])}
		}
		table.add(left, right, into)
	}
	return table, nil
}
