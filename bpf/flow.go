package bpf

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// Limits of abi.h.
const (
	MaxNodes = 1024
	NoSlot   = ^uint32(0)
	Buckets  = 40
)

// Layouts shared with the kernel, generated from the objects.
type (
	// Slot is one connection in memory that both sides map; package dataplane/flow
	// has the loops' twin of it.
	Slot = flowSlot
	// Rule is what connections to a node get; 0 leaves the host's setting alone.
	Rule = flowNodeRule
	// Counters of a node, since the programs were loaded.
	Counters = flowNodeCounters
	// Times are histograms of a node: bucket i counts values from 2^(i-1) to 2^i ns.
	Times = flowNodeTimes
	// Event is a rare thing that happened.
	Event = flowEvent
)

// EventKind is what an Event tells (enum event_kind of abi.h).
type EventKind uint32

// Kinds of events.
const (
	EventFailed     EventKind = iota + 1 // a connection ended before it was established
	EventRTO                             // a second or later retransmission time-out in a row, of a connection that nobody has ended
	EventSynRTO                          // a SYN was not answered in time
	EventReset                           // the node reset a connection
	EventClosedIdle                      // the node closed a connection that had no request
	EventNoWindow                        // the node takes nothing more for now
	EventError                           // the socket was told of an error; not of resets
)

func (k EventKind) String() string {
	names := [...]string{"none", "failed", "rto", "syn_rto", "reset", "closed_idle", "no_window", "error"}
	if int(k) < len(names) {
		return names[k]
	}
	return fmt.Sprint(uint32(k))
}

// Flow is the programs that follow connections to nodes, loaded.
type Flow struct {
	objects  flowObjects
	sockops  link.Link
	segments *tracing
	resets   *tracing
	loads    *loadReader
	errors   *tracing // see rare.go, as windows
	windows  *tracing
	memory   []byte
	events   *ringbuf.Reader
	record   ringbuf.Record // scratch of Next
}

// tracing is a collection of tracepoint programs that shares Flow's maps.
type tracing struct {
	collection *ebpf.Collection
	links      []link.Link
}

// LoadFlow loads the sockops program, attaches it to a cgroup v2, given by its
// folder, and maps room for so many connections. It needs CAP_BPF, CAP_NET_ADMIN
// and CAP_PERFMON. Errors are those of cilium/ebpf, wrapped: ebpf.ErrNotSupported
// where the kernel lacks something, unix.EPERM where the process may not.
func LoadFlow(cgroup string, slots int) (_ *Flow, err error) {
	// Kernels before 5.11 count maps as locked memory; on later ones this changes nothing.
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("lift limit of locked memory: %w", err)
	}
	spec, err := loadFlow()
	if err != nil {
		return nil, fmt.Errorf("read program flow: %w", err)
	}
	spec.Maps["slots"].MaxEntries = uint32(slots)
	f := &Flow{}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	if err := spec.LoadAndAssign(&f.objects, nil); err != nil {
		return nil, fmt.Errorf("load program flow: %w", lacking(err))
	}
	if f.memory, err = unix.Mmap(f.objects.Slots.FD(), 0, slots*int(unsafe.Sizeof(Slot{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("map slots: %w", err)
	}
	if f.events, err = ringbuf.NewReader(f.objects.Events); err != nil {
		return nil, fmt.Errorf("open events: %w", err)
	}
	if f.sockops, err = link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: ebpf.AttachCGroupSockOps, Program: f.objects.flowPrograms.Flow}); err != nil {
		return nil, fmt.Errorf("attach sockops to %s: %w", cgroup, err)
	}
	return f, nil
}

// FollowSegments attaches the program that times segments, CountResets the one
// that counts resets. An error leaves what runs as it is.
func (f *Flow) FollowSegments() (err error) {
	f.segments, err = f.trace("segments", loadSegments)
	return err
}

// CountResets: see FollowSegments.
func (f *Flow) CountResets() (err error) {
	f.resets, err = f.trace("resets", loadResets)
	return err
}

func (f *Flow) trace(program string, load func() (*ebpf.CollectionSpec, error)) (_ *tracing, err error) {
	spec, err := load()
	if err != nil {
		return nil, fmt.Errorf("read program %s: %w", program, err)
	}
	shared := map[string]*ebpf.Map{
		"rules": f.objects.Rules, "conns": f.objects.Conns, "by_port": f.objects.ByPort, "slots": f.objects.Slots, "counters": f.objects.Counters,
		"times": f.objects.Times, "events": f.objects.Events, "events_lost": f.objects.EventsLost,
	}
	maps.DeleteFunc(shared, func(name string, _ *ebpf.Map) bool { return spec.Maps[name] == nil })
	for name := range spec.Maps {
		if shared[name] == nil && !strings.HasPrefix(name, ".") { // .rodata and the like are its own
			return nil, fmt.Errorf("load program %s: its map %s is no map of flow's", program, name)
		}
	}
	if s := spec.Maps["slots"]; s != nil {
		s.MaxEntries = f.objects.Slots.MaxEntries()
	}
	t := &tracing{}
	defer func() {
		if err != nil {
			_ = t.close()
		}
	}()
	if t.collection, err = ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared}); err != nil {
		return nil, fmt.Errorf("load program %s: %w", program, lacking(err))
	}
	for _, p := range t.collection.Programs {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return nil, fmt.Errorf("attach program %s: %w", program, err)
		}
		t.links = append(t.links, l)
	}
	return t, nil
}

