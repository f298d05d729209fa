package discover

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"warmpath/controlplane/state"
)

// Record types that a DNS source asks for.
const (
	RecordA    = "a"
	RecordAAAA = "aaaa"
	RecordSRV  = "srv"
)

// Records are the record types that a DNS source knows.
var Records = []string{RecordA, RecordAAAA, RecordSRV}

// lookUpWithin bounds one look-up: package net gives each try at each of a host's
// servers 5 s.
const lookUpWithin = 30 * time.Second

// absences is how many look-ups in a row a record must be missing in for its node
// to leave: an answer that was cut short, or of one server of several that is
// behind, drains no node.
const absences = 2

// Resolver looks names up; *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}

// DNSOptions say what a DNS source asks for.
type DNSOptions struct {
	Name     string // as it is looked up
	Record   string // RecordA, RecordAAAA or RecordSRV
	Port     int    // of the nodes; SRV records have their own
	Interval time.Duration
	Resolver Resolver
	Node     state.Spec // what all nodes have; its Name and URL are not used
}

// DNS is the source of the nodes that a name stands for: each address of it, or
// each target of its service records, is one. A name that has no record is a
// failure, not an empty fleet: servers say the same while they are being set up.
type DNS struct {
	opt  DNSOptions
	seen map[string]*record // by URL
}

// record is one node that the name stands for.
type record struct {
	spec   state.Spec
	absent int // look-ups in a row without it
}

// NewDNS returns a source of what a name stands for.
func NewDNS(opt DNSOptions) *DNS { return &DNS{opt: opt, seen: map[string]*record{}} }

// HostResolver asks as the host's programs do.
func HostResolver() Resolver { return net.DefaultResolver }

// ServerResolver asks one server, at host:port, in place of those of the host.
func ServerResolver(server string) Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server)
	}}
}

// Name is "dns:", the record type, the name, and the port where that is not the
// records'.
func (d *DNS) Name() string {
	name := "dns:" + d.opt.Record + ":" + d.opt.Name
	if d.opt.Record != RecordSRV {
		name += ":" + strconv.Itoa(d.opt.Port)
	}
	return name
}

// Run implements Source.
func (d *DNS) Run(ctx context.Context, to Listener) error {
	for {
		d.look(ctx, to)
		// Apart, so that many routers do not ask at once.
		wait := time.NewTimer(d.opt.Interval - time.Duration(rand.Int64N(int64(d.opt.Interval)/10+1)))
		select {
		case <-ctx.Done():
			wait.Stop()
			return nil
		case <-wait.C:
		}
	}
}

func (d *DNS) look(ctx context.Context, to Listener) {
	ctx, cancel := context.WithTimeout(ctx, lookUpWithin)
	defer cancel()
	found, err := d.lookUp(ctx)
	if err == nil {
		found, err = checkAll(found)
	}
	switch {
	case err != nil && errors.Is(ctx.Err(), context.Canceled): // the router ends
	case err != nil:
		to.Failed(fmt.Errorf("look up discovery.dns %q: %w", d.opt.Name, err))
	default:
		d.merge(found)
		to.Emit(d.nodes())
	}
}

func (d *DNS) lookUp(ctx context.Context) ([]state.Spec, error) {
	var found []state.Spec
	if d.opt.Record == RecordSRV {
		_, targets, err := d.opt.Resolver.LookupSRV(ctx, "", "", d.opt.Name)
		if err != nil {
			return nil, err
		}
		for _, t := range targets {
			if host := strings.TrimSuffix(t.Target, "."); host != "" { // else the service is not there (RFC 2782)
				found = append(found, d.node(strings.ToLower(host), int(t.Port)))
			}
		}
	} else {
		network := map[string]string{RecordA: "ip4", RecordAAAA: "ip6"}[d.opt.Record]
		addresses, err := d.opt.Resolver.LookupNetIP(ctx, network, d.opt.Name)
		if err != nil {
			return nil, err
		}
		for _, a := range addresses {
			found = append(found, d.node(a.Unmap().String(), d.opt.Port))
		}
	}
	if len(found) == 0 {
		return nil, errors.New("the name has no such record")
	}
	slices.SortFunc(found, func(a, b state.Spec) int { return strings.Compare(a.URL, b.URL) })
	return slices.CompactFunc(found, func(a, b state.Spec) bool { return a.URL == b.URL }), nil
}

// node is the node at a host and port. It is named by them, so that it is the same
// one after a restart.
func (d *DNS) node(host string, port int) state.Spec {
	n := d.opt.Node
	n.Models = slices.Clone(n.Models)
	at := net.JoinHostPort(host, strconv.Itoa(port))
	n.URL = "http://" + at
	n.Name = strings.NewReplacer("[", "", "]", "", ":", "-").Replace(at)
	if strings.HasPrefix(n.Name, "-") { // of an address that begins with ::
		n.Name = "0" + n.Name
	}
	if len(n.Name) > state.MaxNameBytes { // the start says most: pods come first
		sum := sha256.Sum256([]byte(at))
		end := fmt.Sprintf("-%x-%d", sum[:4], port)
		n.Name = strings.TrimRight(n.Name[:state.MaxNameBytes-len(end)], "-.") + end
	}
	return n
}

// merge notes what was found, and forgets what was missing for long enough.
func (d *DNS) merge(found []state.Spec) {
	for _, r := range d.seen {
		r.absent++
	}
	for _, n := range found {
		d.seen[n.URL] = &record{spec: n}
	}
	for url, r := range d.seen {
		if r.absent >= absences {
			delete(d.seen, url)
		}
	}
}

// nodes is the set as it stands, by name.
func (d *DNS) nodes() []state.Spec {
	nodes := make([]state.Spec, 0, len(d.seen))
	for _, r := range d.seen {
		nodes = append(nodes, r.spec)
	}
	slices.SortFunc(nodes, func(a, b state.Spec) int { return strings.Compare(a.Name, b.Name) })
	return nodes
}
