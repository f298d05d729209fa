package engine

import (
	"bytes"
	"math"
	"strconv"
	"sync"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// pair is a label.
type pair struct{ name, value []byte }

// series is one line of a text. Its labels are borrowed from the text.
type series struct {
	labels []pair
	value  float64
}

// families are the lines of a text that are wanted, by the number of their name.
type families struct {
	by    [][]series
	pairs []pair // of all labels
}

var familyPool = sync.Pool{New: func() any { return &families{by: make([][]series, len(wanted))} }}

// of returns the lines of a name.
func (f *families) of(number int) []series { return f.by[number] }

func (f *families) reset() {
	for i := range f.by {
		f.by[i] = f.by[i][:0]
	}
	f.pairs = f.pairs[:0]
}

// read takes lines of wanted names, each of which ends with a newline. Engines write
// them in one way, of the many that the format has: what is written otherwise is
// left to the format's own parser.
func (f *families) read(lines []byte) error {
	f.reset()
	for rest := lines; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 || !f.plain(rest[:end]) {
			return f.parse(lines)
		}
		rest = rest[end+1:]
	}
	return nil
}

// plain takes a line of the usual form, name{label="value",…} 1.5 or name 1.5, and
// reports whether it was one.
func (f *families) plain(line []byte) bool {
	name := metricName(line)
	number, ok := wanted[string(name)]
	rest := line[len(name):]
	if !ok || len(rest) == 0 || !bytes.HasPrefix(line, name) {
		return false
	}
	first := len(f.pairs)
	if rest[0] == '{' {
		if rest, ok = f.labels(rest[1:]); !ok {
			return false
		}
	}
	if len(rest) < 2 || rest[0] != ' ' {
		return false
	}
	for _, c := range rest[1:] {
		if (c < '0' || c > '9') && c != '.' && c != '+' && c != '-' && c != 'e' && c != 'E' {
			return false
		}
	}
	value, err := strconv.ParseFloat(string(rest[1:]), 64)
	if err != nil {
		return false
	}
	f.by[number] = append(f.by[number], series{f.pairs[first:len(f.pairs):len(f.pairs)], value})
	return true
}

// labels takes labels up to the closing brace and returns what is behind it.
func (f *families) labels(rest []byte) ([]byte, bool) {
	first := len(f.pairs)
	for {
		equals := bytes.IndexByte(rest, '=')
		if equals < 1 || !isLabelName(rest[:equals]) || len(rest) < equals+2 || rest[equals+1] != '"' {
			return nil, false
		}
		name := rest[:equals]
		rest = rest[equals+2:]
		quote := bytes.IndexByte(rest, '"')
		if quote < 0 || len(rest) < quote+2 {
			return nil, false
		}
		value := rest[:quote]
		for _, c := range value {
			if c < ' ' || c > '~' || c == '\\' {
				return nil, false
			}
		}
		for _, other := range f.pairs[first:] {
			if bytes.Equal(other.name, name) {
				return nil, false
			}
		}
		f.pairs = append(f.pairs, pair{name, value})
		switch rest = rest[quote+1:]; rest[0] {
		case ',':
			rest = rest[1:]
		case '}':
			return rest[1:], true
		default:
			return nil, false
		}
	}
}

// isLabelName reports whether a name is one of a label, and none of those that the
// format gives a meaning.
func isLabelName(name []byte) bool {
	for i, c := range name {
		if c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' || i > 0 && c >= '0' && c <= '9' {
			continue
		}
		return false
	}
	return string(name) != model.MetricNameLabel
}

// parse takes lines by the format's own parser.
func (f *families) parse(lines []byte) error {
	f.reset()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	all, err := parser.TextToMetricFamilies(bytes.NewReader(lines))
	if err != nil {
		return err
	}
	f.take(all)
	return nil
}

// take takes what a parser has read.
func (f *families) take(all map[string]*dto.MetricFamily) {
	f.reset()
	for name, number := range wanted {
		for _, m := range all[name].GetMetric() {
			s := series{value: valueOf(m)}
			for _, l := range m.GetLabel() {
				s.labels = append(s.labels, pair{[]byte(l.GetName()), []byte(l.GetValue())})
			}
			f.by[number] = append(f.by[number], s)
		}
	}
}

// valueOf reads a sample, whatever type its text declares. Only lines without
// their TYPE comments are parsed, so all are untyped; the rest is for a caller
// that parsed whole texts.
func valueOf(m *dto.Metric) float64 {
	switch {
	case m.Untyped != nil:
		return m.Untyped.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Counter != nil:
		return m.Counter.GetValue()
	}
	return math.NaN()
}
