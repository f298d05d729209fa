package guard

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"warmpath/bpf"
	"warmpath/scenariotest"
)

// TestLists runs testdata/lists.txt: a file, and what is read of it.
func TestLists(t *testing.T) {
	scenariotest.Run(t, "testdata/lists.txt", func(t *testing.T, c scenariotest.Case) string {
		prefixes, err := readList("deny", strings.NewReader(c.Rest()))
		if err != nil {
			return err.Error() + "\n"
		}
		return fmt.Sprintln(prefixes)
	})
}

func TestListBounds(t *testing.T) {
	if _, err := readList("deny", strings.NewReader("10.0.0.0/8\n"+strings.Repeat("x", maxLineBytes+1))); err == nil || !strings.Contains(err.Error(), "deny:2: ") {
		t.Errorf("a line that is too long: %v", err)
	}
	_, err := readList("deny", strings.NewReader(strings.Repeat("nonsense\n", 1000)))
	if n := strings.Count(err.Error(), "\n") + 1; n != maxListProblems {
		t.Errorf("%d problems are shown of 1,000", n)
	}
	many := &io.LimitedReader{R: endless("192.0.2.1\n"), N: 10 * (bpf.MaxGuardEntries + 1)}
	if _, err := readList("deny", many); err == nil || !strings.Contains(err.Error(), "are the most") {
		t.Errorf("more entries than there is room for: %v", err)
	}
	if _, err := ReadList(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "name a readable file") {
		t.Errorf("a file that there is not: %v", err)
	}
}

type endless string

func (e endless) Read(b []byte) (n int, err error) {
	for n+len(e) <= len(b) {
		n += copy(b[n:], e)
	}
	return n, nil
}

func FuzzList(f *testing.F) {
	f.Add("10.0.0.0/8 # x\n\n2001:db8::/32\n")
	f.Add("10.0.0.1/8\n::ffff:1.2.3.4\n1.2.3.4%a\n")
	f.Fuzz(func(t *testing.T, text string) {
		prefixes, err := readList("f", strings.NewReader(text))
		if err != nil {
			return
		}
		for _, p := range prefixes {
			again, err := ParsePrefix(p.String())
			if err != nil || again != p || p != p.Masked() || p.Addr().Is4In6() {
				t.Errorf("%v reads back as %v: %v", p, again, err)
			}
		}
	})
}

func TestListChanges(t *testing.T) {
	p := func(texts string) (out []netip.Prefix) {
		for text := range strings.FieldsSeq(texts) {
			out = append(out, netip.MustParsePrefix(text))
		}
		return out
	}
	const a, b, c = "10.0.0.0/8 ", "11.0.0.0/8 ", "12.0.0.0/8 "
	for _, x := range []struct {
		change         ListChange
		list, by, want string
	}{
		{Replace, a + b, c + c, c},
		{Replace, a + b, "", ""},
		{Add, a + b, b + c, a + b + c},
		{Add, "", c, c},
		{Remove, a + b + c, b, a + c},
		{Remove, a, b, a},
	} {
		if got := x.change.changed(p(x.list), p(x.by)); fmt.Sprint(got) != fmt.Sprint(p(x.want)) {
			t.Errorf("%s %q by %q: %v", x.change, x.list, x.by, got)
		}
	}
}

// TestShare: the law of shedding, at its corners and everywhere between.
func TestShare(t *testing.T) {
	for _, c := range []struct {
		what            string
		pressure, crowd float64
		want            float64 // after a long time
	}{
		{"idle", 0, 0, 0},
		{"a busy fleet, few connections", 1, 0.4, 0},
		{"many connections, an idle fleet", 0, 1, 0},
		{"both at their thresholds", 0.8, 0.5, 0},
		{"halfway", 0.9, 0.7, 0.9 * 0.25},
		{"full", 1, 0.9, 0.9},
		{"beyond", 7, 7, 0.9},
		{"unknown", math.NaN(), 1, 0},
		{"below nothing", -1, -1, 0},
	} {
		for _, from := range []float64{0, 0.9} {
			share := from
			for range 100 {
				share = Share(share, Signals{c.pressure, c.crowd}, 1)
			}
			if math.Abs(share-c.want) > 1e-9 {
				t.Errorf("%s, from %v: %v, want %v", c.what, from, share, c.want)
			}
		}
	}
	r := rand.New(rand.NewPCG(3, 4))
	share := 0.0
	for range 10_000 {
		s, seconds := Signals{r.Float64() * 1.2, r.Float64() * 1.2}, r.Float64()*3
		next := Share(share, s, seconds)
		if next < 0 || next > shedMost || next > share+risePerSecond*seconds+1e-12 || next < share-fallPerSecond*seconds-1e-12 {
			t.Fatalf("%v → %v in %v s at %+v", share, next, seconds, s)
		}
		if more := Share(share, Signals{s.Pressure + 0.1, s.Crowd + 0.1}, seconds); more < next {
			t.Fatalf("more pressure sheds less: %v, %v at %+v", more, next, s)
		}
		share = next
	}
}

