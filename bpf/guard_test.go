package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"warmpath/netlab"
)

const (
	xdpDrop = 1
	xdpPass = 2
)

const hour = uint64(time.Hour) // a bucket that gets nothing back while a test runs

// load loads the guard for its program alone, with port 8080 guarded; it skips
// the test where that is not permitted, or the kernel lacks something.
func load(t testing.TB) *Guard {
	t.Helper()
	g, err := newGuard(nil)
	if errors.Is(err, ErrGuardForbidden) && os.Geteuid() != 0 {
		t.Skip("this process may not load BPF programs")
	}
	netlab.SkipLacking(t, err)
	var rejected *ebpf.VerifierError
	if errors.As(err, &rejected) {
		t.Fatalf("%+v", rejected)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	must(t, g.SetPorts([]PortCap{{Port: 8080}, {Port: 443}}))
	return g
}

// some is how often a test does something: with -short a twentieth, for machines
// that are emulated.
func some(n int) int {
	if testing.Short() {
		return n / 20
	}
	return n
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (g *Guard) verdict(t testing.TB, frame []byte) uint32 {
	t.Helper()
	v, err := g.objects.Guard.Run(&ebpf.RunOptions{Data: frame})
	if err != nil {
		t.Fatalf("run on %d bytes: %v", len(frame), err)
	}
	return v
}

// counted is what became of the packets that run sends, as text.
func (g *Guard) counted(t testing.TB, run func()) string {
	t.Helper()
	before, err := g.Counts()
	must(t, err)
	run()
	after, err := g.Counts()
	must(t, err)
	was := map[string]uint64{}
	before.Each(func(name string, n uint64) { was[name] = n })
	var b strings.Builder
	after.Each(func(name string, n uint64) {
		if n -= was[name]; n > 0 {
			fmt.Fprintf(&b, " %s:%d", name, n)
		}
	})
	return strings.TrimSpace(b.String())
}

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

var someLists = Lists{
	Allow: prefixes("10.1.0.0/16", "2001:db8:a::/48"),
	Deny:  prefixes("10.0.0.0/8", "10.1.2.0/24", "198.51.100.7/32", "2001:db8::/32", "2001:db8:a:1::/64"),
}

// TestVerdicts: each packet gets its verdict and is counted once.
func TestVerdicts(t *testing.T) {
	g := load(t)
	must(t, g.SetLists(someLists))
	many := func(header byte, n int) []byte { return bytes.Repeat([]byte{header}, n) }
	for name, c := range map[string]struct {
		packet
		want string
	}{
		"IPv4":                                   {packet{from: "192.0.2.9"}, "pass syn"},
		"IPv6":                                   {packet{from: "2001:db9::9"}, "pass syn"},
		"another guarded port":                   {packet{from: "192.0.2.9", port: 443}, "pass syn"},
		"a port that is not guarded":             {packet{from: "192.0.2.9", port: 22}, "pass unguarded"},
		"a denied source, not guarded":           {packet{from: "10.0.0.1", port: 22}, "pass unguarded"},
		"data":                                   {packet{from: "192.0.2.9", flags: psh | ack, payload: 100}, "pass established"},
		"an answer to our SYN":                   {packet{from: "192.0.2.9", flags: syn | ack}, "pass established"},
		"a reset":                                {packet{from: "192.0.2.9", flags: rst}, "pass established"},
		"a denied source, established":           {packet{from: "10.0.0.1", flags: ack}, "pass established"},
		"a denied source, its end":               {packet{from: "10.0.0.1", flags: fin | ack}, "pass established"},
		"denied":                                 {packet{from: "10.0.0.1"}, "drop denied"},
		"denied, one address":                    {packet{from: "198.51.100.7"}, "drop denied"},
		"beside a denied address":                {packet{from: "198.51.100.8"}, "pass syn"},
		"denied, IPv6":                           {packet{from: "2001:db8::1"}, "drop denied"},
		"allowed inside denied":                  {packet{from: "10.1.0.1"}, "pass allowed"},
		"denied inside allowed":                  {packet{from: "10.1.2.1"}, "pass allowed"},
		"allowed, IPv6":                          {packet{from: "2001:db8:a::1"}, "pass allowed"},
		"denied inside allowed, IPv6":            {packet{from: "2001:db8:a:1::1"}, "pass allowed"},
		"SYN and FIN":                            {packet{from: "10.0.0.1", flags: syn | fin}, "drop denied"},
		"SYN with data":                          {packet{from: "10.0.0.1", payload: 200}, "drop denied"},
		"SYN with TCP options":                   {packet{from: "10.0.0.1", tcpOptions: 20}, "drop denied"},
		"IPv4 options":                           {packet{from: "10.0.0.1", options: 40}, "drop denied"},
		"one tag":                                {packet{from: "10.0.0.1", tags: []uint16{etherVLAN}}, "drop denied"},
		"two tags":                               {packet{from: "2001:db8::1", tags: []uint16{etherQinQ, etherVLAN}}, "drop denied"},
		"three tags":                             {packet{from: "10.0.0.1", tags: []uint16{etherQinQ, etherVLAN, etherVLAN}}, "pass other"},
		"a tag and nothing":                      {packet{from: "10.0.0.1", tags: []uint16{etherVLAN}, cut: 42}, "pass malformed"},
		"hop by hop":                             {packet{from: "2001:db8::1", extensions: []byte{0}}, "drop denied"},
		"hop by hop, routing, AH, destination":   {packet{from: "2001:db8::1", extensions: []byte{0, 43, 51, 60}}, "drop denied"},
		"as many extensions as are followed":     {packet{from: "2001:db8::1", extensions: many(60, 6)}, "drop denied"},
		"one more":                               {packet{from: "2001:db8::1", extensions: many(60, 7)}, "drop hidden"},
		"an extension cut":                       {packet{from: "2001:db8::1", extensions: []byte{0}, cut: 35}, "pass malformed"},
		"UDP behind an extension":                {packet{from: "2001:db8::1", extensions: []byte{60}, protocol: 17}, "pass other"},
		"IPv6 later fragment":                    {packet{from: "2001:db8::1", extensions: []byte{44}, fragment: 8}, "pass fragment"},
		"IPv6 fragment behind another extension": {packet{from: "2001:db8::1", extensions: []byte{0, 44}, fragment: 9}, "pass fragment"},
		"later fragment":                         {packet{from: "10.0.0.1", fragment: 0x0007}, "pass fragment"},
		"do not fragment":                        {packet{from: "10.0.0.1", fragment: 0x4000}, "drop denied"},
		"UDP":                                    {packet{from: "10.0.0.1", protocol: 17}, "pass other"},
		"ICMPv6":                                 {packet{from: "2001:db8::1", protocol: 58}, "pass other"},
		"ARP":                                    {packet{from: "10.0.0.1", ethernet: 0x0806}, "pass other"},
		"IPv4 cut":                               {packet{from: "10.0.0.1", cut: 21}, "pass malformed"},
		"IPv6 cut":                               {packet{from: "2001:db8::1", cut: 21}, "pass malformed"},
		"TCP cut":                                {packet{from: "10.0.0.1", cut: 1}, "pass malformed"},
		"TCP cut, IPv6":                          {packet{from: "2001:db8::1", cut: 1}, "pass malformed"},
		"an IPv4 header too short":               {packet{from: "10.0.0.1", ihl: 4}, "pass malformed"},
		"an IPv4 header longer than the packet":  {packet{from: "10.0.0.1", ihl: 15}, "pass malformed"},
		"a TCP header too short":                 {packet{from: "10.0.0.1", doff: 4}, "pass malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			g.judges(t, c.packet, c.want)
		})
	}
}

// judges wants a verdict and a reason, "drop denied", of one packet.
func (g *Guard) judges(t *testing.T, p packet, want string) {
	t.Helper()
	var v uint32
	counted := g.counted(t, func() { v = g.verdict(t, p.bytes()) })
	verdict, reason, _ := strings.Cut(want, " ")
	if code := map[string]uint32{"pass": xdpPass, "drop": xdpDrop}[verdict]; v != code || counted != reason+":1" {
		t.Errorf("verdict %d, counted %q; want %s", v, counted, want)
	}
	if v == xdpDrop && !opens(p.bytes()) {
		t.Error("the test's own reader takes it for no SYN, hidden or not")
	}
}

// TestSourceRate: a source has what its bucket holds; what a /64 is, is one source.
func TestSourceRate(t *testing.T) {
	g := load(t)
	g.limits.IntervalNs, g.limits.DepthNs = hour, 3*hour
	must(t, g.put())
	must(t, g.SetLists(Lists{Allow: prefixes("203.0.113.0/24")}))
	for name, c := range map[string]struct {
		from []string // in turns
		sent int
		want string
	}{
		"one address":             {[]string{"192.0.2.1"}, 10, "syn:3 rate:7"},
		"another":                 {[]string{"192.0.2.2"}, 4, "syn:3 rate:1"},
		"two in turns":            {[]string{"192.0.2.3", "192.0.2.4"}, 8, "syn:6 rate:2"},
		"a /64":                   {[]string{"2001:db8::1", "2001:db8::ffff:2"}, 8, "syn:3 rate:5"},
		"two of them":             {[]string{"2001:db8:0:1::1", "2001:db8:0:2::1"}, 8, "syn:6 rate:2"},
		"one on the allow list":   {[]string{"203.0.113.9"}, 10, "allowed:10"},
		"all zeros are no others": {[]string{"::1", "0.0.0.1"}, 8, "syn:6 rate:2"},
	} {
		t.Run(name, func(t *testing.T) {
			got := g.counted(t, func() {
				for i := range c.sent {
					g.verdict(t, packet{from: c.from[i%len(c.from)], sourcePort: uint16(1 + i)}.bytes())
				}
			})
			if got != c.want {
				t.Errorf("counted %q, want %q", got, c.want)
			}
		})
	}
}

// TestRefill: the kernel's clock cannot be set, so the bucket's rate is what is
// changed: one that fills faster than anybody can send never runs dry, one that
// does not fill stays dry, and a dry one fills once its rate is raised.
func TestRefill(t *testing.T) {
	g := load(t)
	send := func(n int) string {
		return g.counted(t, func() {
			for range n {
				g.verdict(t, packet{from: "192.0.2.1"}.bytes())
			}
		})
	}
	for _, c := range []struct {
		what            string
		interval, depth uint64
		want            string
	}{
		{"never refilled", hour, 2 * hour, "syn:2 rate:98"},
		{"off", 0, 0, "syn:100"},
		{"still dry, as time has not passed", hour, 2 * hour, "rate:100"},
		{"deeper by five", hour, 7 * hour, "syn:5 rate:95"},
		{"refilled at once", 1, 8 * hour, "syn:100"},
	} {
		g.limits.IntervalNs, g.limits.DepthNs = c.interval, c.depth
		must(t, g.put())
		if got := send(100); got != c.want {
			t.Errorf("%s: counted %q, want %q", c.what, got, c.want)
		}
	}
	// A real rate, beside a bucket of the test's own by the same clock.
	const perSecond, burst = 200, 20
	must(t, g.SetSourceRate(Rate{PerSecond: perSecond, Burst: burst}))
	began := coarse(t)
	passed, want, tokens, last := 0, 0, float64(burst), began
	for last-began < 300*time.Millisecond {
		if g.verdict(t, packet{from: "192.0.2.77"}.bytes()) == xdpPass {
			passed++
		}
		now := coarse(t)
		tokens, last = min(tokens+(now-last).Seconds()*perSecond, burst), now
		if tokens >= 1 {
			tokens--
			want++
		}
	}
	if passed < want-6 || passed > want+6 {
		t.Errorf("%d a second and %d at once let %d through, want %d", perSecond, burst, passed, want)
	}
}

// coarse is the guard's clock: ticks that come late beside other work are late in it.
func coarse(t *testing.T) time.Duration {
	t.Helper()
	var ts unix.Timespec
	must(t, unix.ClockGettime(unix.CLOCK_MONOTONIC_COARSE, &ts))
	return time.Duration(ts.Nano())
}

func TestRateBuckets(t *testing.T) {
	for _, c := range []struct {
		Rate
		interval, depth time.Duration
	}{
		{Rate{}, 0, 0},
		{Rate{PerSecond: 100}, 10 * time.Millisecond, 2 * time.Second},
		{Rate{PerSecond: 100, Burst: 10}, 10 * time.Millisecond, 100 * time.Millisecond},
		{Rate{PerSecond: 1, Burst: 1}, time.Second, time.Second + 20*time.Millisecond},
		{Rate{PerSecond: 1000, Burst: 1}, time.Millisecond, 21 * time.Millisecond}, // the clock's tick
		{Rate{PerSecond: 4_000_000_000}, 1, 8_000_000_000},
	} {
		if i, d := c.bucket(); time.Duration(i) != c.interval || time.Duration(d) != c.depth {
			t.Errorf("%+v: %v deep %v, want %v deep %v", c.Rate, time.Duration(i), time.Duration(d), c.interval, c.depth)
		}
	}
}

// TestPortCap: a port takes so many, from whomever, and another its own.
func TestPortCap(t *testing.T) {
	g := load(t)
	index := func(port uint16) uint32 {
		rules, err := g.rules()
		must(t, err)
		return rules[port].Index
	}
	must(t, g.objects.Ports.Put(uint16(8080), &guardPortRule{Index: index(8080), IntervalNs: hour, DepthNs: 5 * hour}))
	must(t, g.SetLists(Lists{Allow: prefixes("203.0.113.0/24")}))
	got := g.counted(t, func() {
		for i := range 10 {
			g.verdict(t, packet{from: fmt.Sprintf("192.0.2.%d", i)}.bytes())
			g.verdict(t, packet{from: "192.0.2.1", port: 443}.bytes())
			g.verdict(t, packet{from: "203.0.113.1"}.bytes())
		}
	})
	if want := "syn:15 allowed:10 port_cap:5"; got != want {
		t.Errorf("counted %q, want %q", got, want)
	}
	ports, err := g.Ports()
	must(t, err)
	if want := (PortCounts{8080, 20, 5}); len(ports) != 2 || ports[1] != want || ports[0] != (PortCounts{443, 10, 0}) {
		t.Errorf("ports: %+v", ports)
	}
	// A port that stays goes on with its counts; one that is new has none.
	must(t, g.SetPorts([]PortCap{{Port: 8080}, {Port: 9000}}))
	if ports, err = g.Ports(); err != nil || len(ports) != 2 || ports[0] != (PortCounts{8080, 20, 5}) || ports[1] != (PortCounts{9000, 0, 0}) {
		t.Errorf("ports after a change: %+v, %v", ports, err)
	}
	if err := g.SetPorts(make([]PortCap, MaxGuardPorts+1)); err == nil {
		t.Error("more ports than there is room for were taken")
	}
}

// TestShed: the share is dropped, the same connections each time, until it lapses.
func TestShed(t *testing.T) {
	g := load(t)
	must(t, g.SetLists(Lists{Allow: prefixes("203.0.113.0/24")}))
	connections := float64(some(4000))
	shed := func() (dropped map[int]bool) {
		dropped = map[int]bool{}
		for i := range int(connections) {
			p := packet{from: fmt.Sprintf("192.0.%d.%d", i%3, i%251), sourcePort: uint16(1024 + i)}
			if i%2 == 1 {
				p.from = fmt.Sprintf("2001:db8::%x:%x", i%3, i)
			}
			if g.verdict(t, p.bytes()) == xdpDrop {
				dropped[i] = true
			}
		}
		return dropped
	}
	for _, permille := range []uint32{0, 1, 100, 500, 999, 1000, 4000} {
		must(t, g.SetShed(permille, 42, time.Hour))
		got, want := float64(len(shed())), float64(min(permille, 1000))/1000*connections
		if math.Abs(got-want) > 3*math.Sqrt(connections)/2 || permille == 0 && got > 0 || permille >= 1000 && got < connections {
			t.Errorf("%d of 1000: %.0f of %.0f dropped", permille, got, connections)
		}
	}
	must(t, g.SetShed(300, 42, time.Hour))
	first, again := shed(), shed()
	if fmt.Sprint(first) != fmt.Sprint(again) {
		t.Error("SYNs that were sent again met another verdict")
	}
	must(t, g.SetShed(600, 42, time.Hour))
	more := shed()
	for i := range first {
		if !more[i] {
			t.Fatal("a higher share let through what a lower one had dropped")
		}
	}
	must(t, g.SetShed(300, 43, time.Hour))
	if fmt.Sprint(first) == fmt.Sprint(shed()) {
		t.Error("another salt chose the same")
	}
	must(t, g.SetShed(1000, 42, time.Hour))
	if v := g.verdict(t, packet{from: "203.0.113.1"}.bytes()); v != xdpPass {
		t.Error("a source on the allow list was shed")
	}
	must(t, g.SetShed(1000, 42, -time.Second))
	if n := len(shed()); n > 0 {
		t.Errorf("%d were shed after the share had lapsed", n)
	}
}

// TestReplaceLists: while lists are exchanged again and again, what is on both
// of them meets no other verdict, and what is on neither neither.
func TestReplaceLists(t *testing.T) {
	exchanges := some(40) // each waits until no CPU is in the old list
	g := load(t)
	long := Lists{Deny: prefixes("10.0.0.0/8", "2001:db8::/32")}
	for i := range 500 {
		long.Deny = append(long.Deny, netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)}), 32))
	}
	short := Lists{Deny: prefixes("10.0.0.0/8", "2001:db8::/32", "192.168.0.0/16")}
	must(t, g.SetLists(short))
	done := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < exchanges && err == nil; i++ {
			if i%2 == 0 {
				err = g.SetLists(long)
			} else {
				err = g.SetLists(short)
			}
		}
		done <- err
	}()
	denied, denied6, free := packet{from: "10.3.2.1"}.bytes(), packet{from: "2001:db8::5"}.bytes(), packet{from: "192.0.2.1"}.bytes()
	for runs := 0; ; runs++ {
		select {
		case err := <-done:
			must(t, err)
			if runs < exchanges {
				t.Errorf("only %d packets met %d exchanges", runs, exchanges)
			}
			must(t, g.SetLists(Lists{}))
			if g.verdict(t, denied) != xdpPass || g.verdict(t, denied6) != xdpPass {
				t.Error("a list that was emptied still counts")
			}
			return
		default:
		}
		if g.verdict(t, denied) != xdpDrop || g.verdict(t, denied6) != xdpDrop {
			t.Fatal("a source on both lists was let through")
		}
		if g.verdict(t, free) != xdpPass {
			t.Fatal("a source on neither list was dropped")
		}
	}
}

