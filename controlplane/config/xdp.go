package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxPorts is how many ports the guard has room for.
const maxPorts = 64

// xdpKeys are the keys of the guard.
func xdpKeys(x *XDP) entry {
	return group("xdp", "the guard: which new connections get a handshake",
		leaf("interface", `""`, "where clients come in; empty = no guard", &x.Interface, interfaceName, quote),
		leaf("mode", "auto", "auto, native or generic", &x.Mode, choice("auto", "native", "generic"), plain),
		portsLeaf("ports", "guarded ones; none = the client side's", &x.Ports),
		leaf("deny_file", `""`, "one CIDR a line: their SYNs are dropped", &x.DenyFile, text("/etc/warmpath/deny"), quote),
		leaf("allow_file", `""`, "one CIDR a line: no rule here drops theirs", &x.AllowFile, text("/etc/warmpath/allow"), quote),
		leaf("syn_per_source", "100", "new connections a second of an IPv4 address or IPv6 /64; 0 = no bound", &x.SynPerSource, integer(0, 1000000), showInt[int]),
		leaf("syn_burst", "0", "of a source at once; 0 = twice those of a second", &x.SynBurst, integer(0, 10000000), showInt[int]),
		leaf("syn_per_port", "0", "new connections a second to a port, from everybody; 0 = no cap", &x.SynPerPort, integer(0, 10000000), showInt[int]),
		leaf("shed", "auto", "share of new connections to drop: auto = by the fleet's pressure, off, or fixed, such as 0.3", &x.Shed, shedShare, ShedShare.String),
		leaf("pin", "/sys/fs/bpf/warmpath", "folder in a bpffs by which the guard outlives the process; empty = it does not", &x.Pin, text("/sys/fs/bpf/warmpath"), quote))
}

// interfaceName reads "" or what Linux takes as the name of an interface.
func interfaceName(v item) (string, complaint) {
	s, c := text("eth0")(v)
	if c.none() && (len(s) > 15 || s == "." || s == ".." || strings.ContainsAny(s, "/: \t\n")) {
		c = complaint{"not the name of an interface", "write one that `ip link` shows, such as eth0"}
	}
	return s, c
}

// shedShare reads auto, off or a share.
func shedShare(v item) (ShedShare, complaint) {
	const remedy = "write auto, off or a share from 0 to 1, such as 0.3"
	switch {
	case v.kind == kindText && v.text == "auto":
		return ShedShare{Auto: true}, complaint{}
	case v.kind == kindText && v.text == "off", v.kind == kindBool && v.text == "false":
		return ShedShare{}, complaint{}
	case v.kind != kindNumber:
		return ShedShare{}, complaint{"neither auto, off nor a share", remedy}
	}
	f, c := number(0, 1)(v)
	if !c.none() {
		c.remedy = remedy
	}
	return ShedShare{Share: f}, c
}

// portsLeaf is a list of port numbers. Its default is empty.
func portsLeaf(key, doc string, to *[]uint16) entry {
	return entry{
		key: key, def: "[]", doc: doc,
		read: func(v item) complaint {
			const remedy = "write port numbers from 1 to 65535, such as [443, 8080]"
			if v.kind != kindList {
				return wrongType(v, "a list", remedy)
			}
			if len(v.list) > maxPorts {
				return complaint{"too many ports", fmt.Sprintf("use at most %d", maxPorts)}
			}
			out := make([]uint16, 0, len(v.list))
			for i, e := range v.list {
				n, err := strconv.ParseUint(e.text, 10, 16)
				if err != nil || n == 0 || e.text != strconv.FormatUint(n, 10) {
					return complaint{fmt.Sprintf("value %d (%s) is no port", i+1, e.shown()), remedy}
				}
				if slices.Contains(out, uint16(n)) {
					return complaint{fmt.Sprintf("value %d (%d) is given twice", i+1, n), "keep one of the two"}
				}
				out = append(out, uint16(n))
			}
			*to = out
			return complaint{}
		},
		show: func() string {
			words := make([]string, len(*to))
			for i, port := range *to {
				words[i] = strconv.Itoa(int(port))
			}
			return "[" + strings.Join(words, ", ") + "]"
		},
	}
}

// guarding refuses lists that nothing would look at.
func (d *decoder) guarding() {
	x := &d.config.Kernel.XDP
	for key, file := range map[string]string{"kernel.xdp.deny_file": x.DenyFile, "kernel.xdp.allow_file": x.AllowFile} {
		if file != "" && x.Interface == "" {
			d.refuse(key, d.places[key], quoteShort(file), complaint{"there is no guard that would use the list", "set kernel.xdp.interface to where clients come in, or remove the key"})
		}
	}
}
