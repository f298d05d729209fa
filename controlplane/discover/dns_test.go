package discover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"warmpath/controlplane/state"
)

// script is a resolver whose answers are written down: words are addresses, or
// host:port targets, and "!" is a failure.
type script struct{ answers []string }

func (s *script) next() ([]string, error) {
	now := s.answers[0]
	if len(s.answers) > 1 {
		s.answers = s.answers[1:]
	}
	if now == "!" {
		return nil, &net.DNSError{Err: "server misbehaving", Name: "x"}
	}
	return strings.Fields(now), nil
}

func (s *script) LookupNetIP(context.Context, string, string) (out []netip.Addr, err error) {
	words, err := s.next()
	for _, w := range words {
		out = append(out, netip.MustParseAddr(w))
	}
	return out, err
}

func (s *script) LookupSRV(context.Context, string, string, string) (_ string, out []*net.SRV, err error) {
	words, err := s.next()
	for _, w := range words {
		at := netip.MustParseAddrPort("0.0.0.0:" + w[strings.LastIndex(w, ":")+1:])
		out = append(out, &net.SRV{Target: w[:strings.LastIndex(w, ":")] + ".", Port: at.Port()})
	}
	return "", out, err
}

// TestDNS: what is named, and that neither a failure nor one answer without a
// record takes a node away.
func TestDNS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := make(log)
		d := NewDNS(DNSOptions{Name: "gpus.example", Record: RecordA, Port: 8000, Interval: 30 * time.Second, Resolver: &script{[]string{
			"10.0.0.1 10.0.0.2 10.0.0.1", "!", "", "10.0.0.2", "10.0.0.1 10.0.0.2", "10.0.0.2", "10.0.0.2 ::1 fd00::7",
		}}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Run(ctx, said) }()
		both := "nodes 10.0.0.1-8000 10.0.0.2-8000"
		for i, want := range []string{
			both, `failed: look up discovery.dns "gpus.example": lookup x: server misbehaving`, `"gpus.example": the name has no such record`,
			both, both, both, "nodes 0--1-8000 10.0.0.2-8000 fd00--7-8000",
		} {
			began := time.Now()
			said.want(t, want)
			if took := time.Since(began); i > 0 && (took < 27*time.Second || took > 30*time.Second) {
				t.Errorf("look-up %d came after %v, want 27 to 30 s", i, took)
			}
		}
		if d.Name() != "dns:a:gpus.example:8000" {
			t.Errorf("its name is %q", d.Name())
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
}

func TestDNSTargets(t *testing.T) {
	said := make(log, 1)
	d := NewDNS(DNSOptions{
		Name: "_http._tcp.gpus.example", Record: RecordSRV, Resolver: &script{[]string{"Pod-1.gpus.example:8001 pod-0.gpus.example:8000 :0"}},
		Node: state.Spec{Engine: "vllm", Models: []string{"m"}, Island: "here"},
	})
	d.look(t.Context(), said)
	said.want(t, "nodes pod-0.gpus.example-8000 pod-1.gpus.example-8001")
	long := d.node("llama-3-70b-0.llama-3-70b-headless.inference.svc.cluster.local", 8000)
	if s, err := validate(long); err != nil || s.Name != "llama-3-70b-0.llama-3-70b-headless.inference.svc-ea5c8c21-8000" {
		t.Errorf("a long name becomes %q, %v", long.Name, err)
	}
	if n := d.nodes()[1]; n.URL != "http://pod-1.gpus.example:8001" || n.Engine != "vllm" || n.Models[0] != "m" || n.Island != "here" {
		t.Errorf("the node is %+v", n)
	}
}

// TestDNSServer asks a server over UDP, as package net does it.
func TestDNSServer(t *testing.T) {
	server := dnsServer(t, map[string]string{"A gpus.example.": "10.0.0.1 10.0.0.2", "AAAA gpus.example.": "fd00::1", "SRV _http._tcp.gpus.example.": "pod.gpus.example.:8000"})
	for _, c := range []struct{ record, name, want string }{
		{RecordA, "gpus.example", "nodes 10.0.0.1-8000 10.0.0.2-8000"},
		{RecordAAAA, "gpus.example", "nodes fd00--1-8000"},
		{RecordSRV, "_http._tcp.gpus.example", "nodes pod.gpus.example-8000"},
		{RecordA, "nobody.example", "no such host"},
	} {
		said := make(log, 1)
		o := DNSOptions{Name: c.name, Record: c.record, Resolver: ServerResolver(server)}
		if c.record != RecordSRV {
			o.Port = 8000
		}
		NewDNS(o).look(t.Context(), said)
		said.want(t, c.want)
	}
	gone := make(log, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	NewDNS(DNSOptions{Name: "gpus.example", Record: RecordA, Port: 1, Resolver: ServerResolver(server)}).look(ctx, gone)
	if len(gone) != 0 {
		t.Errorf("a look-up that the end of the router broke off: %q", <-gone)
	}
}

// dnsServer answers from a table of "TYPE name." until the test ends.
func dnsServer(t *testing.T, table map[string]string) (address string) {
	t.Helper()
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pc.Close() })
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, from, err := pc.ReadFrom(buffer)
			if err != nil {
				return
			}
			answer, err := dnsAnswer(buffer[:n], table)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = pc.WriteTo(answer, from)
		}
	}()
	return pc.LocalAddr().String()
}

func dnsAnswer(question []byte, table map[string]string) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil || len(m.Questions) != 1 {
		return nil, errors.Join(err, fmt.Errorf("%d questions", len(m.Questions)))
	}
	q := m.Questions[0]
	reply := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true}, Questions: m.Questions}
	words := strings.Fields(table[strings.TrimPrefix(q.Type.String(), "Type")+" "+q.Name.String()])
	if len(words) == 0 {
		reply.RCode = dnsmessage.RCodeNameError
	}
	for _, w := range words {
		r := dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 60}}
		switch q.Type {
		case dnsmessage.TypeA:
			r.Body = &dnsmessage.AResource{A: netip.MustParseAddr(w).As4()}
		case dnsmessage.TypeAAAA:
			r.Body = &dnsmessage.AAAAResource{AAAA: netip.MustParseAddr(w).As16()}
		default:
			target, _, _ := strings.Cut(w, ":")
			r.Body = &dnsmessage.SRVResource{Target: dnsmessage.MustNewName(target), Port: 8000}
		}
		reply.Answers = append(reply.Answers, r)
	}
	return reply.Pack()
}
