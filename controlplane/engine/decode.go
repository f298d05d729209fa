package engine

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
)

// Bounds of what is read from an engine.
const (
	MaxMetricsBytes = 8 << 20  // of a metrics text
	maxLineBytes    = 64 << 10 // of one line that carries a wanted metric
)

// ErrTooLarge says that an engine's answer is longer than its cap.
var ErrTooLarge = errors.New("answer is too large")

// ErrNoMetrics says that a text carries nothing of the dialect it was read by,
// or that the dialect has no metrics text at all.
var ErrNoMetrics = errors.New("no metrics of a known engine")

// Decode reads a metrics text (Prometheus text format 0.0.4). engineName is
// the dialect to read it by; Auto and "" find it out from the metric names.
// AtNs of the Sample is left 0 for the caller, who has the clock. The error is
// ErrNoMetrics or ErrTooLarge (wrapped), a fault in a line that matters, or
// what r returned. Lines that do not matter are not looked at.
func Decode(engineName string, r io.Reader) (Sample, error) {
	if !Known(engineName) {
		return Sample{}, fmt.Errorf("decode metrics: %q is no engine; use %s", engineName, strings.Join(Names(), ", "))
	}
	lines := linePool.Get().(*lineReader)
	defer lines.release()
	text, err := lines.choose(r)
	if err != nil {
		return Sample{}, fmt.Errorf("decode metrics: %w", err)
	}
	return decode(engineName, text)
}

// decodeText is Decode of a text that is in memory.
func decodeText(engineName string, text []byte) (Sample, error) {
	lines := linePool.Get().(*lineReader)
	defer lines.release()
	chosen, err := lines.chooseOf(text)
	if err != nil {
		return Sample{}, fmt.Errorf("decode metrics: %w", err)
	}
	return decode(engineName, chosen)
}

// decode reads chosen lines.
func decode(engineName string, lines []byte) (Sample, error) {
	families := familyPool.Get().(*families)
	defer familyPool.Put(families)
	if err := families.read(lines); err != nil {
		return Sample{}, fmt.Errorf("decode metrics: %w", err)
	}
	d := byName(engineName)
	if d == nil && engineName != OpenAI {
		d = detect(families)
	}
	if d == nil || d.count(families) == 0 {
		if engineName == "" {
			engineName = Auto
		}
		return Sample{}, fmt.Errorf("decode metrics as %q: %w", engineName, ErrNoMetrics)
	}
	return d.sample(families), nil
}

// detect picks the dialect that names the most of a text.
func detect(f *families) *dialect {
	var best *dialect
	most := 0
	for _, d := range dialects {
		if n := d.count(f); n > most {
			best, most = d, n
		}
	}
	return best
}

// count says how many fields of d a text carries.
func (d *dialect) count(families *families) int {
	n := 0
	for f := range fieldCount {
		if d.find(families, f) != nil {
			n++
		}
	}
	return n
}

// lineReader chooses the lines of a text that some table wants. A text has
// hundreds of histogram lines that nobody reads, and one strange line among
// them must not cost the rest.
type lineReader struct {
	in  *bufio.Reader
	out bytes.Buffer
}

var linePool = sync.Pool{New: func() any { return &lineReader{in: bufio.NewReaderSize(nil, maxLineBytes)} }}

// release gives l back to the pool, unless one huge text made it huge.
func (l *lineReader) release() {
	if l.out.Cap() <= 1<<20 {
		linePool.Put(l)
	}
}

// choose returns the chosen lines, which are valid until the next call.
func (l *lineReader) choose(r io.Reader) ([]byte, error) {
	limited := &io.LimitedReader{R: r, N: MaxMetricsBytes + 1}
	l.in.Reset(limited)
	defer l.in.Reset(nil)
	l.out.Reset()
	for {
		line, err := l.in.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		if isWanted(line) {
			if long {
				return nil, fmt.Errorf("line of %q is longer than %d bytes: %w", metricName(line), maxLineBytes, ErrTooLarge)
			}
			l.take(line)
		}
		for long { // the rest of a line nobody wants
			_, err = l.in.ReadSlice('\n')
			long = errors.Is(err, bufio.ErrBufferFull)
		}
		if limited.N <= 0 {
			return nil, fmt.Errorf("more than %d bytes: %w", MaxMetricsBytes, ErrTooLarge)
		}
		if errors.Is(err, io.EOF) {
			return l.out.Bytes(), nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// chooseOf is choose of a text that is in memory.
func (l *lineReader) chooseOf(text []byte) ([]byte, error) {
	if len(text) > MaxMetricsBytes {
		return nil, fmt.Errorf("more than %d bytes: %w", MaxMetricsBytes, ErrTooLarge)
	}
	l.out.Reset()
	for len(text) > 0 {
		line := text
		if end := bytes.IndexByte(text, '\n'); end >= 0 {
			line = text[:end+1]
		}
		text = text[len(line):]
		if !isWanted(line) {
			continue
		}
		if len(line) > maxLineBytes {
			return nil, fmt.Errorf("line of %q is longer than %d bytes: %w", metricName(line), maxLineBytes, ErrTooLarge)
		}
		l.take(line)
	}
	return l.out.Bytes(), nil
}

func (l *lineReader) take(line []byte) {
	l.out.Write(bytes.TrimRight(line, "\r\n"))
	l.out.WriteByte('\n')
}

// isWanted reports whether a line is of a metric that some table names. Most are
// not, as a few of their letters tell.
func isWanted(line []byte) bool {
	if len(line) > looked && line[0] != ' ' && line[0] != '\t' {
		for i := range looked {
			if !wantedLetters[i][line[i]] {
				return false
			}
		}
	}
	_, ok := wanted[string(metricName(line))]
	return ok
}

// looked is how many of a line's letters wantedLetters tells of.
const looked = 9

// wantedLetters says which letters names that are wanted have at each place; any, behind
// the end of the shortest. Written once, at start.
var wantedLetters = func() (all [looked][256]bool) {
	for name := range wanted {
		for i := range looked {
			if i < len(name) {
				all[i][name[i]] = true
				continue
			}
			for letter := range all[i] {
				all[i][letter] = true
			}
		}
	}
	return all
}()

// metricName cuts the name from the start of a line: it ends where the
// characters end that a name may have, as it does for the parser.
func metricName(line []byte) []byte {
	if len(line) > 0 && (line[0] == ' ' || line[0] == '\t') {
		line = bytes.TrimLeft(line, " \t")
	}
	for i, c := range line {
		if c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || c == '_' || c == ':' {
			continue
		}
		return line[:i]
	}
	return line
}