// TestListsAgree: the trie says what the two lists say, address by address.
func TestListsAgree(t *testing.T) {
	g := load(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range some(20) {
		var l Lists
		for range 40 {
			p, _ := randomAddr(r).Prefix(r.IntN(25))
			if r.IntN(2) == 0 {
				l.Allow = append(l.Allow, p)
			} else {
				l.Deny = append(l.Deny, p)
			}
		}
		must(t, g.SetLists(l))
		for range 200 {
			a := randomAddr(r)
			in := func(list []netip.Prefix) bool {
				for _, p := range list {
					if p.Contains(a) {
						return true
					}
				}
				return false
			}
			want := "syn:1"
			if in(l.Allow) {
				want = "allowed:1"
			} else if in(l.Deny) {
				want = "denied:1"
			}
			if got := g.counted(t, func() { g.verdict(t, packet{from: a.String()}.bytes()) }); got != want {
				t.Fatalf("%v: %s, want %s\nallow %v\ndeny %v", a, got, want, l.Allow, l.Deny)
			}
		}
	}
}

// randomAddr is an address of a small part of either family, so that lists meet it.
func randomAddr(r *rand.Rand) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], r.Uint64()&0x00070707ffffffff)
	if r.IntN(2) == 0 {
		b[0] = 0x20
		return netip.AddrFrom16(b)
	}
	return netip.AddrFrom4([4]byte(b[:4]))
}

