package config

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"warmpath/controlplane/discover"
	"warmpath/controlplane/engine"
	"warmpath/controlplane/state"
)

// maxDNSNames leaves room for the other sources of nodes.
const maxDNSNames = 8

func dnsNames(d *Discovery) entry {
	return entry{key: "dns", def: "[]", doc: "names whose records are nodes, called by address and port", open: &list{
		length:   func() int { return len(d.DNS) },
		grow:     func() { d.DNS = append(d.DNS, DNSName{}) },
		elements: func(i int) []entry { return dnsKeys(&d.DNS[i]) },
		example:  map[string]string{"name": "vllm.example.net", "port": "8000"},
		aside:    true, // nobody wants to look that name up
		required: map[string]complaint{"name": {"no name is to be looked up", "add name: and a host name"}},
	}}
}

func dnsKeys(n *DNSName) []entry {
	keys := []entry{
		leaf("name", "", "as it is looked up", &n.Name, text("vllm.example.net"), shownName),
		leaf("record", "a", "a, aaaa or srv", &n.Record, choice(discover.Records...), plain),
		leaf("port", "0", "of the nodes; needed but with srv", &n.Port, integer(0, math.MaxUint16), showInt[int]),
		leaf("interval", "30s", "between two look-ups", &n.Interval, duration(time.Second, time.Hour, false), showDuration),
		leaf("server", `""`, "host:port of a DNS server; empty = the host's", &n.Server, dnsServer, quote),
		texts("models", "empty = asked from the engines", &n.Models, inList(state.CheckModel), asIs),
		leaf("engine", "auto", "as of nodes", &n.Engine, choice(engine.Names()...), plain),
		leaf("island", `""`, "", &n.Island, label, quote),
		leaf("region", `""`, "", &n.Region, label, quote),
		leaf("weight", "1.0", "capacity class", &n.Weight, number(state.MinCapacityClass, state.MaxCapacityClass), showNumber),
		leaf("max_in_flight", "0", "requests at once at each; 0 = no cap", &n.MaxInFlight, integer(0, state.MostInFlight), showInt[int]),
	}
	for i := range keys {
		keys[i] = keys[i].atRestart()
	}
	return keys
}

func kubernetesKeys(k *Kubernetes) entry {
	e := group("kubernetes", "the EndpointSlices of a service",
		leaf("kubeconfig", `""`, "empty = the cluster that this runs in", &k.Kubeconfig, text("/etc/warmpath/kubeconfig"), quote),
		leaf("context", `""`, "", &k.Context, text("prod"), quote),
		leaf("namespace", `""`, "empty = the kubeconfig's, or the pod's own", &k.Namespace, text("inference"), quote),
		leaf("service", `""`, "whose endpoints are nodes; empty = none", &k.Service, text("vllm"), quote),
		leaf("selector", `""`, "labels of the slices, in place of service", &k.Selector, text("app=vllm"), quote),
		leaf("port", `""`, "number, or name in the slices; empty = the one that they have", &k.Port, portText, quote),
		texts("models", "empty = asked from the engines", &k.Models, inList(state.CheckModel), asIs),
		leaf("engine", "auto", "as of nodes", &k.Engine, choice(engine.Names()...), plain),
		leaf("island", `""`, "", &k.Island, label, quote),
		leaf("region", `""`, "", &k.Region, label, quote),
		leaf("weight", "1.0", "capacity class", &k.Weight, number(state.MinCapacityClass, state.MaxCapacityClass), showNumber),
		leaf("max_in_flight", "0", "requests at once at each; 0 = no cap", &k.MaxInFlight, integer(0, state.MostInFlight), showInt[int]))
	restartAll(e.children)
	return e
}

// dnsServer is the host and port of a server, or nothing.
func dnsServer(v item) (string, complaint) {
	s, c := textLike(v, "10.0.0.2:53")
	if !c.none() || s == "" {
		return s, c
	}
	host, port, err := net.SplitHostPort(s)
	number, portErr := strconv.ParseUint(port, 10, 16)
	_, addressErr := netip.ParseAddr(host)
	if err != nil || portErr != nil || number == 0 || addressErr != nil && !state.IsHostName(host) {
		return s, complaint{"not host:port", "write the server's address and port, such as 10.0.0.2:53 or [fd00::2]:53"}
	}
	return s, complaint{}
}

