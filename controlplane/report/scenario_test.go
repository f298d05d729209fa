package report

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"warmpath/controlplane/report/message"
	"warmpath/dataplane/index"
	"warmpath/dataplane/prefix"

	"warmpath/scenariotest"
)

// TestScenarios runs testdata/*.txt; see scene.line for the input lines.
func TestScenarios(t *testing.T) {
	scenariotest.RunScenes(t, "testdata/*.txt", func() scenariotest.Scene {
		s := newScene()
		return scenariotest.Scene{Line: s.line, Trace: &s.trace}
	})
}

// scene is a router's end of the protocol: streams of one worker, a Placer, and
// an index.
type scene struct {
	target  Target
	streams map[int]*stream
	placer  *Placer
	index   *twin
	nowNs   int64
	unit    int
	fails   bool // the index does not answer
	names   map[uint64]string
	trace   strings.Builder
}

func newScene() *scene {
	s := &scene{target: Target{Slot: 4, Generation: 1, Ranks: 2, Model: "m"}, names: map[uint64]string{}, unit: 16}
	s.restart()
	return s
}

// restart is the router's.
func (s *scene) restart() {
	s.streams, s.index = map[int]*stream{}, newTwin()
	s.placer = NewPlacer(s.index, func(string) (uint64, int) { return 7, s.unit })
}

// hashOf names a block: its letters' hash, so that traces can name it again.
func (s *scene) hashOf(name string) uint64 {
	h := uint64(prefix.NextUnit(1, nil, []byte(name)))
	s.names[h] = name
	return h
}

// idsOf are the tokens of a block.
func idsOf(name string, n int) []uint32 {
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(name[0])*1000 + uint32(len(name))*100 + uint32(i)
	}
	return ids
}

// block reads "B<A" (B follows A), "A" (at the root), or with a size "B:8<A"
// (of 8 tokens, of 16 by default; 0: tokens unknown).
func (s *scene) block(text string) message.Block {
	text, parent, follows := strings.Cut(text, "<")
	name, size, sized := strings.Cut(text, ":")
	n := 16
	if sized {
		n, _ = strconv.Atoi(size)
	}
	b := message.Block{Hash: s.hashOf(name), Tokens: idsOf(name, n), BlockTokens: n}
	if follows {
		b.Parent, b.HasParent = s.hashOf(parent), true
	}
	return b
}

// line runs one input line:
//
//	at 5s                              moves the clock
//	stored|evict|sync [key=value …] [BLOCK …]
//	       a report; keys: epoch seq rank tier part parts; a sync has digest,
//	       full or blocks as a word before its blocks; minimal for a report
//	       without epoch and seq
//	sent BLOCK …                       a prompt goes to the node (its reporter is minimal)
//	restart                            the router restarts
//	tenant N                           the slot has another tenant
//	scheme NAME, unit N                the node's hash scheme; tokens of a unit
//	index breaks|full|works            whether the indexer answers, and has room
//	holds, match BLOCK …, trust        print
func (s *scene) line(text string) error {
	words := strings.Fields(text)
	switch words[0] {
	case "at":
		d, err := time.ParseDuration(words[1])
		s.nowNs = int64(d)
		for _, st := range s.streams {
			st.expire(s.nowNs)
		}
		return err
	case "stored", "evict", "sync":
		return s.report(words)
	case "sent":
		chain, ids := s.chain(words[1:])
		fmt.Fprintf(&s.trace, "%d units\n", s.placer.Noted(Scheme{Name: s.target.Scheme, PrefixTokens: 32, BlockTokens: 16}, Sent{
			Slot: s.target.Slot, IDs: ids, Chain: chain, UnitTokens: s.unit,
		}))
	case "restart":
		s.restart()
	case "tenant":
		n, err := strconv.Atoi(words[1])
		s.target.Generation = uint32(n)
		s.index.Clear(s.target.Slot)
		s.placer.Forget(s.target.Slot)
		return err
	case "scheme":
		s.target.Scheme = words[1]
	case "unit":
		n, err := strconv.Atoi(words[1])
		s.unit, s.target.UnitTokens = n, n
		return err
	case "index":
		s.fails, s.index.full = words[1] == "breaks", words[1] == "full"
	case "holds":
		s.holds()
	case "match":
		chain, _ := s.chain(words[1:])
		fmt.Fprintf(&s.trace, "%d of %d units\n", s.index.match(s.target.Slot, chain), len(chain))
	case "trust":
		for rank := range s.target.Ranks {
			if st := s.streams[rank]; st != nil {
				fmt.Fprintf(&s.trace, "rank %d %s\n", rank, st.trust(s.nowNs))
			}
		}
	default:
		return fmt.Errorf("unknown line %q", text)
	}
	return nil
}

// chain is that of a prompt made of blocks, and its tokens.
func (s *scene) chain(blocks []string) (chain []prefix.Hash, ids []uint32) {
	for _, text := range blocks {
		name, size, sized := strings.Cut(text, ":")
		n := 16
		if sized {
			n, _ = strconv.Atoi(size)
		}
		ids = append(ids, idsOf(name, n)...)
	}
	at := prefix.ChainStart(7, []byte("m"), nil, nil)
	for rest := ids; len(rest) >= s.unit; rest = rest[s.unit:] {
		at = prefix.NextUnit(at, rest[:s.unit], nil)
		chain = append(chain, at)
	}
	return chain, ids
}