// FuzzGuard: no packet but a SYN, or what may hide one, is ever dropped, and each is counted once,
// whatever it looks like.
func FuzzGuard(f *testing.F) {
	g := load(f)
	must(f, g.SetLists(Lists{Deny: prefixes("0.0.0.0/0", "::/0")}))
	must(f, g.SetPorts([]PortCap{{Port: 8080}, {Port: 0}}))
	for _, p := range []packet{
		{from: "10.0.0.1"},
		{from: "10.0.0.1", flags: ack},
		{from: "10.0.0.1", options: 8, tags: []uint16{etherVLAN}},
		{from: "2001:db8::1", extensions: []byte{0, 43, 51, 60}},
		{from: "2001:db8::1", extensions: []byte{44}},
		{from: "10.0.0.1", fragment: 0x2000, short: 1},
		{from: "10.0.0.1", cut: 20},
	} {
		f.Add(p.bytes())
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < 14 || len(frame) > 1500 { // what the kernel takes to run it on
			return
		}
		var v uint32
		counted := g.counted(t, func() { v = g.verdict(t, frame) })
		if v != xdpPass && v != xdpDrop {
			t.Fatalf("verdict %d", v)
		}
		if v == xdpDrop && !opens(frame) {
			t.Errorf("dropped and no SYN: %x", frame)
		}
		if !strings.HasSuffix(counted, ":1") || strings.Contains(counted, " ") || (v == xdpDrop) != (counted == "denied:1" || counted == "hidden:1") {
			t.Errorf("verdict %d, counted %q: %x", v, counted, frame)
		}
	})
}

