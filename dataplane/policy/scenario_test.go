package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"warmpath/dataplane/fleet"

	"warmpath/scenariotest"
)

// TestScenarios runs testdata/*.txt. A case is a command with arguments and its
// input lines. Commands:
//
//	fleet                      builds the snapshot that later cases decide on
//	  node NAME key=value …    the next slot; "node -" leaves a slot empty
//	  model NAME nodes=a,b     without a model line, model m has all nodes
//	decide POLICY key=value …  arguments are the policy's parameters
//	  request|inputs key=value …
//	  match|requests|prefill|total NAME=number …
//	  holders NAME …           nodes that hold the prefix key
//	new POLICY key=value …     builds a policy and prints its errors
//	keys POLICY                prints its parameters
func TestScenarios(t *testing.T) {
	scenariotest.RunWith(t, "testdata/*.txt", func() scenariotest.Play {
		w := &world{}
		return func(_ *testing.T, c scenariotest.Case) string { return strings.Join(w.run(c.Input), "\n") }
	})
}

// world is the fleet that a scenario file has built so far.
type world struct {
	snapshot *fleet.Snapshot
	slots    map[string]int
}

func (w *world) run(input []string) []string {
	words := strings.Fields(input[0])
	switch words[0] {
	case "fleet":
		return w.build(input[1:])
	case "decide":
		return w.decide(words[1], words[2:], input[1:])
	case "new":
		if _, err := New(words[1], paramsOf(words[2:])); err != nil {
			return strings.Split(err.Error(), "\n")
		}
		return []string{"ok"}
	case "keys":
		if len(Keys(words[1])) == 0 {
			return []string{"no parameters"}
		}
		var out []string
		for _, k := range Keys(words[1]) {
			out = append(out, fmt.Sprintf("%s %s default=%v: %s", k.Name, k.Kind, k.Default, k.Want()))
		}
		return out
	}
	return []string{"unknown command " + words[0]}
}

func (w *world) build(lines []string) []string {
	w.snapshot, w.slots = &fleet.Snapshot{Default: -1}, map[string]int{}
	var every []int
	for _, line := range lines {
		words := strings.Fields(line)
		name := words[1]
		switch {
		case words[0] == "model":
			w.snapshot.Models = append(w.snapshot.Models, w.model(name, words[2:]))
		case name == "-":
			w.snapshot.Nodes = append(w.snapshot.Nodes, nil)
		default:
			n := nodeOf(name, words[2:])
			n.Slot = len(w.snapshot.Nodes)
			w.slots[name] = n.Slot
			every = append(every, n.Slot)
			w.snapshot.Nodes = append(w.snapshot.Nodes, n)
		}
	}
	if len(w.snapshot.Models) == 0 {
		w.snapshot.Models = []fleet.Model{{Name: "m", Slots: every}}
	}
	w.snapshot.Seal()
	return []string{fmt.Sprintf("%d nodes, %d models", len(every), len(w.snapshot.Models))}
}

func (w *world) model(name string, words []string) fleet.Model {
	m := fleet.Model{Name: name}
	for key, value := range pairs(words) {
		switch key {
		case "mean":
			m.MeanOutput = num(value)
		case "nodes":
			for node := range strings.SplitSeq(value, ",") {
				m.Slots = append(m.Slots, w.slot(node))
			}
			slices.Sort(m.Slots)
		default:
			panic("model key " + key)
		}
	}
	return m
}

func (w *world) slot(name string) int {
	slot, ok := w.slots[name]
	if !ok {
		panic("no node " + name)
	}
	return slot
}

func nodeOf(name string, words []string) *fleet.Node {
	n := &fleet.Node{Name: name, State: fleet.Ready, CapacityClass: 1, Weight: 1, Load: &fleet.Load{}}
	gauges := map[string]*fleet.Gauge{
		"rate": &n.PrefillTokensPerSecond, "decode": &n.DecodeTokensPerSecond, "rtt": &n.RoundTripSeconds,
		"queued": &n.QueuedRequests, "running": &n.RunningRequests, "kv": &n.KVUse,
		"evict": &n.EvictedTokensPerSecond, "errors": &n.ErrorShare, "warmth": &n.Warmth, "proof": &n.Proof,
	}
	numbers := map[string]*int{"cap": &n.MaxInFlight, "len": &n.MaxModelLen, "block": &n.BlockTokens}
	for key, value := range pairs(words) {
		n.Filling = n.Filling || key == "warmth"
		if g := gauges[key]; g != nil {
			*g = known(num(value))
			continue
		}
		if i := numbers[key]; i != nil {
			*i = int(num(value))
			continue
		}
		switch key {
		case "state":
			for n.State = fleet.Joining; n.State.String() != value; n.State++ { // the loop is the search
			}
		case "breaker":
			for n.Breaker = fleet.Closed; n.Breaker.String() != value; n.Breaker++ { // the loop is the search
			}
		case "island":
			n.Island = value
		case "class":
			n.CapacityClass = num(value)
		case "weight":
			n.Weight = num(value)
		case "cache":
			n.CacheTokens = int64(num(value))
		default:
			panic("node key " + key)
		}
	}
	return n
}

