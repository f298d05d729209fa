//go:build ignore
/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Which new connections deserve a handshake.
 *
 * It hangs on an interface (XDP) and judges one kind of packet: a TCP segment
 * with SYN and without ACK, to a guarded port. All others pass before any map but
 * the counters is read. So a connection that is established is never touched,
 * whatever becomes of its source: the deny list, too, drops SYNs alone.
 *
 * What cannot be read as TCP passes: the stack is a better judge of it. But who
 * hides a SYN from the guard, so that only the stack finds it, gains nothing: the
 * first fragment of a packet is read like a whole one, and dropped if it ends
 * before it says what it is. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "guard_maps.h"

#define GO_ON (-1) /* no verdict yet */

#define VLAN_TAGS 2
#define EXTENSIONS 6
#define IP_MORE 0x2000 /* fragments to come */
#define IP_OFFSET 0x1fff
#define IPV6_MORE 1
#define IPV6_OFFSET 0xfff8
#define IPPROTO_AH_HEADER 51

/* As exact as a tick, a few ms, and a tenth of what the exact clock costs. The
 * loader unsets it where the kernel has none, which is before 5.11: the verifier
 * never comes to what a constant excludes. */
const volatile _Bool coarse_clock = 1;

struct vlan_tag {
	__be16 id;
	__be16 protocol;
};

/* What is common to the extension headers that are walked over. */
struct extension {
	__u8 next;
	__u8 length;
};

struct fragment {
	__u8 next;
	__u8 reserved;
	__be16 offset;
	__be32 id;
};

struct packet {
	void *at; /* what has not been read */
	void *end;
	struct verdicts *count;
	struct tcphdr *tcp;
	__u64 source[2]; /* the address, in network order; IPv4 has the first 4 bytes */
	__u16 port;      /* destination, host order */
	int v6;
	int first; /* a first fragment, of which … */
	__s32 left; /* … so many bytes have not been read; the frame may be filled up behind */
};

/* No network's MTU is so small that a TCP header is in two fragments, and IPv6
 * wants all headers in the first (RFC 8200, 4.5), each but one at most once. */
static __always_inline int hides(struct packet *p)
{
	p->count->hidden++;
	return XDP_DROP;
}

/* A header that is not there whole. */
static __always_inline int cut(struct packet *p)
{
	if (p->first)
		return hides(p);
	p->count->malformed++;
	return XDP_PASS;
}

static __always_inline int ethernet(struct packet *p, __be16 *protocol)
{
	struct ethhdr *eth = p->at;
	int i;

	if ((void *)(eth + 1) > p->end) {
		p->count->malformed++;
		return XDP_PASS;
	}
	*protocol = eth->h_proto;
	p->at = eth + 1;
#pragma unroll
	for (i = 0; i < VLAN_TAGS; i++) {
		struct vlan_tag *tag = p->at;

		if (*protocol != bpf_htons(ETH_P_8021Q) && *protocol != bpf_htons(ETH_P_8021AD))
			break;
		if ((void *)(tag + 1) > p->end) {
			p->count->malformed++;
			return XDP_PASS;
		}
		*protocol = tag->protocol;
		p->at = tag + 1;
	}
	return GO_ON;
}

static __always_inline int ipv4(struct packet *p)
{
	struct iphdr *ip = p->at;
	__u32 length;

	if ((void *)(ip + 1) > p->end || ip->ihl < 5) {
		p->count->malformed++;
		return XDP_PASS;
	}
	if (ip->protocol != IPPROTO_TCP) {
		p->count->other++;
		return XDP_PASS;
	}
	if (ip->frag_off & bpf_htons(IP_OFFSET)) {
		p->count->fragment++;
		return XDP_PASS;
	}
	length = ip->ihl * 4;
	p->first = !!(ip->frag_off & bpf_htons(IP_MORE));
	p->left = bpf_ntohs(ip->tot_len) - (__s32)length;
	__builtin_memcpy(p->source, &ip->saddr, 4);
	p->at += length;
	return GO_ON;
}

