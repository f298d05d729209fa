package tokenbench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"warmpath/bench/machine"
	"warmpath/controlplane/exact"
	"warmpath/dataplane/tokenize"
)

// Options of a measurement. The zero value of a field is its default.
type Options struct {
	Model    string        // folder with tokenizer.json and tokenizer_config.json; default .cache/models/qwen3
	Runs     int           // of each subject; default 5
	Duration time.Duration // of a run; default 300 ms
	Commit   string        // of the program that measures
}

func (o *Options) complete() {
	if o.Model == "" {
		o.Model = filepath.Join(".cache", "models", "qwen3")
	}
	if o.Runs <= 0 {
		o.Runs = 5
	}
	if o.Duration <= 0 {
		o.Duration = 300 * time.Millisecond
	}
}

// Result is one line of the output. What a subject does not measure is left
// out. Times are medians of the runs.
type Result struct {
	Subject     string  `json:"subject"`
	Model       string  `json:"model"` // the folder's name
	Bytes       int     `json:"bytes"`
	Tokens      int     `json:"tokens"`
	NsPerOp     float64 `json:"ns_per_op"`
	NsMin       float64 `json:"ns_min"`
	NsMax       float64 `json:"ns_max"`
	MBPerS      float64 `json:"mb_per_s"`
	AllocsPerOp float64 `json:"allocs_per_op"`
	Peer        string  `json:"peer,omitempty"`
	PeerNsPerOp float64 `json:"peer_ns_per_op,omitempty"` // for the same text, in the same run
	TimesFaster float64 `json:"times_faster,omitempty"`   // peer_ns_per_op ÷ ns_per_op
	Steal       float64 `json:"steal_percent"`            // of processor time: what the machine's host took
	Commit      string  `json:"commit,omitempty"`
}

// ErrNoModel says that there is nothing to measure with.
var ErrNoModel = errors.New("no tokenizer: make models fetches those of ten models")

// Measure prints what was measured to out.
func Measure(ctx context.Context, o Options, out io.Writer) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	o.complete()
	m := &measurement{Options: o, encoder: json.NewEncoder(out)}
	if err := m.load(); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{m.appends, m.letter, m.walks} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("measure tokens: %w", err)
		}
	}
	return nil
}

type measurement struct {
	Options
	encoder *json.Encoder
	texts   texts
	file    []byte // tokenizer.json
	tok     *tokenize.Tokenizer
	loaded  *exact.Loaded
	peer    func(text string) (tokens int) // nil without the library
}

// load reads the texts and the tokenizer.
func (m *measurement) load() (err error) {
	path := filepath.Join(m.Model, "tokenizer.json")
	if m.file, err = os.ReadFile(path); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: %w", path, ErrNoModel)
	} else if err != nil {
		return err
	}
	if m.texts, err = loadTexts(); err != nil {
		return err
	}
	if m.tok, err = tokenize.Load(m.file); err != nil {
		return fmt.Errorf("load %s: %w", path, err)
	}
	if m.loaded, err = exact.Load(exact.Source{Model: "m", Tokenizer: path}); err != nil {
		return err
	}
	if m.loaded.Partly != "" {
		return fmt.Errorf("chat template of %s: %s", m.Model, m.loaded.Partly)
	}
	m.peer, err = loadPeer(path)
	return err
}

// subject is one thing to measure.
type subject struct {
	name  string
	text  string // that the peer encodes
	bytes int    // of the input; that of text if 0
	// prepare is called before each op and not measured; nil for nothing.
	prepare func()
	op      func() (tokens int)
}

// measure runs ours and the peer's in turns and prints the medians.
func (m *measurement) measure(ctx context.Context, s subject) error {
	r := Result{Subject: s.name, Model: filepath.Base(m.Model), Bytes: s.bytes, Commit: m.Commit}
	if r.Bytes == 0 {
		r.Bytes = len(s.text)
	}
	m.run(s.prepare, s.op, 0) // warm-up
	if err := ctx.Err(); err != nil {
		return err
	}
	var theirs []float64
	ours, steal := machine.Quiet(m.Runs, func() (ns float64) {
		ns, r.AllocsPerOp = m.run(s.prepare, s.op, m.Duration)
		if m.peer != nil && s.text != "" {
			ns, _ := m.run(nil, func() int { return m.peer(s.text) }, m.Duration)
			theirs = append(theirs, ns)
		}
		return ns
	})
	r.Steal = steal
	if s.prepare != nil {
		s.prepare()
	}
	r.Tokens = s.op()
	slices.Sort(ours)
	r.NsMin, r.NsPerOp, r.NsMax = ours[0], ours[len(ours)/2], ours[len(ours)-1]
	r.MBPerS = float64(r.Bytes) / r.NsPerOp * 1e3
	if len(theirs) > 0 {
		slices.Sort(theirs)
		r.Peer, r.PeerNsPerOp = "daulet/tokenizers", theirs[len(theirs)/2]
		r.TimesFaster = r.PeerNsPerOp / r.NsPerOp
		if tokens := m.peer(s.text); tokens != r.Tokens {
			return fmt.Errorf("%s: %d tokens, the peer has %d", s.name, r.Tokens, tokens)
		}
	}
	return m.encoder.Encode(r)
}

// run repeats op for a while, once at least, and returns the CPU time and the
// allocations of one.
func (m *measurement) run(prepare func(), op func() int, duration time.Duration) (ns, allocs float64) {
	var spent time.Duration
	var before, after runtime.MemStats
	ops, mallocs := 0, uint64(0)
	for end := time.Now().Add(duration); ops == 0 || time.Now().Before(end); {
		if prepare != nil {
			prepare()
			runtime.ReadMemStats(&before)
		} else if ops == 0 {
			runtime.ReadMemStats(&before)
		}
		start := machine.CPUTime()
		op()
		spent += machine.CPUTime() - start
		ops++
		if prepare != nil {
			runtime.ReadMemStats(&after)
			mallocs += after.Mallocs - before.Mallocs
		}
	}
	if prepare == nil {
		runtime.ReadMemStats(&after)
		mallocs = after.Mallocs - before.Mallocs
	}
	return float64(spent.Nanoseconds()) / float64(ops), float64(mallocs*10/uint64(ops)) / 10
}