// isRecordName reports whether a name can be looked up: a host name, of which labels
// may begin with an underscore for service records (RFC 2782).
func isRecordName(name, record string) bool {
	name = strings.TrimSuffix(name, ".")
	if record == discover.RecordSRV {
		name = strings.ReplaceAll("."+name, "._", ".")[1:]
	}
	return state.IsHostName(name)
}

// discovering refuses names that cannot be looked up, and the same one twice.
func (d *decoder) discovering() {
	names, reg := d.config.Discovery.DNS, &d.config.Discovery.Register
	switch {
	case reg.Enabled && reg.Token == "":
		key, at := d.at("discovery.register.enabled")
		d.refuse(key, at, "true", complaint{"nodes have no token to register with", "set discovery.register.token"})
	case reg.Token != "" && reg.Token == d.config.Admin.Token:
		key, at := d.at("discovery.register.token")
		d.refuse(key, at, "(hidden)", complaint{"it is admin.token, which opens everything", "use another one"})
	}
	if k := &d.config.Discovery.Kubernetes; k.Service != "" && k.Selector != "" {
		d.contradiction("discovery.kubernetes.service", "discovery.kubernetes.selector", "both say which slices are followed", "keep one of the two")
	}
	if len(names) > maxDNSNames {
		d.refuse("discovery.dns", d.places["discovery.dns"], strconv.Itoa(len(names)), complaint{"too many names", fmt.Sprintf("use at most %d", maxDNSNames)})
	}
	for i := range names {
		n, path := &names[i], fmt.Sprintf("discovery.dns[%d].", i)
		refuse := func(key, value, what, remedy string) {
			key = path + key
			_, at := d.at(key, path+"name")
			d.refuse(key, at, value, complaint{what, remedy})
		}
		plain := func(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }
		same := func(o DNSName) bool {
			return plain(o.Name) == plain(n.Name) && o.Record == n.Record && o.Port == n.Port
		}
		switch {
		case n.Name == "": // said already
		case !isRecordName(n.Name, n.Record):
			refuse("name", quoteShort(n.Name), "not a host name", "write it as it is looked up, such as vllm.example.net")
		case n.Record == discover.RecordSRV && n.Port != 0:
			refuse("port", strconv.Itoa(n.Port), "SRV records have ports of their own", "remove port")
		case n.Record != discover.RecordSRV && n.Port == 0:
			refuse("port", "", "the records say no port", "add port: and the one that the engines listen on")
		case slices.ContainsFunc(names[:i], same):
			refuse("name", quoteShort(n.Name), "the name is looked up twice", "keep one of the two")
		}
	}
}

// ParseNodes reads a file of nodes: a key nodes with what the configuration has
// there, but for marks, which are the configuration's. name stands for the file in
// errors. The error is Errors with every problem found.
func ParseNodes(name string, data []byte) ([]Node, error) {
	d := newDecoder()
	tree, errs := parseTree(name, data)
	d.problems = errs
	if len(errs) == 0 && tree.kind != kindMap {
		d.refuse("", tree.place, tree.shown(), complaint{kindNames[tree.kind] + " where keys are wanted", "write nodes: and one engine a line"})
		tree = item{kind: kindMap, place: place{name, 1, 1}}
	}
	d.mapping("", []entry{nodesKey(d.config, func(n *Node) []entry {
		return slices.DeleteFunc(nodeKeys(n), func(e entry) bool { return e.key == "dscp" || e.key == "priority" })
	})}, nil, tree)
	if _, given := d.places["nodes"]; len(errs) == 0 && !given {
		d.refuse("nodes", place{name, 1, 1}, "", complaint{"the key is missing", "add nodes: and one engine a line, or nodes: [] for none"})
	}
	d.nodeNames()
	if problems := d.sorted(); len(problems) > 0 {
		return nil, problems
	}
	return d.config.Nodes, nil
}