/* The header behind the extension headers, and where it begins. */
static __always_inline int extensions(struct packet *p, __u8 next)
{
	int i;

	for (i = 0; i <= EXTENSIONS; i++) {
		struct extension *e = p->at;
		__u32 length;

		if (next == IPPROTO_TCP)
			return GO_ON;
		if (next == IPPROTO_FRAGMENT) {
			struct fragment *f = p->at;

			if ((void *)(f + 1) > p->end)
				return cut(p);
			if (f->offset & bpf_htons(IPV6_OFFSET)) {
				p->count->fragment++;
				return XDP_PASS;
			}
			if (f->offset & bpf_htons(IPV6_MORE))
				p->first = 1;
			p->at = f + 1;
			p->left -= sizeof(*f);
			next = f->next;
			continue;
		}
		if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS && next != IPPROTO_AH_HEADER)
			goto other;
		if ((void *)(e + 1) > p->end)
			return cut(p);
		length = next == IPPROTO_AH_HEADER ? (e->length + 2) * 4 : (e->length + 1) * 8;
		p->at += length;
		p->left -= length;
		next = e->next;
	}
	return hides(p);
other:
	p->count->other++;
	return XDP_PASS;
}

static __always_inline int ipv6(struct packet *p)
{
	struct ipv6hdr *ip = p->at;

	if ((void *)(ip + 1) > p->end) {
		p->count->malformed++;
		return XDP_PASS;
	}
	p->v6 = 1;
	__builtin_memcpy(p->source, &ip->saddr, 16);
	p->at = ip + 1;
	p->left = bpf_ntohs(ip->payload_len);
	return extensions(p, ip->nexthdr);
}

/* Ends with anything that is no SYN. */
static __always_inline int segment(struct packet *p)
{
	struct tcphdr *tcp = p->at;

	if ((void *)(tcp + 1) > p->end || (p->first && p->left < (__s32)sizeof(*tcp)))
		return cut(p);
	if (tcp->doff < 5) {
		p->count->malformed++;
		return XDP_PASS;
	}
	if (!tcp->syn || tcp->ack) {
		p->count->established++;
		return XDP_PASS;
	}
	p->tcp = tcp;
	p->port = bpf_ntohs(tcp->dest);
	return GO_ON;
}

static __always_inline __u32 listed(const struct packet *p)
{
	__u32 zero = 0, *kind = NULL;
	void *list;

	if (p->v6) {
		struct prefix6 key = { .bits = 128 };

		__builtin_memcpy(key.address, p->source, 16);
		list = bpf_map_lookup_elem(&lists6, &zero);
		if (list)
			kind = bpf_map_lookup_elem(list, &key);
	} else {
		struct prefix4 key = { .bits = 32 };

		__builtin_memcpy(key.address, p->source, 4);
		list = bpf_map_lookup_elem(&lists4, &zero);
		if (list)
			kind = bpf_map_lookup_elem(list, &key);
	}
	return kind ? *kind : LISTED_NOT;
}

/* Takes one out of a bucket that is full at full_ns, if there is one in it. One
 * that is emptier than it can be was so before its limit was raised. Two CPUs that take from one bucket at once may both get the same one. */
static __always_inline int take(__u64 *full_ns, __u64 interval_ns, __u64 depth_ns, __u64 now)
{
	__u64 full = *full_ns > now ? *full_ns : now;

	if (full - now > depth_ns)
		*full_ns = full = now + depth_ns;
	if (full - now + interval_ns > depth_ns)
		return 0;
	*full_ns = full + interval_ns;
	return 1;
}

/* A source that pushed another out of its map finds a full bucket when it comes
 * again: too many pass then, never too few. */
static __always_inline int within_rate(const struct packet *p, const struct limits *l, __u64 now)
{
	__u64 fresh = now + l->interval_ns, *full_ns;
	__u32 v4 = p->source[0];
	__u64 v6 = p->source[0];

	full_ns = p->v6 ? bpf_map_lookup_elem(&sources6, &v6) : bpf_map_lookup_elem(&sources4, &v4);
	if (full_ns)
		return take(full_ns, l->interval_ns, l->depth_ns, now);
	if (p->v6)
		bpf_map_update_elem(&sources6, &v6, &fresh, BPF_ANY);
	else
		bpf_map_update_elem(&sources4, &v4, &fresh, BPF_ANY);
	return 1;
}

