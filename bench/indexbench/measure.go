package indexbench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"

	"warmpath/bench/machine"
	"warmpath/dataplane/index"
	"warmpath/dataplane/prefix"
)

// Options of a measurement. The zero value of a field is its default.
type Options struct {
	Nodes    int           // default 256
	Blocks   int           // a node holds; default 50,000
	Runs     int           // of each subject; default 5
	Duration time.Duration // of a run; default 500 ms
	Chains   int           // that are matched in turns to leave the caches; default 64
	Seed     uint64        // of the chains that are matched
	Commit   string        // of the program that measures
}

func (o *Options) complete() error {
	if o.Nodes == 0 {
		o.Nodes = 256
	}
	if o.Blocks == 0 {
		o.Blocks = 50_000
	}
	if o.Runs == 0 {
		o.Runs = 5
	}
	if o.Chains == 0 {
		o.Chains = 64
	}
	if o.Duration == 0 {
		o.Duration = 500 * time.Millisecond
	}
	if o.Nodes < 64 || o.Nodes > 1024 || o.Blocks < chainBlocks {
		return fmt.Errorf("nodes %d, blocks %d: want 64 to 1024 nodes and at least %d blocks", o.Nodes, o.Blocks, chainBlocks)
	}
	return nil
}

// Result is one line of the output. What a subject does not measure is left out.
type Result struct {
	Subject             string  `json:"subject"`
	Nodes               int     `json:"nodes"`
	HolderBlocks        int64   `json:"holder_blocks"`
	NsPerOp             float64 `json:"ns_per_op,omitempty"` // median of the runs
	NsMin               float64 `json:"ns_min,omitempty"`
	NsMax               float64 `json:"ns_max,omitempty"`
	P99Ns               float64 `json:"p99_ns,omitempty"` // median of the runs
	P99OverIdle         float64 `json:"p99_over_idle,omitempty"`
	BytesPerHolderBlock float64 `json:"bytes_per_holder_block,omitempty"`
	BlocksPerS          float64 `json:"blocks_per_s,omitempty"`
	AllocsPerOp         float64 `json:"allocs_per_op"`
	StealPercent        float64 `json:"steal_percent"` // of processor time: what the machine's host took
	Commit              string  `json:"commit,omitempty"`
}

// Measure fills an index and prints what was measured to out. All but the
// readers' percentiles is the CPU time of the measuring thread: what other
// processes of this machine take does not count, though they share the caches.
func Measure(ctx context.Context, o Options, out io.Writer) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := o.complete(); err != nil {
		return err
	}
	m := &measurement{Options: o, encoder: json.NewEncoder(out), units: make([]uint32, 1024), meter: machine.Start()}
	m.index = index.New(index.Options{MemoryBytes: int64(o.Nodes)*int64(o.Blocks)*80 + 64<<20})
	for _, step := range []func() error{m.fill, m.store, m.matches, m.readers, m.events} {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step(); err != nil {
			return fmt.Errorf("print result: %w", err)
		}
	}
	return nil
}

type measurement struct {
	Options
	encoder  *json.Encoder
	index    *index.Index
	contents *Contents
	next     int // node that reports next
	units    []uint32
	meter    machine.Meter // since the result before
}

func (m *measurement) print(r Result) error {
	r.Nodes, r.HolderBlocks, r.Commit = m.Nodes, m.index.Stats().HolderUnits, m.Commit
	if r.NsMin == 0 { // else it is known of the runs that count
		r.StealPercent = m.meter.StealPercent()
	}
	m.meter = machine.Start()
	return m.encoder.Encode(r)
}

// heapBytes returns what is allocated and in use.
func heapBytes() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// mallocsSoFar returns how often was allocated.
func mallocsSoFar() uint64 {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.Mallocs
}

// fill stores until all nodes are full: bytes are what the heap grew by.
func (m *measurement) fill() error {
	m.contents = NewContents(m.index.Writer(), m.Nodes, m.Blocks)
	before := heapBytes()
	start := machine.CPUTime()
	m.contents.Fill()
	took := machine.CPUTime() - start
	after := heapBytes()
	blocks := float64(m.Nodes) * float64(m.Blocks)
	return m.print(Result{
		Subject: "fill", NsPerOp: float64(took.Nanoseconds()) / blocks, BlocksPerS: blocks / took.Seconds(),
		BytesPerHolderBlock: float64(after-before) / blocks,
	})
}

