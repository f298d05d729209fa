package bpf

import (
	"encoding/binary"
	"net/netip"
)

// TCP flags.
const (
	fin = 1 << 0
	syn = 1 << 1
	rst = 1 << 2
	psh = 1 << 3
	ack = 1 << 4
)

// packet builds an Ethernet frame that carries a TCP segment. What is zero is
// left out, or what is usual.
type packet struct {
	from       string // source address
	sourcePort uint16
	port       uint16 // destination, 8080 unless set
	flags      byte   // syn unless set
	tags       []uint16
	options    int    // bytes of IPv4 options
	extensions []byte // IPv6 headers before TCP, by number
	fragment   uint16 // IPv4 flags and offset, or IPv6 offset and flag
	short      int    // bytes that the IP header says are missing at the end; the frame is filled up
	protocol   byte   // of IP, TCP unless set
	tcpOptions int    // bytes
	doff       byte   // of TCP, what fits unless set
	ihl        byte   // of IPv4, what fits unless set
	payload    int    // bytes
	cut        int    // bytes that are missing at the end
	ethernet   uint16 // EtherType, that of IP unless set
}

const (
	etherVLAN = 0x8100
	etherQinQ = 0x88a8
)

func (p packet) bytes() []byte {
	source := netip.MustParseAddr(p.from)
	ether := p.ethernet
	switch {
	case ether != 0:
	case source.Is4():
		ether = 0x0800
	default:
		ether = 0x86dd
	}
	frame := make([]byte, 12, 200)
	for i, tag := range p.tags {
		frame = binary.BigEndian.AppendUint16(frame, tag)
		frame = binary.BigEndian.AppendUint16(frame, uint16(10+i))
	}
	frame = binary.BigEndian.AppendUint16(frame, ether)
	if source.Is4() {
		frame = p.ipv4(frame, source)
	} else {
		frame = p.ipv6(frame, source)
	}
	frame = append(p.tcp(frame), make([]byte, p.payload)...)
	return frame[:len(frame)-p.cut]
}

func orElse[T comparable](v, usual T) T {
	var zero T
	if v == zero {
		return usual
	}
	return v
}

func (p packet) ipv4(frame []byte, source netip.Addr) []byte {
	head := make([]byte, 20+p.options)
	head[0] = 4<<4 | orElse(p.ihl, byte(len(head)/4))
	binary.BigEndian.PutUint16(head[2:], uint16(len(head)+20+p.tcpOptions+p.payload-p.short))
	binary.BigEndian.PutUint16(head[6:], p.fragment)
	head[8], head[9] = 64, orElse(p.protocol, 6)
	copy(head[12:], source.AsSlice())
	copy(head[16:], []byte{192, 0, 2, 1})
	return append(frame, head...)
}

func (p packet) ipv6(frame []byte, source netip.Addr) []byte {
	head := make([]byte, 40)
	head[0], head[7] = 6<<4, 64
	copy(head[8:], source.AsSlice())
	head[39] = 1
	at := 6 // where the number of the next header stands
	var rest []byte
	for _, number := range p.extensions {
		if at == 6 {
			head[6] = number
		} else {
			rest[at] = number
		}
		at = len(rest)
		switch number {
		case 51: // authentication: its length counts words, less two
			rest = append(rest, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
		default:
			rest = append(rest, make([]byte, 16)...)
			rest[at+1] = 1
		}
		if number == 44 { // fragment: it has no length
			rest = rest[:at+8]
			rest[at+1] = 0
			binary.BigEndian.PutUint16(rest[at+2:], p.fragment)
		}
	}
	last := orElse(p.protocol, 6)
	if len(p.extensions) == 0 {
		head[6] = last
	} else {
		rest[at] = last
	}
	binary.BigEndian.PutUint16(head[4:], uint16(len(rest)+20+p.tcpOptions+p.payload-p.short))
	return append(append(frame, head...), rest...)
}

func (p packet) tcp(frame []byte) []byte {
	head := make([]byte, 20+p.tcpOptions)
	binary.BigEndian.PutUint16(head, orElse(p.sourcePort, 40000))
	binary.BigEndian.PutUint16(head[2:], orElse(p.port, 8080))
	head[12] = orElse(p.doff, byte(len(head)/4)) << 4
	head[13] = orElse(p.flags, syn)
	return append(frame, head...)
}

// opens reports whether a frame is a TCP segment with SYN and without ACK, or
// hides whether it is one, as somebody reads it who knows the guard's bounds and
// nothing else of it.
func opens(frame []byte) bool {
	ether, rest := binary.BigEndian.Uint16(frame[12:]), frame[14:]
	for range 2 {
		if (ether != etherVLAN && ether != etherQinQ) || len(rest) < 4 {
			break
		}
		ether, rest = binary.BigEndian.Uint16(rest[2:]), rest[4:]
	}
	next, first, left, headers := byte(0), false, 0, 0
	switch {
	case ether == 0x0800 && len(rest) >= 20:
		length, fragment := int(rest[0]&15)*4, binary.BigEndian.Uint16(rest[6:])
		next, first, left = rest[9], fragment&0x2000 != 0, int(binary.BigEndian.Uint16(rest[2:]))-length
		if length < 20 || fragment&0x1fff != 0 || next != 6 {
			return false
		}
		rest = rest[min(length, len(rest)):]
	case ether == 0x86dd && len(rest) >= 40:
		next, left, rest = rest[6], int(binary.BigEndian.Uint16(rest[4:])), rest[40:]
		for next == 0 || next == 43 || next == 60 || next == 51 || next == 44 {
			if len(rest) < 2 || next == 44 && len(rest) < 8 {
				return first
			}
			length := (int(rest[1]) + 1) * 8
			switch next {
			case 51:
				length = (int(rest[1]) + 2) * 4
			case 44:
				length = 8
				fragment := binary.BigEndian.Uint16(rest[2:])
				if fragment&0xfff8 != 0 {
					return false
				}
				first = first || fragment&1 != 0
			}
			if headers++; headers > 6 {
				return true
			}
			next, left, rest = rest[0], left-length, rest[min(length, len(rest)):]
		}
	}
	switch {
	case next != 6:
		return false
	case len(rest) < 20 || first && left < 20:
		return first
	}
	return rest[13]&(syn|ack) == syn
}