func (t *tracing) close() error {
	if t == nil {
		return nil
	}
	var errs []error
	for _, l := range t.links {
		errs = append(errs, l.Close())
	}
	if t.collection != nil {
		t.collection.Close()
	}
	return errors.Join(errs...)
}

// Memory returns the slots, mapped: valid until Close.
func (f *Flow) Memory() []byte { return f.memory }

// Follow has the kernel follow a socket, which must not have begun to connect,
// as one of a node (below MaxNodes), in a slot or NoSlot. Events tell of the node
// and of tenant, which nodes that have one number after another are told apart by.
// Any goroutine.
func (f *Flow) Follow(fd int, node, slot, generation, tenant uint32) error {
	c := flowConn{Node: node, Slot: slot, Generation: generation, Tenant: tenant}
	key := int32(fd)
	if err := f.objects.Conns.Update(&key, &c, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("follow socket: %w", err)
	}
	return nil
}

// SetRule says how connections to a node are treated from now on; those that
// stand keep what they have.
func (f *Flow) SetRule(node uint32, r Rule) error {
	if err := f.objects.Rules.Update(&node, &r, ebpf.UpdateAny); err != nil {
		return fmt.Errorf("set rule of node %d: %w", node, err)
	}
	return nil
}

// Counters returns the counts of a node, of all CPUs together.
func (f *Flow) Counters(node uint32) (sum Counters, err error) {
	var each []Counters
	if err := f.objects.Counters.Lookup(&node, &each); err != nil {
		return sum, fmt.Errorf("read counters of node %d: %w", node, err)
	}
	for i := range each {
		c := &each[i]
		sum.Connects += c.Connects
		sum.Established += c.Established
		sum.Failed += c.Failed
		sum.ResetsIn += c.ResetsIn
		sum.ResetsOut += c.ResetsOut
		sum.Errors += c.Errors
		sum.Retransmits += c.Retransmits
		sum.Rtos += c.Rtos
		sum.ClosedIdle += c.ClosedIdle
		sum.ZeroWindows += c.ZeroWindows
		sum.Segments += c.Segments
		sum.Bytes += c.Bytes
		sum.HeardNs = max(sum.HeardNs, c.HeardNs)
	}
	return sum, nil
}

// Times returns the histograms of a node, of all CPUs together.
func (f *Flow) Times(node uint32) (sum Times, err error) {
	var each []Times
	if err := f.objects.Times.Lookup(&node, &each); err != nil {
		return sum, fmt.Errorf("read times of node %d: %w", node, err)
	}
	for i := range each {
		for b := range Buckets {
			sum.FirstByte[b] += each[i].FirstByte[b]
			sum.Gap[b] += each[i].Gap[b]
			sum.Connect[b] += each[i].Connect[b]
			sum.SynRtt[b] += each[i].SynRtt[b]
		}
	}
	return sum, nil
}

// Next waits for an event. It returns os.ErrClosed after Close. One goroutine.
func (f *Flow) Next(e *Event) error {
	if err := f.events.ReadInto(&f.record); err != nil {
		return err
	}
	if len(f.record.RawSample) < int(unsafe.Sizeof(*e)) {
		return fmt.Errorf("event of %d bytes", len(f.record.RawSample))
	}
	*e = *(*Event)(unsafe.Pointer(unsafe.SliceData(f.record.RawSample)))
	return nil
}

// StopEvents ends Next. Any goroutine.
func (f *Flow) StopEvents() error { return f.events.Close() }

// EventsLost returns how many events found no room.
func (f *Flow) EventsLost() (sum uint64, err error) {
	var each []uint64
	if err := f.objects.EventsLost.Lookup(uint32(0), &each); err != nil {
		return 0, fmt.Errorf("read lost events: %w", err)
	}
	for _, n := range each {
		sum += n
	}
	return sum, nil
}

// Close takes everything off the kernel. The memory is gone after it, so that
// nobody may look at slots any more.
func (f *Flow) Close() error {
	var errs []error
	if f.sockops != nil {
		errs = append(errs, f.sockops.Close())
	}
	errs = append(errs, f.segments.close(), f.resets.close(), f.errors.close(), f.windows.close(), f.loads.close())
	if f.events != nil {
		errs = append(errs, f.events.Close())
	}
	if f.memory != nil {
		errs = append(errs, unix.Munmap(f.memory))
		f.memory = nil
	}
	return errors.Join(append(errs, f.objects.Close())...)
}
