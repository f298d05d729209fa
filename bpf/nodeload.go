package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// Limits of abi.h and load_maps.h.
const (
	MaxLoadPorts = 64

	loadVersion  = 1
	mostWaiting  = 0xfffe // as the option can say; one more is not known
	mostUse      = 0xfe
	nodeLoadSize = int(unsafe.Sizeof(nodeLoadNodeLoad{}))
)

// NodeLoad is what a node says of itself in an option of its segments. Below zero
// is not known.
type NodeLoad struct {
	Waiting int     // requests
	KVUse   float64 // 0 … 1
}

// Unsaid is a NodeLoad that says nothing.
var Unsaid = NodeLoad{Waiting: -1, KVUse: -1}

// word packs l as abi.h says, in the order of the packet's bytes.
func (l NodeLoad) word() uint32 {
	b := [4]byte{loadVersion << 4, mostUse + 1, 0xff, 0xff}
	if l.KVUse >= 0 {
		b[1] = uint8(math.Round(min(l.KVUse, 1) * mostUse))
	}
	if l.Waiting >= 0 {
		binary.BigEndian.PutUint16(b[2:], uint16(min(l.Waiting, mostWaiting)))
	}
	return binary.NativeEndian.Uint32(b[:])
}

// loadOf is word undone.
func loadOf(word uint32) NodeLoad {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], word)
	l := Unsaid
	if b[0]>>4 != loadVersion {
		return l
	}
	if b[1] <= mostUse {
		l.KVUse = float64(b[1]) / mostUse
	}
	if w := binary.BigEndian.Uint16(b[2:]); w <= mostWaiting {
		l.Waiting = int(w)
	}
	return l
}

// LoadWriter has the kernel of an engine's host say the engine's load in segments
// that go out anyway.
type LoadWriter struct {
	objects struct {
		Write *ebpf.Program `ebpf:"load_write"`
		Ports *ebpf.Map     `ebpf:"load_ports"`
		Now   *ebpf.Map     `ebpf:"load_now"`
		Conns *ebpf.Map     `ebpf:"load_conns"`
	}
	sockops link.Link
	memory  []byte
}

// WriteLoads begins with the connections that are accepted at ports from now on, or
// were since the first LoadWriter of this host, by processes of a cgroup v2, given
// by its folder, and of those below it. Until
// Say nothing is said. What it needs and its errors are those of LoadFlow.
func WriteLoads(cgroup string, ports []uint16) (_ *LoadWriter, err error) {
	if len(ports) == 0 || len(ports) > MaxLoadPorts || slices.Contains(ports, 0) {
		return nil, fmt.Errorf("ports %v: name 1 to %d, none of them 0", ports, MaxLoadPorts)
	}
	if err := rlimit.RemoveMemlock(); err != nil { // see LoadFlow
		return nil, fmt.Errorf("lift limit of locked memory: %w", err)
	}
	spec, err := loadNodeLoad()
	if err != nil {
		return nil, fmt.Errorf("read program load_write: %w", err)
	}
	w := &LoadWriter{}
	defer func() {
		if err != nil {
			_ = w.Close()
		}
	}()
	if err := spec.LoadAndAssign(&w.objects, nil); err != nil {
		return nil, fmt.Errorf("load program load_write: %w", lacking(err))
	}
	for _, port := range ports {
		if err := w.objects.Ports.Update(uint32(port), uint32(1), ebpf.UpdateAny); err != nil {
			return nil, fmt.Errorf("name port %d: %w", port, err)
		}
	}
	if w.memory, err = unix.Mmap(w.objects.Now.FD(), 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("map what is said: %w", err)
	}
	if w.sockops, err = link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: ebpf.AttachCGroupSockOps, Program: w.objects.Write}); err != nil {
		return nil, fmt.Errorf("attach sockops to %s: %w", cgroup, err)
	}
	return w, nil
}

// Say is what is told from now on, for at most a second: who has no news must say
// it again. One goroutine.
func (w *LoadWriter) Say(l NodeLoad) {
	said := (*nodeLoadLoadSaid)(unsafe.Pointer(unsafe.SliceData(w.memory)))
	word := uint32(0)
	if l != Unsaid {
		word = l.word()
	}
	(*atomic.Uint32)(unsafe.Pointer(&said.Word)).Store(word)
	(*atomic.Uint64)(unsafe.Pointer(&said.AtNs)).Store(uint64(MonotonicNs()))
}

// Close takes the program off the kernel.
func (w *LoadWriter) Close() error {
	var errs []error
	if w.sockops != nil {
		errs = append(errs, w.sockops.Close())
	}
	if w.memory != nil {
		errs = append(errs, unix.Munmap(w.memory))
		w.memory = nil
	}
	o := &w.objects
	return errors.Join(append(errs, o.Write.Close(), o.Ports.Close(), o.Now.Close(), o.Conns.Close())...)
}

// loadReader is the router's side, beside a Flow.
type loadReader struct {
	objects struct {
		Read  *ebpf.Program `ebpf:"load_read"`
		Loads *ebpf.Map     `ebpf:"node_loads"`
	}
	sockops link.Link
	memory  []byte
}

// ReadLoads attaches the program that reads what nodes say of their load, on
// connections that are followed and are made from now on. An error leaves what runs
// as it is.
func (f *Flow) ReadLoads(cgroup string) (err error) {
	spec, err := loadNodeLoad()
	if err != nil {
		return fmt.Errorf("read program load_read: %w", err)
	}
	r := &loadReader{}
	defer func() {
		if err != nil {
			_ = r.close()
		}
	}()
	opt := &ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{"conns": f.objects.Conns}}
	if err := spec.LoadAndAssign(&r.objects, opt); err != nil {
		return fmt.Errorf("load program load_read: %w", lacking(err))
	}
	if r.memory, err = unix.Mmap(r.objects.Loads.FD(), 0, MaxNodes*nodeLoadSize, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return fmt.Errorf("map loads of nodes: %w", err)
	}
	if r.sockops, err = link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: ebpf.AttachCGroupSockOps, Program: r.objects.Read}); err != nil {
		return fmt.Errorf("attach sockops to %s: %w", cgroup, err)
	}
	f.loads = r
	return nil
}

// NodeLoad returns what a node said last, when that came (CLOCK_MONOTONIC; 0 =
// never), and how often anything came since the programs were loaded. Any
// goroutine.
func (f *Flow) NodeLoad(node uint32) (l NodeLoad, atNs, readings uint64) {
	if f.loads == nil || node >= MaxNodes {
		return Unsaid, 0, 0
	}
	n := &unsafe.Slice((*nodeLoadNodeLoad)(unsafe.Pointer(unsafe.SliceData(f.loads.memory))), MaxNodes)[node]
	// The kernel writes the word first: what is read is as fresh as the time says.
	atNs = (*atomic.Uint64)(unsafe.Pointer(&n.AtNs)).Load()
	word := (*atomic.Uint32)(unsafe.Pointer(&n.Word)).Load()
	return loadOf(word), atNs, (*atomic.Uint64)(unsafe.Pointer(&n.Readings)).Load()
}

func (r *loadReader) close() error {
	if r == nil {
		return nil
	}
	var errs []error
	if r.sockops != nil {
		errs = append(errs, r.sockops.Close())
	}
	if r.memory != nil {
		errs = append(errs, unix.Munmap(r.memory))
	}
	return errors.Join(append(errs, r.objects.Read.Close(), r.objects.Loads.Close())...)
}

// MonotonicNs is the clock of all times here.
func MonotonicNs() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // it never fails: the clock is there on every kernel
	return ts.Nano()
}