// fake is a guard without a kernel.
type fake struct {
	mu       sync.Mutex
	opt      bpf.GuardOptions
	lists    bpf.Lists
	rate     bpf.Rate
	ports    []bpf.PortCap
	sheds    []uint32 // each that was set
	off      bool     // taken off
	closed   bool
	detached bool // by somebody else
	stolen   bool
	refuses  int // limits of ports above this; 0 = none
}

func (f *fake) SetLists(l bpf.Lists) error { f.lists = l; return nil }

func (f *fake) SetSourceRate(r bpf.Rate) error { f.rate = r; return nil }

func (f *fake) SetPorts(p []bpf.PortCap) error {
	if f.refuses > 0 && p[0].Rate.PerSecond > f.refuses {
		return errors.New("no room")
	}
	f.ports = p
	return nil
}

func (f *fake) SetShed(permille, _ uint32, last time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if last != shedLasts {
		return errors.New("another time")
	}
	f.sheds = append(f.sheds, permille)
	return nil
}

func (f *fake) Counts() (bpf.Verdicts, error) { return bpf.Verdicts{SYN: 5, Denied: 2}, nil }

func (f *fake) Ports() ([]bpf.PortCounts, error) {
	return []bpf.PortCounts{{Port: f.ports[0].Port, SYNs: 7, Dropped: 2}}, nil
}

func (f *fake) Mode() bpf.GuardMode { return max(f.opt.Mode, bpf.GuardNative) }

func (f *fake) NotNative() error { return nil }

func (f *fake) Pinned() (bool, string) { return f.opt.PinFolder != "", "why" }

func (f *fake) Adopted() bool { return false }

func (f *fake) ProgramID() uint32 { return 7 }

func (f *fake) Attached() bool { return !f.detached }

func (f *fake) Owned() bool { return !f.stolen }

func (f *fake) Detach() error { f.off = true; return nil }

func (f *fake) Close() { f.closed = true }

// kernel makes fakes, or fails as it is told.
type kernel struct {
	made []*fake
	err  error
}

func (k *kernel) attach(o bpf.GuardOptions) (kernelGuard, error) {
	if k.err != nil {
		return nil, k.err
	}
	k.made = append(k.made, &fake{opt: o})
	return k.made[len(k.made)-1], nil
}

func (k *kernel) last() *fake { return k.made[len(k.made)-1] }

