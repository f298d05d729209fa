package bpf

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warmpath/netlab"
)

// frame returns the first captured frame with data that came from a port.
func (c *capture) frame(t *testing.T, port int) []byte {
	t.Helper()
	packet := make([]byte, 2048)
	for {
		n, from, err := unix.Recvfrom(c.fd, packet, 0)
		if err != nil {
			t.Fatalf("no frame with data: %v", err)
		}
		ip := packet[14:n]
		tcp := ip[int(ip[0]&15)*4 : binary.BigEndian.Uint16(ip[2:])]
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype != unix.PACKET_OUTGOING && int(binary.BigEndian.Uint16(tcp)) == port && len(tcp) > int(tcp[12]>>4)*4 {
			return packet[:n]
		}
	}
}

// again sends a frame of TCP over IPv4 as the node does.
func again(t *testing.T, l *netlab.Lab, frame []byte) {
	t.Helper()
	// On a veth nobody reckons the checksum, as what both ends trust.
	ip := frame[14:]
	tcp := ip[20:binary.BigEndian.Uint16(ip[2:])]
	clear(tcp[16:18])
	sum := uint32(unix.IPPROTO_TCP) + uint32(len(tcp))
	for _, part := range [][]byte{ip[12:20], tcp} {
		for i, b := range part {
			sum += uint32(b) << (8 * (1 - i&1))
		}
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(tcp[16:], ^uint16(sum))
	err := l.Node.In(func() error {
		i, err := net.InterfaceByName(l.Node.Link)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_IP)))
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_IP), Ifindex: i.Index})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSentAgainIsNoAnswer: the last segment of one answer, sent again while the
// next request waits, is not the start of that one's answer.
func TestSentAgainIsNoAnswer(t *testing.T) {
	l, f := netlab.New(t), loadAll(t)
	const thinks = 50 * time.Millisecond
	address := answering(l, thinks)
	_, port, _ := net.SplitHostPort(address)
	number, err := net.LookupPort("tcp", port)
	if err != nil {
		t.Fatal(err)
	}
	c, err := f.dialIn(l, address, 1, 1, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	caught := startCapture(t, l)
	s := f.slot(1)
	ask := func() {
		if _, err := c.Write([]byte("ask")); err != nil {
			t.Fatal(err)
		}
	}
	hear := func() {
		if n, err := c.Read(make([]byte, 8)); n != 3 {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
	s.SendNs, s.Seq = uint64(MonotonicNs()), 1
	ask()
	hear()
	if s.Answer != 1 || s.Bytes != 3 {
		t.Fatalf("of the first: %+v", s)
	}
	frame := caught.frame(t, number)
	s.SendNs, s.Seq = uint64(MonotonicNs()), 2
	ask()
	again(t, l, frame)
	hear()
	if n, err := f.Counters(1); err != nil || n.Segments != 3 {
		t.Fatalf("%+v, %v: the segment was not seen again", n, err)
	}
	if after := time.Duration(s.FirstNs - s.SendNs); s.Answer != 2 || after < thinks || s.Bytes != 3 || s.Segment[0].EndBytes != 3 {
		t.Errorf("the answer to %d began after %v, and has %d bytes, the first segment %d; the node thinks %v", s.Answer, after, s.Bytes, s.Segment[0].EndBytes, thinks)
	}
}