/* Whether a SYN is in the share that is shed: by its addresses and ports, so that
 * a SYN that is sent again meets the same verdict. By chance it would get through
 * at last, and the share would count for nothing. */
static __always_inline int in_share(const struct packet *p, const struct limits *l)
{
	const __u64 mix = 0x9e3779b97f4a7c15;
	__u64 h = l->salt;

	h = (h ^ p->source[0]) * mix;
	h = (h ^ h >> 32 ^ p->source[1]) * mix;
	h = (h ^ h >> 32 ^ ((__u32)p->tcp->source << 16 | p->port)) * mix;
	h ^= h >> 32;
	h *= mix;
	return (h >> 32) * 1000 >> 32 < l->shed_permille;
}

static __always_inline int within_cap(const struct port_rule *rule, __u64 now)
{
	__u32 index = rule->index;
	__u64 interval_ns = rule->interval_ns, depth_ns = rule->depth_ns;
	struct port_bucket *b = bpf_map_lookup_elem(&port_buckets, &index);
	int ok;

	if (!b)
		return 1;
	if (b->full_ns > now && b->full_ns - now <= depth_ns && b->full_ns - now + interval_ns > depth_ns)
		return 0; /* in a flood most end here, and wait for no lock */
	bpf_spin_lock(&b->lock);
	ok = take(&b->full_ns, interval_ns, depth_ns, now);
	bpf_spin_unlock(&b->lock);
	return ok;
}

/* A SYN to a guarded port. The cap comes last: what is dropped before takes
 * nothing from those that come through. */
static __always_inline int judge(struct packet *p, const struct port_rule *rule)
{
	__u32 zero = 0, kind = listed(p);
	struct limits *l;
	__u64 now;

	if (kind == LISTED_ALLOW) {
		p->count->allowed++;
		return XDP_PASS;
	}
	if (kind == LISTED_DENY) {
		p->count->denied++;
		return XDP_DROP;
	}
	l = bpf_map_lookup_elem(&settings, &zero);
	if (!l) {
		p->count->syn++;
		return XDP_PASS;
	}
	now = coarse_clock ? bpf_ktime_get_coarse_ns() : bpf_ktime_get_ns();
	if (l->interval_ns && !within_rate(p, l, now)) {
		p->count->rate++;
		return XDP_DROP;
	}
	if (l->shed_permille && now < l->shed_until_ns && in_share(p, l)) {
		p->count->shed++;
		return XDP_DROP;
	}
	if (rule->interval_ns && !within_cap(rule, now)) {
		p->count->port_cap++;
		return XDP_DROP;
	}
	p->count->syn++;
	return XDP_PASS;
}

static __always_inline int new_connection(struct packet *p)
{
	struct port_rule *rule = bpf_map_lookup_elem(&ports, &p->port);
	struct port_counts *n;
	__u32 index;
	int action;

	if (!rule) {
		p->count->unguarded++;
		return XDP_PASS;
	}
	action = judge(p, rule);
	index = rule->index;
	n = bpf_map_lookup_elem(&port_counters, &index);
	if (n) {
		n->syns++;
		n->dropped += action == XDP_DROP;
	}
	return action;
}

SEC("xdp")
int guard(struct xdp_md *ctx)
{
	struct packet p = { .at = (void *)(long)ctx->data, .end = (void *)(long)ctx->data_end };
	__be16 protocol;
	__u32 zero = 0;
	int action;

	p.count = bpf_map_lookup_elem(&counters, &zero);
	if (!p.count)
		return XDP_PASS;
	action = ethernet(&p, &protocol);
	if (action >= 0)
		return action;
	if (protocol == bpf_htons(ETH_P_IP)) {
		action = ipv4(&p);
	} else if (protocol == bpf_htons(ETH_P_IPV6)) {
		action = ipv6(&p);
	} else {
		p.count->other++;
		action = XDP_PASS;
	}
	if (action >= 0)
		return action;
	action = segment(&p);
	if (action >= 0)
		return action;
	return new_connection(&p);
}

char _license[] SEC("license") = "Dual BSD/GPL";