// TestGuardRandom is the fuzz target's own mutation of good packets, so that each
// run of the tests has some.
func TestGuardRandom(t *testing.T) {
	g := load(t)
	must(t, g.SetLists(Lists{Deny: prefixes("0.0.0.0/0", "::/0")}))
	r := rand.New(rand.NewPCG(uint64(unix.Getpid()), 7))
	dropped := 0
	packets := some(20_000)
	for range packets {
		p := packet{from: randomAddr(r).String(), flags: byte(r.Uint32()), payload: r.IntN(8), options: 4 * r.IntN(3)}
		for range r.IntN(4) {
			p.extensions = append(p.extensions, []byte{0, 43, 60, 51, 44}[r.IntN(5)])
		}
		frame := p.bytes()
		for range r.IntN(3) {
			frame[12+r.IntN(len(frame)-12)] = byte(r.Uint32())
		}
		frame = frame[:len(frame)-r.IntN(min(20, len(frame)-14))]
		if v := g.verdict(t, frame); v == xdpDrop {
			dropped++
			if !opens(frame) {
				t.Fatalf("dropped and no SYN: %x", frame)
			}
		}
	}
	if dropped < packets/200 {
		t.Errorf("only %d of %d were SYNs to the guarded port: the test says little", dropped, packets)
	}
}
