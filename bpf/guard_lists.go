package bpf

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// MaxGuardEntries is how many prefixes of one family the lists may have together.
const MaxGuardEntries = 1 << 20

// What a list says of a prefix: enum listed of guard_abi.h.
const (
	listedAllow uint32 = 1
	listedDeny  uint32 = 2
)

// Lists name sources. Allowing wins: a source on both is allowed.
type Lists struct{ Allow, Deny []netip.Prefix }

// SetLists replaces both lists. Each family's is exchanged in one step: no packet
// meets half of one, or none.
func (g *Guard) SetLists(l Lists) error {
	v4, v6 := l.entries()
	if len(v4) > MaxGuardEntries || len(v6) > MaxGuardEntries {
		return fmt.Errorf("set lists of guard: %d IPv4 and %d IPv6 prefixes, %d of each at most", len(v4), len(v6), MaxGuardEntries)
	}
	if err := replace(g.objects.Lists4, g.list4, v4, key4); err != nil {
		return fmt.Errorf("set IPv4 list of guard: %w", err)
	}
	if err := replace(g.objects.Lists6, g.list6, v6, key6); err != nil {
		return fmt.Errorf("set IPv6 list of guard: %w", err)
	}
	return nil
}

// entries says what the longest prefix of an address decides. Denied prefixes
// inside allowed ones are left out: so the one trie allows what any allowed
// prefix covers.
func (l Lists) entries() (v4, v6 map[netip.Prefix]uint32) {
	v4, v6 = map[netip.Prefix]uint32{}, map[netip.Prefix]uint32{}
	family := func(p netip.Prefix) map[netip.Prefix]uint32 {
		if p.Addr().Is4() {
			return v4
		}
		return v6
	}
	var lengths []int // of allowed prefixes, each once
	for _, p := range l.Allow {
		p = p.Masked()
		family(p)[p] = listedAllow
		if !slices.Contains(lengths, p.Bits()) {
			lengths = append(lengths, p.Bits())
		}
	}
	for _, p := range l.Deny {
		p = p.Masked()
		covered := slices.ContainsFunc(lengths, func(bits int) bool {
			if bits > p.Bits() {
				return false
			}
			wider, err := p.Addr().Prefix(bits)
			return err == nil && family(p)[wider] == listedAllow
		})
		if !covered {
			family(p)[p] = listedDeny
		}
	}
	return v4, v6
}

func key4(p netip.Prefix) guardPrefix4 {
	return guardPrefix4{Bits: uint32(p.Bits()), Address: p.Addr().As4()}
}

func key6(p netip.Prefix) guardPrefix6 {
	return guardPrefix6{Bits: uint32(p.Bits()), Address: p.Addr().As16()}
}

// replace puts a new list into the place of the one that is there.
func replace[K any](outer *ebpf.Map, spec *ebpf.MapSpec, entries map[netip.Prefix]uint32, key func(netip.Prefix) K) error {
	if len(entries) == 0 {
		if err := outer.Delete(uint32(0)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("take the old one out: %w", err)
		}
		return nil
	}
	list, err := ebpf.NewMap(spec)
	if err != nil {
		return fmt.Errorf("make a new one: %w", permission(err))
	}
	defer list.Close()
	for prefix, kind := range entries {
		k := key(prefix)
		if err := list.Put(&k, kind); err != nil {
			return fmt.Errorf("add %v: %w", prefix, err)
		}
	}
	if err := outer.Put(uint32(0), list); err != nil {
		return fmt.Errorf("put it into place: %w", err)
	}
	return nil
}