func (s *scene) report(words []string) error {
	r := &message.Report{Route: map[string]message.Route{"stored": message.Stored, "evict": message.Eviction, "sync": message.Sync}[words[0]], WorkerID: "w", Epoch: "e1", Part: 1, Parts: 1}
	what := ""
	var hashes []uint64
	for _, word := range words[1:] {
		key, value, isKey := strings.Cut(word, "=")
		switch {
		case isKey:
			if err := s.field(r, key, value); err != nil {
				return err
			}
		case word == "digest" || word == "full" || word == "blocks":
			what = word
		case word == "minimal":
			r.Epoch = ""
		case r.Route == message.Stored || what == "blocks":
			r.Blocks = append(r.Blocks, s.block(word))
		case s.target.Scheme == SchemePrefix && r.Epoch == "":
			_, ids := s.chain(strings.Split(word, ","))
			d, _ := PrefixDigest(ids, 32, nil)
			r.Evicted.Long, r.Active.Long = append(r.Evicted.Long, d), append(r.Active.Long, d)
		case s.target.Scheme != "" && r.Epoch == "": // the last block of a prompt
			_, ids := s.chain(strings.Split(word, ","))
			scheme := Scheme{Name: s.target.Scheme, BlockTokens: 16}
			list, _ := scheme.names(nil, &Sent{IDs: ids, Chain: make([]prefix.Hash, len(ids)/16), UnitTokens: 16}, nil)
			hashes = append(hashes, list[len(list)-1].hash)
		default:
			hashes = append(hashes, s.hashOf(word))
		}
	}
	r.Full = what == "full" || r.Minimal() && r.Route == message.Sync
	r.HasDigest = what == "digest"
	for _, h := range hashes {
		r.Digest.Add(h)
	}
	r.Evicted.Short, r.Active.Short = hashes, hashes
	s.say(s.apply(r))
	return nil
}

func (s *scene) field(r *message.Report, key, value string) (err error) {
	switch key {
	case "epoch":
		r.Epoch = value
	case "tier":
		r.Tier = map[string]index.Tier{"device": index.Device, "host": index.Host, "disk": index.Disk}[value]
	case "seq":
		r.Seq, err = strconv.ParseUint(value, 10, 64)
	case "rank":
		r.Rank, err = strconv.Atoi(value)
	case "part":
		r.Part, err = strconv.Atoi(value)
	case "parts":
		r.Parts, err = strconv.Atoi(value)
	default:
		err = fmt.Errorf("unknown key %q", key)
	}
	return err
}

// apply is what Server does with a report.
func (s *scene) apply(r *message.Report) (message.Answer, error) {
	st := s.streams[r.Rank]
	if st == nil {
		st = &stream{}
	}
	w, err := st.take(s.nowNs, s.target, r, 100)
	if err != nil {
		return message.Answer{}, err
	}
	s.streams[r.Rank] = st
	if w.batch == nil {
		return w.answer, nil
	}
	if s.fails {
		st.failed(&w)
		return message.Answer{}, errors.New("busy")
	}
	return st.done(s.nowNs, &w, s.placer.Apply(w.batch)), nil
}

func (s *scene) say(a message.Answer, err error) {
	if err != nil {
		var r *refusal
		if errors.As(err, &r) {
			fmt.Fprintf(&s.trace, "%d %v\n", r.status, r)
		} else {
			fmt.Fprintf(&s.trace, "%v\n", err)
		}
		return
	}
	fmt.Fprintf(&s.trace, "ok seq %d", a.Seq)
	if a.Want != "" {
		fmt.Fprintf(&s.trace, ", want %s", a.Want)
	}
	if len(a.WantBlocks) > 0 {
		fmt.Fprintf(&s.trace, ", want blocks %s", s.nameAll(a.WantBlocks))
	}
	s.trace.WriteByte('\n')
}

func (s *scene) nameAll(hashes []uint64) string {
	var list []string
	for _, h := range hashes {
		list = append(list, s.names[h])
	}
	return strings.Join(list, " ")
}

// holds prints what the index has, and what is held beside it in brackets.
func (s *scene) holds() {
	for slot := s.target.Slot; slot < s.target.Slot+s.target.Ranks; slot++ {
		for tier := range index.Tier(index.Tiers) {
			var list []string
			for h, b := range s.index.blocks[shelf{slot, tier}] {
				name := s.names[h]
				if name == "" {
					name = "prompt"
				}
				if b.refs > 1 {
					name += "×" + strconv.Itoa(b.refs)
				}
				list = append(list, name)
			}
			if a := s.placer.aside[shelf{slot, tier}]; a != nil {
				for h := range a.entries {
					list = append(list, "["+s.names[h]+"]")
				}
			}
			slices.Sort(list)
			if len(list) > 0 {
				fmt.Fprintf(&s.trace, "rank %d %s: %s\n", slot-s.target.Slot, tier, strings.Join(list, " "))
			}
		}
	}
}