func (w *world) decide(name string, args, lines []string) []string {
	p, err := New(name, paramsOf(args))
	if err != nil {
		return strings.Split(err.Error(), "\n")
	}
	n := len(w.snapshot.Nodes)
	req := &Request{PromptTokens: 1000, OutputTokens: -1}
	match := &Match{Tokens: make([]uint32, n), PrefixHolder: make([]bool, n)}
	loads := &Loads{Requests: make([]int64, n), PrefillTokens: make([]int64, n), TotalTokens: make([]int64, n)}
	in, out := &Inputs{}, &Decision{}
	for _, line := range lines {
		words := strings.Fields(line)
		if words[0] == "holders" {
			for _, node := range words[1:] {
				match.PrefixHolder[w.slot(node)] = true
			}
			continue
		}
		for key, value := range pairs(words[1:]) {
			switch words[0] {
			case "request":
				w.request(req, key, value)
			case "inputs":
				inputs(in, key, value)
			case "match":
				match.Tokens[w.slot(key)] = uint32(num(value))
			case "requests":
				loads.Requests[w.slot(key)] = int64(num(value))
			case "prefill":
				loads.PrefillTokens[w.slot(key)] = int64(num(value))
			case "total":
				loads.TotalTokens[w.slot(key)] = int64(num(value))
			default:
				panic("line " + words[0])
			}
		}
	}
	p.Prepare(w.snapshot).Decide(req, match, loads, in, out)
	return w.trace(out)
}

func (w *world) request(req *Request, key, value string) {
	switch key {
	case "model":
		req.Model = w.snapshot.ModelIndex([]byte(value))
	case "island":
		req.Island = value
	case "prompt":
		req.PromptTokens = int(num(value))
	case "output":
		req.OutputTokens = int(num(value))
	case "affinity":
		req.AffinityKey = uint64(num(value))
	case "system":
		req.SystemKey = uint64(num(value))
	case "session":
		req.SessionKey = uint64(num(value))
	case "prefix":
		req.PrefixKey = uint64(num(value))
	default:
		panic("request key " + key)
	}
}

func inputs(in *Inputs, key, value string) {
	switch key {
	case "cursor":
		in.Cursor = uint64(num(value))
	case "rand":
		r, err := strconv.ParseUint(value, 0, 64)
		if err != nil {
			panic(err)
		}
		in.Rand = r
	case "pressure":
		in.Pressure = num(value)
	default:
		panic("input " + key)
	}
}

func (w *world) trace(d *Decision) []string {
	if d.Slot < 0 {
		return []string{fmt.Sprintf("no node too_long=%v", d.TooLong)}
	}
	out := []string{fmt.Sprintf("%s reason=%s", w.snapshot.Nodes[d.Slot].Name, d.Reason)}
	for _, c := range d.Candidates {
		line := fmt.Sprintf("  %s score=%.6g matched=%d in_flight=%d", w.snapshot.Nodes[c.Slot].Name, c.Score, c.MatchedTokens, c.InFlight)
		if c.Group > 0 {
			line += fmt.Sprintf(" group=%d", c.Group)
		}
		out = append(out, line)
	}
	return out
}

// pairs splits key=value words.
func pairs(words []string) map[string]string {
	m := make(map[string]string, len(words))
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			panic("want key=value, have " + word)
		}
		m[key] = value
	}
	return m
}

// paramsOf gives values the types that a YAML decoder would.
func paramsOf(words []string) Params {
	params := Params{}
	for key, value := range pairs(words) {
		if i, err := strconv.ParseInt(value, 10, 64); err == nil {
			params[key] = i
		} else if f, err := strconv.ParseFloat(value, 64); err == nil {
			params[key] = f
		} else if b, err := strconv.ParseBool(value); err == nil {
			params[key] = b
		} else {
			params[key] = value
		}
	}
	return params
}

func num(text string) float64 {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err)
	}
	return v
}
