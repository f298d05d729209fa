package bpf

import (
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// The versions of Guard's maps that this code understands; see guard_abi.h.
const guardABI = 2

// MaxGuardPorts is how many ports a guard can guard.
const MaxGuardPorts = 64

// Errors of a Guard that a caller may live with.
var (
	// ErrGuardBusy: another XDP program is on the interface. An interface has
	// room for one.
	ErrGuardBusy = errors.New("another XDP program is on the interface")
	// ErrGuardForbidden: the process may not load or attach it.
	ErrGuardForbidden = errors.New("not permitted")
	// ErrGuardGiven: another process has taken it over meanwhile.
	ErrGuardGiven = errors.New("another process has taken the guard over")
	// ErrGuardUnknown: no such interface, or none that is guarded.
	ErrGuardUnknown = errors.New("no such interface")
)

// GuardMode says where in the kernel packets meet the guard.
type GuardMode uint32

// Modes of attaching.
const (
	GuardAuto    GuardMode = iota // native, else generic
	GuardNative                   // in the driver, before the packet costs anything
	GuardGeneric                  // behind it: any driver, a few times the cost
)

var guardModeNames = [...]string{"auto", "native", "generic"}

// String names the mode as the configuration does.
func (m GuardMode) String() string { return guardModeNames[min(int(m), len(guardModeNames)-1)] }

// ParseGuardMode is the inverse of String.
func ParseGuardMode(name string) (GuardMode, error) {
	for m, n := range guardModeNames {
		if n == name {
			return GuardMode(m), nil
		}
	}
	return 0, fmt.Errorf("no XDP mode %q: use auto, native or generic", name)
}

// GuardOptions say where a guard is attached.
type GuardOptions struct {
	Interface string
	Mode      GuardMode
	// PinFolder lies in a bpffs and holds one folder an interface, by which the
	// guard outlives the process and the next one finds it. "" = the guard ends
	// with the process.
	PinFolder string
}

// Guard is the program guard on one interface, and its maps. It is for one
// goroutine at a time, except Counts and Ports, which any may call at any time
// before Close.
//
// A pinned guard stays on its interface when the process ends, with its lists,
// ports and rates, until Detach or RemoveGuard; what it sheds ends by itself.
type Guard struct {
	objects guardObjects
	list4   *ebpf.MapSpec
	list6   *ebpf.MapSpec
	link    link.Link // nil in tests of the program alone
	index   int       // of the interface
	id      ebpf.ProgramID
	limits  guardLimits // as they stand in the map
	folder  string      // of the pins, "" = not pinned
	unlike  string      // why not

	adopted bool
	native  error // why the native mode could not be had
}

// AttachGuard puts the guard on an interface, or takes over the pinned one that
// is there: its program is exchanged in one step, with no packet in between that
// meets none, and its lists and limits stay in force until they are set.
func AttachGuard(opt GuardOptions) (*Guard, error) {
	nic, err := net.InterfaceByName(opt.Interface)
	if err != nil {
		return nil, fmt.Errorf("find interface %q: %w", opt.Interface, ErrGuardUnknown)
	}
	folder, unlike, unlock := lockPins(opt)
	defer unlock()
	if folder != "" {
		g, err := adoptGuard(opt, nic.Index, folder)
		if g != nil || err != nil {
			return g, err
		}
	}
	g, err := newGuard(nil)
	if err != nil {
		return nil, err
	}
	g.index, g.unlike = nic.Index, unlike
	if err := g.attach(opt.Mode); err != nil {
		g.Close()
		return nil, err
	}
	if folder != "" {
		if err := g.pin(folder); err != nil { // it works all the same, for as long as the process does
			g.unlike = err.Error()
		}
	}
	return g, nil
}

// newGuard loads the program, with new maps or with those given.
func newGuard(maps map[string]*ebpf.Map) (*Guard, error) {
	spec, err := loadGuard()
	if err != nil {
		return nil, fmt.Errorf("read guard: %w", err)
	}
	g := &Guard{list4: spec.Maps[guardMapLists4].InnerMap, list6: spec.Maps[guardMapLists6].InnerMap}
	if err := g.load(spec, maps); err != nil {
		return nil, fmt.Errorf("load guard: %w", permission(lacking(err)))
	}
	if info, err := g.objects.Guard.Info(); err == nil {
		g.id, _ = info.ID()
	}
	if maps == nil {
		g.limits = guardLimits{Abi: guardABI}
		err = g.put()
	} else {
		err = g.objects.Settings.Lookup(uint32(0), &g.limits)
	}
	if err != nil {
		g.Close()
		return nil, fmt.Errorf("read or set limits of guard: %w", err)
	}
	return g, nil
}

// load loads the program with all that it can use, and without what came to the
// kernel later than the rest if that is refused.
func (g *Guard) load(spec *ebpf.CollectionSpec, maps map[string]*ebpf.Map) error {
	options := ebpf.CollectionOptions{MapReplacements: maps}
	// Where the kernel knows packets of several buffers (5.18), drivers with a
	// large MTU take programs natively only if they can bear them: headers, all
	// that is read, are in the first buffer.
	spec.Programs[guardProgGuard].Flags |= unix.BPF_F_XDP_HAS_FRAGS
	err := spec.LoadAndAssign(&g.objects, &options)
	if errors.Is(err, unix.EINVAL) {
		spec.Programs[guardProgGuard].Flags &^= unix.BPF_F_XDP_HAS_FRAGS
		err = spec.LoadAndAssign(&g.objects, &options)
	}
	if errors.Is(lacking(err), ebpf.ErrNotSupported) { // the coarse clock (5.11)
		if err := spec.Variables[guardVarCoarseClock].Set(false); err != nil {
			return err
		}
		err = spec.LoadAndAssign(&g.objects, &options)
	}
	return err
}

// attach hangs the program on the interface, in the best mode that is allowed.
func (g *Guard) attach(mode GuardMode) error {
	modes := []GuardMode{mode}
	if mode == GuardAuto {
		modes = []GuardMode{GuardNative, GuardGeneric}
	}
	var err error
	for _, m := range modes {
		flags := link.XDPDriverMode
		if m == GuardGeneric {
			flags = link.XDPGenericMode
		}
		g.link, err = link.AttachXDP(link.XDPOptions{Program: g.objects.Guard, Interface: g.index, Flags: flags})
		if err == nil {
			g.limits.Mode = uint32(m)
			g.limits.own()
			return g.store()
		}
		g.link = nil
		if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EEXIST) { // the other one's mode is not ours
			return fmt.Errorf("attach guard: %w (%w)", ErrGuardBusy, err)
		}
		if m == GuardNative {
			g.native = err
		}
	}
	return fmt.Errorf("attach guard, mode %v: %w", mode, permission(err))
}

