package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"warmpath/bpf"
)

const (
	renewEvery = time.Second
	shedLasts  = 5 * renewEvery
	retryEvery = 10 * time.Second
)

// ErrOff is the error of changes to a guard that is not there.
var ErrOff = errors.New("there is no guard")

// kernelGuard is what the Keeper needs of bpf.Guard.
type kernelGuard interface {
	SetLists(bpf.Lists) error
	SetSourceRate(bpf.Rate) error
	SetPorts([]bpf.PortCap) error
	SetShed(permille, salt uint32, last time.Duration) error
	Counts() (bpf.Verdicts, error)
	Ports() ([]bpf.PortCounts, error)
	Mode() bpf.GuardMode
	NotNative() error
	Pinned() (bool, string)
	Adopted() bool
	ProgramID() uint32
	Attached() bool
	Owned() bool
	Detach() error
	Close()
}

// Options are fixed for the life of a Keeper.
type Options struct {
	Log *slog.Logger
	// Signals are asked for each second while shed is auto.
	Signals func() Signals
	// attach is bpf.AttachGuard but in tests.
	attach func(bpf.GuardOptions) (kernelGuard, error)
}

// Keeper keeps the guard as the configuration wants it. Any goroutine may call
// its methods.
type Keeper struct {
	opt  Options
	salt uint32

	mu     sync.Mutex // guards all below
	plan   *Plan      // nil before Start
	port   uint16     // that clients connect to
	former int        // process that this one took over from, while it may tend a guard; 0 = none
	kernel kernelGuard
	lists  bpf.Lists
	limits Limits
	shed   Shed
	share  float64
	shared time.Time // when it was last reckoned
	state  State
	reason string
	remedy string
	retry  time.Time // zero: only a reload may help

	cancel context.CancelFunc
	done   chan struct{}
}

// New makes a Keeper that does nothing before Start.
func New(opt Options) *Keeper {
	if opt.attach == nil {
		opt.attach = func(o bpf.GuardOptions) (kernelGuard, error) { return bpf.AttachGuard(o) }
	}
	return &Keeper{opt: opt, salt: rand.Uint32(), state: StateOff, reason: "it has not been started"}
}

// Start brings about what plan wants and keeps it so until Stop. port is the one
// that clients connect to, former the process that this one takes over from, 0 if
// there is none. The error says that the guard was required and is not there.
func (k *Keeper) Start(plan *Plan, port uint16, former int) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.port, k.former = port, former
	k.removeStale(plan, 0)
	k.apply(plan)
	if plan.settings.Require && plan.settings.Off == "" && k.kernel == nil {
		return fmt.Errorf("kernel.mode is require, and the guard is not on %s: %s; %s", plan.settings.Interface, k.reason, k.remedy)
	}
	ctx, cancel := context.WithCancel(context.Background())
	k.cancel, k.done = cancel, make(chan struct{})
	go k.run(ctx)
	return nil
}

// Apply brings about what a new plan wants. What cannot be had is logged and
// shown by Status.
func (k *Keeper) Apply(plan *Plan) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.plan != nil { // else Start brings its own
		k.apply(plan)
	}
}

// Stop lets go of the guard: one that is pinned stays.
func (k *Keeper) Stop() {
	k.mu.Lock()
	cancel := k.cancel
	k.cancel = nil
	k.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel()
	<-k.done
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kernel != nil {
		k.kernel.Close()
		k.kernel = nil
	}
	k.off(StateOff, "the router has stopped", "")
}

// run renews what lapses and tries again what failed.
func (k *Keeper) run(ctx context.Context) {
	defer close(k.done)
	renew := time.NewTicker(renewEvery)
	defer renew.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-renew.C:
			k.mu.Lock()
			k.tick(time.Now())
			k.mu.Unlock()
		}
	}
}

func (k *Keeper) tick(now time.Time) {
	if k.former != 0 && !alive(k.former) { // what it left and nobody has taken up
		k.removeStale(k.plan, k.former)
		k.former = 0
	}
	switch g := k.kernel; {
	case g == nil:
		if !k.retry.IsZero() && now.After(k.retry) {
			k.attach()
		}
	case !g.Owned():
		g.Close()
		k.kernel = nil
		k.off(StateGiven, "another process has taken the guard over", "a reload of this one takes it back")
		k.opt.Log.Info("the guard is another process's now", "interface", k.plan.settings.Interface)
	case !g.Attached():
		g.Close()
		k.kernel = nil
		k.off(StateWaiting, "it was taken off, or the interface went away", "it is attached again as soon as that is possible")
		k.retry = now
		k.opt.Log.Warn("the guard is not on its interface any more", "interface", k.plan.settings.Interface)
	default:
		k.renew(now)
	}
}

// renew gives the kernel the share to shed.
func (k *Keeper) renew(now time.Time) {
	was := k.share
	if k.shed.Auto {
		k.share = Share(k.share, k.opt.Signals(), now.Sub(k.shared).Seconds())
	} else {
		k.share = k.shed.Share
	}
	k.shared = now
	if k.share == 0 && was == 0 {
		return
	}
	if err := k.kernel.SetShed(uint32(k.share*bpf.ShedAll+0.5), k.salt, shedLasts); err != nil {
		k.opt.Log.Error("the guard's share to shed was not set", "err", err)
	}
	if (was == 0) != (k.share == 0) {
		k.opt.Log.Warn("shedding of new connections began or ended", "share", k.share)
	}
}

