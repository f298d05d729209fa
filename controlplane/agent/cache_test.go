package agent

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"warmpath/controlplane/kvevent"
	"warmpath/controlplane/report/message"
	"warmpath/dataplane/index"

	"warmpath/scenariotest"
)

// TestScenarios runs testdata/*.txt: what events make of the live set, and what
// a flush reports of it. See cacheScene.line for the input lines.
func TestScenarios(t *testing.T) {
	scenariotest.RunScenes(t, "testdata/*.txt", func() scenariotest.Scene {
		s := &cacheScene{cache: newCache(20), names: map[uint64]string{}}
		return scenariotest.Scene{Line: s.line, Trace: &s.trace}
	})
}

type cacheScene struct {
	cache *cache
	names map[uint64]string
	trace strings.Builder
}

func (s *cacheScene) hash(name string) uint64 {
	h := uint64(len(s.names) + 1)
	for known, n := range s.names {
		if n == name {
			return known
		}
	}
	s.names[h] = name
	return h
}

// line runs one input line:
//
//	stored [key=value …] BLOCK …       keys: after (parent), medium, group, spec,
//	                                   size (tokens of a block), adapter, salt, remote
//	removed [key=value …] BLOCK …
//	void, flush, counts
func (s *cacheScene) line(text string) error {
	words := strings.Fields(text)
	switch words[0] {
	case "stored", "removed":
		e, err := s.event(words)
		if err != nil {
			return err
		}
		s.cache.apply(&e)
	case "void":
		s.cache.void()
	case "flush":
		s.flush()
	case "counts":
		fmt.Fprintf(&s.trace, "%d live, %+v\n", s.cache.len(), s.cache.counts)
	default:
		return fmt.Errorf("unknown line")
	}
	return nil
}

func (s *cacheScene) event(words []string) (kvevent.Event, error) {
	e := kvevent.Event{Kind: kvevent.Stored, Merged: 1, BlockTokens: 2, Group: kvevent.NotSaid}
	if words[0] == "removed" {
		e.Kind = kvevent.Removed
	}
	for _, word := range words[1:] {
		key, value, isKey := strings.Cut(word, "=")
		if !isKey {
			e.Hashes = append(e.Hashes, s.hash(word))
			for i := range e.BlockTokens {
				e.Tokens = append(e.Tokens, uint32(word[0])*10+uint32(i))
			}
			continue
		}
		switch key {
		case "after":
			e.Parent, e.HasParent = s.hash(value), true
		case "medium":
			e.Medium = map[string]kvevent.Medium{"device": kvevent.Device, "host": kvevent.Host, "disk": kvevent.Disk, "other": kvevent.OtherMedium}[value]
		case "group":
			e.Group, _ = strconv.Atoi(value)
		case "spec":
			e.Spec = map[string]kvevent.Spec{"full": kvevent.SpecFull, "other": kvevent.SpecOther}[value]
		case "size":
			e.BlockTokens, _ = strconv.Atoi(value)
		case "adapter":
			e.Adapter = value
		case "salt":
			e.Salt = value
		case "remote":
			e.Remote = true
		case "ids": // more of them than blocks need
			e.Tokens = append(e.Tokens, 1)
		default:
			return e, fmt.Errorf("unknown key %q", key)
		}
	}
	return e, nil
}

// flush prints what is reported, and checks the digest.
func (s *cacheScene) flush() {
	for tier := range s.cache.shelves {
		shelf := &s.cache.shelves[tier]
		stored, evicted := shelf.flush()
		for _, b := range stored {
			fmt.Fprintf(&s.trace, "%s stored %s", index.Tier(tier), s.names[b.Hash])
			if b.HasParent {
				fmt.Fprintf(&s.trace, " after %s", s.names[b.Parent])
			}
			fmt.Fprintf(&s.trace, " %v", b.Tokens)
			if b.Adapter != "" || b.Salt != "" {
				fmt.Fprintf(&s.trace, " adapter %q salt %q", b.Adapter, b.Salt)
			}
			s.trace.WriteByte('\n')
		}
		var gone []string
		for _, h := range evicted {
			gone = append(gone, s.names[h])
		}
		if slices.Sort(gone); len(gone) > 0 {
			fmt.Fprintf(&s.trace, "%s evicted %s\n", index.Tier(tier), strings.Join(gone, " "))
		}
		var d message.Digest
		for h := range shelf.live {
			d.Add(h)
		}
		if d != shelf.digest {
			fmt.Fprintf(&s.trace, "%s digest is wrong\n", index.Tier(tier))
		}
	}
}