// permission marks errors that a capability would cure: cilium/ebpf explains
// every EPERM by the limit of locked memory, which has not been it since 5.11.
func permission(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w (%w)", ErrGuardForbidden, err)
	}
	return err
}

// Mode is how the guard is attached.
func (g *Guard) Mode() GuardMode { return GuardMode(g.limits.Mode) }

// NotNative says why the guard is not native though it might have been, nil if
// that was not tried.
func (g *Guard) NotNative() error { return g.native }

// Pinned reports whether the guard outlives the process, and if not, why.
func (g *Guard) Pinned() (pinned bool, why string) { return g.folder != "", g.unlike }

// Adopted reports whether the guard was there before.
func (g *Guard) Adopted() bool { return g.adopted }

// ProgramID is the kernel's number of the program, as bpftool shows it.
func (g *Guard) ProgramID() uint32 { return uint32(g.id) }

// Attached reports whether the program still hangs on the interface: an
// interface that went away takes the link with it, and so does another process
// that detaches.
func (g *Guard) Attached() bool {
	if g.link == nil {
		return false
	}
	info, err := g.link.Info()
	return err == nil && info.XDP() != nil && int(info.XDP().Ifindex) == g.index
}

// Owned reports whether no other process has taken the guard over since this one
// attached it: one that did exchanged the program, and put itself down as owner.
func (g *Guard) Owned() bool {
	if g.link != nil {
		if info, err := g.link.Info(); err == nil && info.XDP().Ifindex != 0 && info.Program != g.id {
			return false
		}
	}
	var now guardLimits
	err := g.objects.Settings.Lookup(uint32(0), &now)
	return err == nil && now.Owner == g.limits.Owner && now.OwnerBegan == g.limits.OwnerBegan
}

// Close lets go of the guard. A pinned one stays on its interface, any other
// leaves it.
func (g *Guard) Close() {
	if g.link != nil {
		_ = g.link.Close()
	}
	_ = g.objects.Close()
}

// Detach takes the guard off its interface, removes what is pinned and closes it.
func (g *Guard) Detach() error {
	defer g.Close()
	var err error
	if g.link != nil {
		err = g.link.Detach()
		if errors.Is(err, unix.ENOLINK) || errors.Is(err, unix.ENODEV) || !g.Attached() { // it was off already
			err = nil
		}
	}
	return errors.Join(err, removePins(g.folder))
}
