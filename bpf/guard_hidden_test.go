package bpf

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"
	"time"
)

// TestHiddenSYNs: the stack puts fragments together, and reads as many extension
// headers as there are; whoever sends a SYN so is judged all the same.
func TestHiddenSYNs(t *testing.T) {
	g := load(t)
	must(t, g.SetLists(someLists))
	const more, more6 = 0x2000, 1
	for name, c := range map[string]struct {
		packet
		want string
	}{
		"a fragment that is all":                 {packet{from: "2001:db8::1", extensions: []byte{44}}, "drop denied"},
		"... behind another extension":           {packet{from: "2001:db8::1", extensions: []byte{0, 44, 60}}, "drop denied"},
		"... of a source that is not denied":     {packet{from: "2001:db9::1", extensions: []byte{44}}, "pass syn"},
		"first fragment":                         {packet{from: "10.0.0.1", fragment: more}, "drop denied"},
		"first fragment, IPv6":                   {packet{from: "2001:db8::1", extensions: []byte{44}, fragment: more6}, "drop denied"},
		"first fragment of a connection":         {packet{from: "10.0.0.1", fragment: more, flags: psh | ack, payload: 80}, "pass established"},
		"first fragment of a connection, IPv6":   {packet{from: "2001:db8::1", extensions: []byte{44}, fragment: more6, flags: ack, payload: 80}, "pass established"},
		"first fragment of UDP":                  {packet{from: "10.0.0.1", fragment: more, protocol: 17}, "pass other"},
		"first fragment without the flags":       {packet{from: "192.0.2.9", fragment: more, cut: 12, short: 12}, "drop hidden"},
		"... filled up with other flags":         {packet{from: "192.0.2.9", fragment: more, flags: ack, short: 12}, "drop hidden"},
		"... with other flags, IPv6":             {packet{from: "2001:db9::9", extensions: []byte{44, 60}, fragment: more6, flags: ack, short: 12}, "drop hidden"},
		"first fragment that ends in extensions": {packet{from: "2001:db9::9", extensions: []byte{44, 60}, fragment: more6, cut: 35, short: 35}, "drop hidden"},
		"seven extensions":                       {packet{from: "2001:db9::9", extensions: bytes.Repeat([]byte{60}, 7)}, "drop hidden"},
		"ten":                                    {packet{from: "2001:db9::9", extensions: bytes.Repeat([]byte{60}, 10), flags: ack}, "drop hidden"},
		"a packet filled up":                     {packet{from: "192.0.2.9", short: 12}, "pass syn"}, // the stack's to find
	} {
		t.Run(name, func(t *testing.T) {
			g.judges(t, c.packet, c.want)
		})
	}
}

// TestRaisedLimitCountsAtOnce: a source, or a port, that has emptied a deep bucket
// which fills slowly need not wait until that one would be full.
func TestRaisedLimitCountsAtOnce(t *testing.T) {
	g := load(t)
	send := func(n int) {
		for i := range n {
			g.verdict(t, packet{from: "192.0.2.1", sourcePort: uint16(1 + i)}.bytes())
		}
	}
	comes := func() bool {
		for deadline := time.Now().Add(2 * time.Second); time.Now().Before(deadline); {
			if g.verdict(t, packet{from: "192.0.2.1"}.bytes()) == xdpPass {
				return true
			}
		}
		return false
	}
	must(t, g.SetSourceRate(Rate{PerSecond: 1, Burst: 600}))
	send(700)
	must(t, g.SetSourceRate(Rate{PerSecond: 1000, Burst: 100}))
	if !comes() {
		t.Error("a source waits for ten minutes after its limit was raised")
	}
	must(t, g.SetSourceRate(Rate{}))
	must(t, g.SetPorts([]PortCap{{Port: 8080, Rate: Rate{PerSecond: 1, Burst: 600}}}))
	send(700)
	must(t, g.SetPorts([]PortCap{{Port: 8080, Rate: Rate{PerSecond: 1000, Burst: 100}}}))
	if !comes() {
		t.Error("a port waits for ten minutes after its cap was raised")
	}
}

// TestFormerOwnerWritesNothing: in a hot restart the former process still has the
// maps, and may be about to renew what it sheds.
func TestFormerOwnerWritesNothing(t *testing.T) {
	l := newLab(t)
	opt := GuardOptions{PinFolder: filepath.Join(mountBPFFS(t), "warmpath")}
	former, err := l.attach(opt)
	must(t, err)
	defer former.Close()
	next, err := l.attach(opt)
	must(t, err)
	next.limits.OwnerBegan++ // as it is another process
	must(t, next.store())
	must(t, next.SetSourceRate(Rate{PerSecond: 5}))
	if err := former.SetShed(ShedAll, 1, time.Minute); !errors.Is(err, ErrGuardGiven) {
		t.Errorf("the former process sheds: %v", err)
	}
	if !next.Owned() || former.Owned() {
		t.Errorf("owned by the next %v, by the former %v", next.Owned(), former.Owned())
	}
	must(t, next.Detach())
}