// apply is Apply, with the lock held.
func (k *Keeper) apply(plan *Plan) {
	if k.kernel != nil && !k.kernel.Owned() { // what is written now would be another's
		k.kernel.Close()
		k.kernel = nil
	}
	was := k.plan
	k.plan = plan
	s := &plan.settings
	k.lists, k.limits, k.shed = plan.lists, s.Limits, s.Shed
	if k.kernel != nil && (s.Off != "" || was == nil || moved(&was.settings, s)) {
		k.leave(&was.settings, s)
	}
	k.retry = time.Time{}
	switch {
	case s.Off != "":
		k.off(StateOff, s.Off, "set kernel.xdp.interface to where clients come in, and kernel.mode to auto")
	case k.kernel == nil:
		k.attach()
	default:
		k.fill()
	}
}

// moved reports whether the guard has to be attached anew.
func moved(was, is *Settings) bool {
	return was.Interface != is.Interface || was.Mode != is.Mode || was.Pin != is.Pin
}

// leave takes the guard off, for good or to attach it elsewhere; where only its
// mode changes, a pinned one is left for attach to take over.
func (k *Keeper) leave(was, is *Settings) {
	pinned, _ := k.kernel.Pinned()
	if is.Off == "" && was.Interface == is.Interface && was.Pin == is.Pin && pinned {
		k.kernel.Close()
	} else if err := k.kernel.Detach(); err != nil {
		k.opt.Log.Error("the guard was not taken off", "interface", was.Interface, "err", err)
	} else {
		k.opt.Log.Info("guard taken off", "interface", was.Interface)
	}
	k.kernel = nil
}

// attach tries to attach the guard, or to take over the one that is there.
func (k *Keeper) attach() {
	s := &k.plan.settings
	g, err := k.opt.attach(bpf.GuardOptions{Interface: s.Interface, Mode: k.plan.mode, PinFolder: s.Pin})
	if err != nil {
		k.failed(err)
		return
	}
	k.kernel, k.state, k.reason, k.remedy, k.retry = g, StateOn, "", "", time.Time{}
	k.share, k.shared = 0, time.Now()
	pinned, unlike := g.Pinned()
	args := []any{"interface", s.Interface, "mode", g.Mode().String(), "pinned", pinned, "taken_over", g.Adopted()}
	if !pinned {
		args = append(args, "not_pinned", unlike)
	}
	if err := g.NotNative(); err != nil {
		args = append(args, "not_native", err)
	}
	k.opt.Log.Info("guard attached", args...)
	k.fill()
}

// failed keeps what went wrong and says it, once.
func (k *Keeper) failed(err error) {
	state, remedy := StateWaiting, ""
	switch {
	case errors.Is(err, bpf.ErrGuardBusy):
		remedy = fmt.Sprintf("an interface has room for one: take the other off (bpftool net, ip link set dev %s xdp off) or leave the guard off", k.plan.settings.Interface)
	case errors.Is(err, bpf.ErrGuardForbidden):
		state, remedy = StateOff, "run as root, or grant CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON (AmbientCapabilities= of a systemd unit)"
	case errors.Is(err, bpf.ErrGuardUnknown):
		remedy = "set kernel.xdp.interface to one that `ip link` shows"
	default:
		remedy = "see whether the kernel is 5.10 or newer, and try kernel.xdp.mode: generic"
	}
	if k.reason != err.Error() {
		k.opt.Log.Warn("the guard is off; the router goes on without it", "interface", k.plan.settings.Interface, "why", err.Error(), "remedy", remedy)
	}
	k.off(state, err.Error(), remedy)
	if state == StateWaiting {
		k.retry = time.Now().Add(retryEvery)
	}
}

func (k *Keeper) off(state State, reason, remedy string) {
	k.state, k.reason, k.remedy, k.share = state, reason, remedy, 0
}

// fill gives the kernel all that the plan and later changes say.
func (k *Keeper) fill() {
	err := errors.Join(k.setPorts(), k.setSourceRate(), k.kernel.SetLists(k.lists))
	k.renew(time.Now())
	if err == nil {
		return
	}
	k.opt.Log.Error("the guard has not taken all of its settings; those before stay in force", "err", err)
}

func (k *Keeper) setSourceRate() error {
	return k.kernel.SetSourceRate(bpf.Rate{PerSecond: k.limits.SynPerSource, Burst: k.limits.SynBurst})
}

func (k *Keeper) setPorts() error {
	ports := k.plan.settings.Ports
	if len(ports) == 0 {
		ports = []uint16{k.port}
	}
	caps := make([]bpf.PortCap, len(ports))
	for i, port := range ports {
		caps[i] = bpf.PortCap{Port: port, Rate: bpf.Rate{PerSecond: k.limits.SynPerPort}}
	}
	return k.kernel.SetPorts(caps)
}

// Line says in a few words how the guard is, for a line of the log.
func (k *Keeper) Line() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kernel == nil {
		return strings.TrimSuffix(string(k.state)+": "+k.reason, ": ")
	}
	return fmt.Sprintf("on %s, %v", k.plan.settings.Interface, k.kernel.Mode())
}