func plan(t *testing.T, change func(*Settings)) *Plan {
	t.Helper()
	s := Settings{Interface: "eth0", Mode: "auto", Limits: Limits{SynPerSource: 100}, Shed: Shed{Auto: true}}
	if change != nil {
		change(&s)
	}
	p, err := Read(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// watched is a Keeper on a fake kernel; what it logs is kept.
type watched struct {
	*Keeper
	kernel  kernel
	signals Signals
	log     strings.Builder
}

func start(t *testing.T, p *Plan) *watched {
	t.Helper()
	w := &watched{}
	w.Keeper = New(Options{
		Log: slog.New(slog.NewTextHandler(&w.log, nil)), attach: w.kernel.attach, Signals: func() Signals { return w.signals },
	})
	if p != nil {
		if err := w.Start(p, 8080, 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Stop)
	}
	return w
}

func (w *watched) is(t *testing.T, what string, state State, words string) {
	t.Helper()
	if st := w.Status(); st.State != state || !strings.Contains(st.Reason+"; "+st.Remedy, words) {
		t.Errorf("%s: %s, %q, %q; want %s, %q", what, st.State, st.Reason, st.Remedy, state, words)
	}
}

func TestKeeper(t *testing.T) {
	dir := t.TempDir()
	deny := filepath.Join(dir, "deny")
	if err := os.WriteFile(deny, []byte("10.0.0.0/8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := start(t, plan(t, func(s *Settings) { s.DenyFile = deny; s.Limits.SynPerPort = 50 }))
	first := w.kernel.last()
	if first.opt.Interface != "eth0" || len(first.lists.Deny) != 1 || first.rate != (bpf.Rate{PerSecond: 100}) || fmt.Sprint(first.ports) != "[{8080 {50 0}}]" {
		t.Errorf("the kernel got %+v", first)
	}
	w.is(t, "started", StateOn, "")
	if st := w.Status(); st.Packets["denied"] != 2 || st.Ports["8080"] != (PortStatus{7, 2}) || st.Lists[Deny] != 1 || st.Shed.Setting != "auto" || st.ProgramID != 7 {
		t.Errorf("status: %+v", st)
	}

	w.Apply(plan(t, func(s *Settings) { s.Ports = []uint16{443, 80}; s.Limits = Limits{SynPerSource: 7, SynBurst: 9} }))
	if len(w.kernel.made) != 1 || len(first.lists.Deny) != 0 || first.rate != (bpf.Rate{PerSecond: 7, Burst: 9}) || len(first.ports) != 2 {
		t.Errorf("a reload that moves nothing: %d guards, %+v", len(w.kernel.made), first)
	}
	w.Apply(plan(t, func(s *Settings) { s.Interface = "eth1" }))
	if second := w.kernel.last(); !first.off || second.opt.Interface != "eth1" || len(w.kernel.made) != 2 {
		t.Errorf("another interface: %+v, %+v", first, second)
	}
	w.Apply(plan(t, func(s *Settings) { s.Off = "kernel.mode is off" }))
	if !w.kernel.last().off {
		t.Error("a guard that is not wanted was left")
	}
	w.is(t, "off", StateOff, "kernel.mode is off; set kernel.xdp.interface")
	if err := w.ChangeList(Deny, Add, nil); !errors.Is(err, ErrOff) {
		t.Errorf("a change of a guard that is off: %v", err)
	}
	w.kernel.err = bpf.ErrGuardForbidden
	w.Apply(plan(t, nil))
	w.is(t, "forbidden", StateOff, "CAP_NET_ADMIN")
}

// TestKeeperChanges: changes at run time hold until a reload.
func TestKeeperChanges(t *testing.T) {
	w := start(t, plan(t, nil))
	k := w.kernel.last()
	p := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	if err := errors.Join(w.ChangeList(Allow, Add, p), w.ChangeList(Deny, Replace, p), w.SetLimits(Limits{SynPerSource: 3}), w.SetShed(Shed{Share: 0.25})); err != nil {
		t.Fatal(err)
	}
	if len(k.lists.Allow) != 1 || len(k.lists.Deny) != 1 || k.rate.PerSecond != 3 || fmt.Sprint(k.sheds) != "[250]" || len(w.List(Allow)) != 1 || len(w.List(Deny)) != 1 {
		t.Errorf("the kernel got %+v", k)
	}
	for _, bad := range []error{w.SetShed(Shed{Share: 1.01}), w.SetShed(Shed{Share: math.NaN()}), w.SetLimits(Limits{SynPerPort: -1})} {
		if bad == nil {
			t.Error("a bad value was taken")
		}
	}
	w.Apply(plan(t, nil))
	if len(k.lists.Allow) != 0 || k.rate.PerSecond != 100 || w.Status().Shed.Setting != "auto" {
		t.Errorf("after a reload the kernel has %+v", k)
	}
}

// TestKeeperTries: what time may cure is tried again, and said once.
func TestKeeperTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, nil)
		w.kernel.err = fmt.Errorf("attach: %w", bpf.ErrGuardBusy)
		if err := w.Start(plan(t, nil), 8080, 0); err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		w.is(t, "busy", StateWaiting, "room for one")
		<-time.After(65 * time.Second)
		synctest.Wait()
		if n := strings.Count(w.log.String(), "the guard is off"); n != 1 {
			t.Errorf("said %d times that another is there", n)
		}
		w.mu.Lock()
		w.kernel.err = nil
		w.mu.Unlock()
		<-time.After(retryEvery + 2*renewEvery)
		w.is(t, "free again", StateOn, "")
		w.mu.Lock()
		w.kernel.last().detached = true // or the interface went away
		w.mu.Unlock()
		<-time.After(4 * renewEvery)
		w.is(t, "put back", StateOn, "")
		if len(w.kernel.made) != 2 || !w.kernel.made[0].closed {
			t.Errorf("%d guards were attached", len(w.kernel.made))
		}
		w.mu.Lock()
		w.kernel.last().stolen = true
		w.mu.Unlock()
		<-time.After(time.Minute)
		w.is(t, "taken over", StateGiven, "another process")
		if len(w.kernel.made) != 2 || w.kernel.last().off {
			t.Error("a guard that another process tends was touched")
		}
	})
}