// report stores and removes a batch of 1 to 64 blocks at the next node.
func (m *measurement) report() (blocks int) {
	m.next++
	blocks = 1 + int(mix(uint64(m.next))%64)
	m.contents.Report(m.next*37%m.Nodes, blocks)
	return blocks
}

// store measures the writer on full nodes; an operation is a block that is
// stored and one that is removed.
func (m *measurement) store() error {
	r := m.repeat(func() int {
		n := 0
		for range 64 {
			n += m.report()
		}
		return n
	})
	r.Subject, r.BlocksPerS = "store and remove", 1e9/r.NsPerOp
	return m.print(r)
}

// repeat measures f, which returns how many operations it did. The kernel counts
// time that was stolen as the thread's own, so quiet runs alone count.
func (m *measurement) repeat(f func() int) Result {
	f()
	runtime.GC()
	var mallocs uint64
	total := 0
	runs, steal := machine.Quiet(m.Runs, func() float64 {
		ops := 0
		before, start := mallocsSoFar(), machine.CPUTime()
		for end := time.Now().Add(m.Duration); time.Now().Before(end); {
			ops += f()
		}
		ns := float64(machine.CPUTime()-start) / float64(ops)
		mallocs += mallocsSoFar() - before
		total += ops
		return ns
	})
	slices.Sort(runs)
	return Result{
		NsPerOp: runs[len(runs)/2], NsMin: runs[0], NsMax: runs[len(runs)-1], StealPercent: steal,
		AllocsPerOp: float64(mallocs*1000/uint64(total)) / 1000,
	}
}

// matches measures look-ups; an operation is one Match.
func (m *measurement) matches() error {
	for _, c := range []struct {
		subject               string
		length, nodes, chains int
	}{
		{"match 512 units at 16 nodes", 512, 16, 1},
		{"match 8192 units at 16 nodes", 8192, 16, 1},
		{"match 8192 units at 64 nodes", 8192, 64, 1},
		{"match 8192 units at 16 nodes, not in the caches", 8192, 16, m.Chains},
	} {
		chains := make([][]prefix.Hash, c.chains)
		for i := range chains {
			m.Seed++
			chains[i] = m.contents.Chain(m.Seed, c.length, c.nodes)
		}
		live := m.live()
		i := 0
		r := m.repeat(func() int {
			i++
			m.index.Match(chains[i%len(chains)], &live, m.units)
			return 1
		})
		r.Subject = c.subject
		if err := m.print(r); err != nil {
			return err
		}
	}
	return nil
}

func (m *measurement) live() (live index.SlotSet) {
	for node := range m.Nodes {
		live.Add(node)
	}
	return live
}

// readers measures single look-ups with the writer at rest and at full rate, in
// turns.
func (m *measurement) readers() error {
	m.Seed++
	chain := m.contents.Chain(m.Seed, 512, 16)
	live := m.live()
	var idle, busy [2][]float64 // medians and 99th percentiles of the runs
	for range m.Runs {
		p50, p99 := m.look(chain, &live)
		idle[0], idle[1] = append(idle[0], p50), append(idle[1], p99)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					m.report()
				}
			}
		})
		p50, p99 = m.look(chain, &live)
		busy[0], busy[1] = append(busy[0], p50), append(busy[1], p99)
		close(stop)
		wg.Wait()
	}
	rest := machine.Median(idle[1])
	if err := m.print(Result{Subject: "match 512 units, writer at rest", NsPerOp: machine.Median(idle[0]), P99Ns: rest}); err != nil {
		return err
	}
	return m.print(Result{
		Subject: "match 512 units, writer at full rate", NsPerOp: machine.Median(busy[0]), P99Ns: machine.Median(busy[1]),
		P99OverIdle: machine.Median(busy[1]) / rest,
	})
}

// look returns the median and the 99th percentile of many look-ups.
func (m *measurement) look(chain []prefix.Hash, live *index.SlotSet) (p50, p99 float64) {
	took := make([]float64, 0, 1<<16)
	for end := time.Now().Add(m.Duration); time.Now().Before(end) && len(took) < cap(took); {
		start := time.Now()
		m.index.Match(chain, live, m.units)
		took = append(took, float64(time.Since(start).Nanoseconds()))
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100]
}
