package engine

import (
	"net/url"
	"strings"
)

// narrow asks an engine for those metrics alone that its table names: a twentieth of
// the text, and of what it costs the engine to write and the router to read it. That
// it says the same is seen, never assumed: what it lacks of the whole text would be
// unknown. So the whole text comes first, and again and again, and an engine whose
// narrow text has less is asked for the whole from then on.
type narrow struct {
	engine string // whose table it is; "" = the whole text is asked for
	last   Sample // the whole text's
	asked  string // the query

	left    int // questions until the whole is asked for again
	refused int // whole texts until it is tried again
}

const (
	narrowWorth = 8 << 10 // a text that is shorter is not worth two questions
	narrowTurns = 60      // whole texts are asked for as rarely as models
	narrowPause = 600     // … after it was refused
)

// due reports whether it is to be tried now.
func (n *narrow) due() bool {
	if n.left == 0 {
		return false
	}
	n.left--
	return true
}

// whole takes a whole text's sample.
func (n *narrow) whole(sample Sample, size int) {
	d := byName(sample.Engine)
	if n.refused > 0 {
		n.refused--
	}
	if d == nil || d.narrowPath == "" || size < narrowWorth || n.refused > 0 {
		n.engine, n.left = "", 0
		return
	}
	if n.engine != d.name {
		n.asked = ""
	}
	n.engine, n.last, n.left = d.name, sample, narrowTurns-1
}

// take reports whether a narrow text's sample will do.
func (n *narrow) take(sample Sample, err error) bool {
	if err == nil && says(sample, n.last) {
		return true
	}
	n.engine, n.left = "", 0
	if err == nil || sample.Engine != "" {
		n.refused = narrowPause
	} else {
		n.refused = narrowTurns // it may have been the connection's fault
	}
	return false
}

// says reports whether a sample knows all that another one does.
func says(s, other Sample) bool {
	if s.Engine != other.Engine || s.BlockTokens != other.BlockTokens || s.CacheTokens != other.CacheTokens || s.Ranks != other.Ranks {
		return false
	}
	is, was := s.gauges(), other.gauges()
	for i := range is {
		if was[i] && !is[i] {
			return false
		}
	}
	return true
}

// gauges is which of them are known.
func (s *Sample) gauges() [9]bool {
	return [...]bool{
		s.Queued.Known, s.Running.Known, s.KVUse.Known, s.HitTokens.Known, s.QueryTokens.Known,
		s.PromptTokens.Known, s.GeneratedTokens.Known, s.Preemptions.Known, s.StartSeconds.Known,
	}
}

// query names all metrics of a table, under each name that they have had.
func (n *narrow) query(d *dialect) string {
	if n.asked == "" {
		names := url.Values{}
		add := func(name string) { names.Add("name[]", name) }
		add(startName)
		for f, all := range d.names {
			for _, name := range all {
				add(d.prefix + name)
				if counters[f] {
					add(d.prefix + name + "_total")
				}
			}
		}
		n.asked = "?" + strings.ReplaceAll(names.Encode(), "+", "%20")
	}
	return n.asked
}
