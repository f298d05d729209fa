package bpf

import (
	"encoding/binary"
	"net"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"warmpath/netlab"
)

const captureBytes = 4 << 20

// capture reads what arrives on an interface of the router's, with the kernel's
// own time stamps: what tcpdump would print.
type capture struct{ fd int }

func startCapture(t *testing.T, l *netlab.Lab) *capture {
	t.Helper()
	c := &capture{}
	err := l.Router.In(func() (err error) {
		i, err := net.InterfaceByName(l.Router.Link)
		if err != nil {
			return err
		}
		if c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(htons(unix.ETH_P_IP))); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
			return err
		}
		// All is read at the end. What a small packet takes of the buffer differs
		// between kernels, and 200 of them are too many for the default of some.
		if err := unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, captureBytes); err != nil {
			return err
		}
		return unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_IP), Ifindex: i.Index})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(c.fd) })
	return c
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// dataNs returns when segments with data arrived from a port, by CLOCK_REALTIME:
// each once, as a node that waits long for an acknowledgement sends one again.
func (c *capture) dataNs(t *testing.T, port int) (atNs []uint64) {
	t.Helper()
	seen := map[uint32]bool{}
	packet, control := make([]byte, 2048), make([]byte, 256)
	for {
		n, cn, _, from, err := unix.Recvmsg(c.fd, packet, control, 0)
		if err == unix.EAGAIN {
			return atNs
		}
		if err != nil {
			t.Fatal(err)
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); !ok || ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		ip := packet[14:n]
		tcp := ip[int(ip[0]&15)*4 : binary.BigEndian.Uint16(ip[2:])]
		if ip[9] != unix.IPPROTO_TCP || int(binary.BigEndian.Uint16(tcp)) != port || len(tcp) == int(tcp[12]>>4)*4 {
			continue
		}
		if seq := binary.BigEndian.Uint32(tcp[4:]); seen[seq] {
			continue
		} else {
			seen[seq] = true
		}
		messages, err := unix.ParseSocketControlMessage(control[:cn])
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range messages {
			if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS {
				ts := (*unix.Timespec)(unsafe.Pointer(unsafe.SliceData(m.Data)))
				atNs = append(atNs, uint64(ts.Nano()))
			}
		}
	}
}

// realAheadNs is how far CLOCK_REALTIME is before CLOCK_MONOTONIC.
func realAheadNs(t *testing.T) int64 {
	t.Helper()
	least := int64(1 << 62)
	for range 8 {
		mono := uint64(MonotonicNs())
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_REALTIME, &ts); err != nil {
			t.Fatal(err)
		}
		least = min(least, ts.Nano()-int64(mono))
	}
	return least
}

// TestTimesAreTheWires compares what the slots say of segments with a capture of
// the packets. The median is asserted, for a machine that others use stops
// between the two looks now and then.
func TestTimesAreTheWires(t *testing.T) {
	l, f := netlab.New(t), loadAll(t)
	const thinks = 2 * time.Millisecond
	address := answering(l, thinks)
	c, err := f.dialIn(l, address, 1, 1, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	captured := startCapture(t, l)
	s, port := f.slot(1), c.RemoteAddr().(*net.TCPAddr).Port
	var kernelNs []uint64
	var tripsNs []int64
	const requests = 200
	for i := range requests {
		s.SendNs, s.Seq = uint64(MonotonicNs()), uint32(i+1)
		_, _ = c.Write([]byte("x"))
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		kernelNs = append(kernelNs, s.FirstNs)
		tripsNs = append(tripsNs, int64(uint64(MonotonicNs())-s.SendNs)-int64(thinks))
	}
	wireNs := captured.dataNs(t, port)
	if len(wireNs) != requests {
		t.Fatalf("%d segments were captured, want %d", len(wireNs), requests)
	}
	ahead := realAheadNs(t)
	var apartNs []int64
	for i := range wireNs {
		apartNs = append(apartNs, int64(kernelNs[i])+ahead-int64(wireNs[i]))
	}
	t.Log(realAheadNs(t)-ahead, realAheadNs(t)-ahead, apartNs[:20])
	for i := range 10 {
		t.Log("wire", int64(wireNs[i])-ahead-int64(kernelNs[0]), "kernel", kernelNs[i]-kernelNs[0])
	}
	slices.Sort(apartNs)
	slices.Sort(tripsNs)
	// The capture looks after TCP has. How long that takes goes with the machine,
	// as the round trip does: an emulated one is a hundred times slower.
	most := max(100_000, tripsNs[requests/2]/5)
	t.Logf("the slot's times are behind the capture's by %d ns (median), %d (p5), %d (p95)", apartNs[requests/2], apartNs[requests/20], apartNs[requests*19/20])
	if m := apartNs[requests/2]; m < -most || m > most {
		t.Errorf("the slot's times are %d ns apart from the capture's, want less than %d", m, most)
	}
}

// TestWhoWaitsBeforeItWrites: between the note of the time and the write the router
// may be kept waiting, by whoever has its core. That is not the node's; nor is it
// the router's that a packet was lost.
func TestWhoWaitsBeforeItWrites(t *testing.T) {
	l, f := netlab.New(t), loadAll(t)
	const thinks, waits = 3 * time.Millisecond, 40 * time.Millisecond
	c, err := f.dialIn(l, answering(l, thinks), 1, 1, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := f.slot(1)
	send := func(seq uint32) (noted uint64) {
		noted = uint64(MonotonicNs())
		s.SendNs, s.Seq = noted, seq
		<-time.After(waits)
		_, _ = c.Write([]byte("x"))
		return noted
	}
	for seq := uint32(1); seq <= 20; seq++ {
		noted := send(seq)
		wrote := uint64(MonotonicNs())
		if _, err := c.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if s.Out != seq || s.OutNs < noted+uint64(waits) || s.OutNs > wrote || s.FirstNs < s.OutNs+uint64(thinks) {
			t.Errorf("request %d, of %d: went out at %d (of %d), answered at %d; %v before the write, which ended at %d", seq, noted, s.OutNs, s.Out, s.FirstNs, waits, wrote)
		}
		s.Seq = 0
	}
	l.Lose(1000)
	noted := send(21)
	<-time.After(100 * time.Millisecond)
	l.Lose(0)
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if s.Answer != 21 || s.Out == 21 && s.OutNs > noted+uint64(waits+50*time.Millisecond) {
		t.Errorf("what was lost and sent again went out %v after it was noted", time.Duration(s.OutNs-noted))
	}
}
