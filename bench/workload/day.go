package workload

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Day describes synthetic load: conversations that begin at random, as many as the
// time of day says, and whose turns extend each other. See NewDay for a usual one.
type Day struct {
	Name          string
	Seed          uint64
	Hours         float64
	MeasureHours  float64 // from the start, before which nothing is measured
	PeakPerSecond float64 // requests, at the highest of the shape and without noise
	PeakToTrough  float64 // 1 = the shape is flat
	NoiseSigma    float64 // of the logarithm of what the shape is multiplied by …
	NoiseSeconds  float64 // … in which it forgets itself, by e
	Changes       []Change

	Systems       int     // system prompts, of 512 to 2,048 tokens
	Turns         float64 // of a conversation, mean
	ThinkSeconds  float64 // from an answer to the next turn, mean
	First, Follow Lengths // of what the user says at first, and then
	Answer        Lengths
}

// Lengths are lognormal, in tokens, within bounds.
type Lengths struct {
	Median, Sigma float64
	Most          int32
}

// Change multiplies the load for a time, unforeseen. To is where it ends; 0 = never.
type Change struct {
	Name     string
	From, To float64 // hours
	By       float64
}

// NewDay is a day with two humps whose peak is 6 times its trough, of conversations
// about some documents: with the physics of virtual.Config, its peak takes some 18
// nodes.
func NewDay(name string, seed uint64) Day {
	return Day{
		Name: name, Seed: seed, Hours: 24, PeakPerSecond: 50, PeakToTrough: 6,
		Systems: 6, Turns: 2.5, ThinkSeconds: 30,
		First: Lengths{1750, .5, 4800}, Follow: Lengths{300, .8, 3000}, Answer: Lengths{200, .7, 2000},
	}
}

func (l *Lengths) draw(r *rand.Rand) int32 {
	return min(l.Most, max(1, int32(l.Median*math.Exp(l.Sigma*r.NormFloat64()))))
}

// Make draws the load.
func (d Day) Make() *Workload {
	m := maker{d: d, r: rand.New(rand.NewPCG(d.Seed, 0xda7)), w: &Workload{
		Name: d.Name, SpanNs: int64(d.Hours * 3600e9), MeasureNs: int64(d.MeasureHours * 3600e9), Contents: 1,
	}}
	for _, c := range d.Changes {
		m.w.Marks = append(m.w.Marks, Mark{int64(c.From * 3600e9), c.Name})
		if c.To > 0 {
			m.w.Marks = append(m.w.Marks, Mark{int64(c.To * 3600e9), "end of " + c.Name})
		}
	}
	m.systems()
	m.conversations()
	m.w.sort()
	return m.w
}

// maker is one Make in progress.
type maker struct {
	d       Day
	r       *rand.Rand
	w       *Workload
	system  [][]uint32 // contents of the full blocks of each …
	lengths []int32    // … and its tokens
}

func (m *maker) systems() {
	for range max(1, m.d.Systems) {
		tokens := int32(512 + m.r.IntN(1537))
		m.lengths = append(m.lengths, tokens)
		m.system = append(m.system, m.contents(int(tokens)/BlockTokens))
	}
}

// contents makes numbers that were not used yet.
func (m *maker) contents(n int) []uint32 {
	list := make([]uint32, n)
	for i := range list {
		list[i] = uint32(m.w.Contents)
		m.w.Contents++
	}
	return list
}

// leadSeconds is how long before the start conversations begin, so that the load is
// in full swing at once.
const leadSeconds = 300

// conversations begins as many in each second as the load says, and keeps of each
// turn what falls into the span.
func (m *maker) conversations() {
	most := 1.0
	for _, c := range m.d.Changes {
		most = max(most, c.By)
	}
	noise, keep := 0.0, 0.0
	if m.d.NoiseSeconds > 0 {
		keep = math.Exp(-1 / m.d.NoiseSeconds)
		noise = m.d.NoiseSigma * m.r.NormFloat64()
	}
	for second := -leadSeconds; second < int(m.d.Hours*3600); second++ {
		perSecond := m.d.PeakPerSecond * m.shape(float64(second)) * most / m.d.Turns
		if m.d.NoiseSigma > 0 {
			perSecond *= math.Exp(noise - m.d.NoiseSigma*m.d.NoiseSigma/2)
			noise = noise*keep + m.d.NoiseSigma*math.Sqrt(1-keep*keep)*m.r.NormFloat64()
		}
		for range poisson(m.r, perSecond) {
			m.converse(float64(second)+m.r.Float64(), most)
		}
	}
}

// shape is the load at a time against the peak's: a sine of a day and one of half a
// day, lowest after 23 minutes and highest after 15 hours.
func (m *maker) shape(second float64) float64 {
	if m.d.PeakToTrough <= 1 {
		return 1
	}
	const low, high = -.8681, 1.2822 // of what follows
	day := 2 * math.Pi * second / 86400
	wave := math.Sin(day-2.3) + .3*math.Sin(2*day-.4)
	trough := 1 / m.d.PeakToTrough
	return trough + (1-trough)*(wave-low)/(high-low)
}

// converse draws one conversation. A change of the load keeps or drops each turn by
// its time and the conversation's own lot: so the load is at its new level at once,
// with conversations that are in their midst.
func (m *maker) converse(start, most float64) {
	which := m.r.IntN(len(m.system))
	turns := 1
	for m.r.Float64() > 1/m.d.Turns && turns < 20 {
		turns++
	}
	lot, key := m.r.Float64()*most, m.r.Uint64()|1
	prompts, outputs, at := make([]int32, turns), make([]int32, turns), make([]float64, turns)
	length, now := m.lengths[which], start
	for t := range turns {
		said := &m.d.Follow
		if t == 0 {
			said = &m.d.First
		}
		length += said.draw(m.r)
		prompts[t], outputs[t], at[t] = length, m.d.Answer.draw(m.r), now
		length += outputs[t]
		now += float64(outputs[t])*.02 + m.d.ThinkSeconds*m.r.ExpFloat64()
	}
	contents := m.system[which]
	if turns > 1 { // what is asked for again: all up to the end of the answer before the last
		whole := int(prompts[turns-2]+outputs[turns-2]) / BlockTokens
		contents = slices.Concat(contents, m.contents(whole-len(contents)))
	}
	for t := range turns {
		ns := int64(at[t] * 1e9)
		if at[t] < 0 || ns >= m.w.SpanNs || lot >= m.by(at[t]) {
			continue
		}
		full := int(prompts[t]+outputs[t]) / BlockTokens
		m.w.Requests = append(m.w.Requests, Request{ns, prompts[t], outputs[t], key, contents[:min(full, len(contents))]})
	}
}

// by is what the load is multiplied by at a time.
func (m *maker) by(second float64) float64 {
	by := 1.0
	for _, c := range m.d.Changes {
		if second >= c.From*3600 && (c.To == 0 || second < c.To*3600) {
			by *= c.By
		}
	}
	return by
}

// poisson draws a number of events by their mean, by Knuth's method for small means
// and in parts for large ones.
func poisson(r *rand.Rand, mean float64) int {
	n := 0
	for mean > 0 {
		part := min(mean, 20)
		mean -= part
		for p, limit := r.Float64(), math.Exp(-part); p > limit; p *= r.Float64() {
			n++
		}
	}
	return n
}