// TestKeeperSheds: the share rises with the signals, is renewed, and ends.
func TestKeeperSheds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, plan(t, nil))
		k := w.kernel.last()
		<-time.After(10 * time.Second)
		synctest.Wait()
		if len(k.sheds) != 0 {
			t.Errorf("a calm fleet sheds %v", k.sheds)
		}
		w.mu.Lock()
		w.signals = Signals{Pressure: 1, Crowd: 1}
		w.mu.Unlock()
		<-time.After(20 * time.Second)
		synctest.Wait()
		if got := w.Status().Shed.Share; math.Abs(got-shedMost) > 1e-9 || k.sheds[0] > 200 || k.sheds[len(k.sheds)-1] != 900 || len(k.sheds) < 18 {
			t.Errorf("share %v, set: %v", got, k.sheds)
		}
		w.mu.Lock()
		w.signals = Signals{}
		w.mu.Unlock()
		<-time.After(30 * time.Second)
		synctest.Wait()
		set := len(k.sheds)
		if got := w.Status().Shed.Share; got != 0 || k.sheds[set-1] != 0 {
			t.Errorf("share %v, set: %v", got, k.sheds)
		}
		<-time.After(10 * time.Second)
		synctest.Wait()
		if len(k.sheds) != set {
			t.Error("nothing is renewed again and again")
		}
		if n := strings.Count(w.log.String(), "shedding of new connections began or ended"); n != 2 {
			t.Errorf("said %d times that shedding began or ended", n)
		}
		w.Stop()
	})
}

// TestKeeperRequired: kernel.mode require does not start without the guard.
func TestKeeperRequired(t *testing.T) {
	w := start(t, nil)
	w.kernel.err = bpf.ErrGuardUnknown
	if err := w.Start(plan(t, func(s *Settings) { s.Require = true }), 8080, 0); err == nil || !strings.Contains(err.Error(), "eth0") {
		t.Errorf("required and not there: %v", err)
	}
	w = start(t, nil)
	if err := w.Start(plan(t, func(s *Settings) { s.Require = true; s.Off = "kernel.xdp.interface is empty" }), 8080, 0); err != nil {
		t.Errorf("nothing is named, so nothing is required: %v", err)
	}
	w.Stop()
}

func TestReadNames(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("10.0.0.0/8\nx\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Read(Settings{Interface: "eth0", Mode: "auto", DenyFile: bad, AllowFile: bad + "2"})
	if err == nil || !strings.Contains(err.Error(), bad+":2: ") || !strings.Contains(err.Error(), bad+"2") {
		t.Errorf("two bad files: %v", err)
	}
	if p, err := Read(Settings{Off: "x", DenyFile: bad}); err != nil || p == nil {
		t.Errorf("files of a guard that is off: %v", err)
	}
}

// TestLimitsThatAreRefused are not shown as if they were in force.
func TestLimitsThatAreRefused(t *testing.T) {
	w := start(t, plan(t, nil))
	w.kernel.last().refuses = 1000
	if err := w.SetLimits(Limits{SynPerSource: 7, SynPerPort: 2000}); err == nil {
		t.Error("no error")
	}
	if got := w.Status().Limits; got != (Limits{SynPerSource: 100}) || w.kernel.last().rate.PerSecond != 100 {
		t.Errorf("limits are %+v, in the kernel %+v", got, w.kernel.last().rate)
	}
}

// TestChangesAfterTheGuardIsGiven do not reach the guard of the process that has it
// now.
func TestChangesAfterTheGuardIsGiven(t *testing.T) {
	w := start(t, plan(t, nil))
	f := w.kernel.last()
	f.stolen = true
	if err := w.SetLimits(Limits{SynPerSource: 7}); !errors.Is(err, ErrOff) || f.rate.PerSecond != 100 {
		t.Errorf("limits: %v, %+v", err, f.rate)
	}
	if err := w.ChangeList(Deny, Add, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}); !errors.Is(err, ErrOff) || len(f.lists.Deny) != 0 {
		t.Errorf("lists: %v, %+v", err, f.lists)
	}
	if err := w.SetShed(Shed{Share: 1}); !errors.Is(err, ErrOff) {
		t.Errorf("share: %v", err)
	}
}
