//go:build ignore
/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* When the segments of nodes' answers arrived: the tracepoint tcp_probe, which
 * tcp_rcv_established of net/ipv4/tcp_input.c passes for every segment. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "kernel.h"
#include "maps.h"

/* The slot of a socket, and its node. Without a slot, NULL; *followed says
 * whether the socket is a node's all the same. */
static __always_inline struct slot *find(struct sock *sk, __u32 *node, int *followed)
{
	__u16 *way = short_way(sk->__sk_common.skc_num);
	struct slot *s;
	struct conn *c;
	__u32 i;

	*followed = 0;
	if (!way || !*way)
		return NULL;
	i = *way - 1;
	s = bpf_map_lookup_elem(&slots, &i);
	if (s && s->use == s->generation && s->cookie == (__u64)sk->__sk_common.skc_cookie.counter) {
		*followed = 1;
		*node = s->node;
		return s;
	}
	c = bpf_sk_storage_get(&conns, sk, NULL, 0);
	if (!c)
		return NULL;
	*followed = 1;
	*node = c->node;
	return slot_of(c);
}

/* Returns when the request went out, by the first segment after it: what the socket did
 * last before that, as it is noted after the tracepoint only. Of what was sent again
 * the first time is not known any more; then send_ns stands, as it does while
 * the socket has sent nothing since. */
static __always_inline __u64 went_out(struct slot *s, const struct tcp_sock *tp, __u32 seq)
{
	__u64 sent = s->send_ns, out;

	if (s->out == seq && s->out_ns >= sent)
		return s->out_ns;
	out = tp->tcp_mstamp * 1000;
	if (out + 999 < sent)
		return sent;
	if (out < sent || tp->retrans_stamp || tp->tlp_high_seq)
		out = sent;
	s->out_ns = out;
	__sync_lock_test_and_set(&s->out, seq); /* a full barrier: who sees the number sees the time */
	return out;
}

/* The first segment of an answer. Returns how long the node took. */
static __always_inline __u64 first(struct slot *s, const struct tcp_sock *tp, __u64 sent, __u32 base, __u64 now)
{
	__u32 i;

	s->base = base;
	s->first_ns = now;
	s->gap_ns = 0;
	s->segments = 0;
	s->bytes = 0;
	for (i = 0; i < SEGMENTS; i++)
		s->segment[i].end_bytes = 0;
	s->rtt_min_us = tp->rtt_min.s[0].v;
	return sent && now > sent ? now - sent : 0;
}

/* A later one. Returns how long after the one before. */
static __always_inline __u64 next(struct slot *s, __u64 now)
{
	__u64 gap = now - s->last_ns;

	if (gap > s->gap_ns)
		s->gap_ns = gap;
	return gap;
}

SEC("tp_btf/tcp_probe")
int BPF_PROG(segment, struct sock *sk, struct sk_buff *skb)
{
	const struct tcp_sock *awaiting = NULL; /* the answer's first byte */
	struct node_counters *n;
	struct node_times *t;
	struct tcp_skb_cb cb;
	__u32 node, seq, end;
	__u64 now, took, sent = 0;
	struct slot *s;
	int followed;

	s = find(sk, &node, &followed);
	if (!followed)
		return 0;
	now = bpf_ktime_get_ns();
	n = counters_of(node);
	if (!n)
		return 0;
	n->heard_ns = now;
	seq = s ? s->seq : 0;
	if (seq && s->answer != seq) {
		awaiting = (void *)bpf_skc_to_tcp_sock(sk);
		if (!awaiting)
			return 0;
		sent = went_out(s, awaiting, seq);
	}
	if (bpf_probe_read_kernel(&cb, sizeof(cb), skb->cb) || cb.end_seq == cb.seq)
		return 0; /* an acknowledgement alone */
	n->segments++;
	n->bytes += cb.end_seq - cb.seq;
	if (!seq)
		return 0;

	if (awaiting) {
		/* What is expected is the answer's first byte. A segment may have
		 * overtaken it; or be of the answer before, sent again for want of an
		 * acknowledgement, and then it is none of this one. */
		__u32 base = awaiting->rcv_nxt;

		if ((__s32)(cb.end_seq - base) <= 0)
			return 0;
		took = first(s, awaiting, sent, base, now);
	} else {
		took = next(s, now);
	}
	t = times_of(s->node);
	if (t && took)
		(awaiting ? t->first_byte : t->gap)[bucket_of(took)]++;
	s->last_ns = now;
	end = cb.end_seq - s->base;
	if ((__s32)(end - s->bytes) > 0)
		s->bytes = end;
	if (s->segments < SEGMENTS) {
		s->segment[s->segments].at_ns = now;
		s->segment[s->segments].end_bytes = end;
	}
	s->segments++;
	if (awaiting) /* a full barrier: who sees the number sees the rest */
		__sync_lock_test_and_set(&s->answer, seq);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
