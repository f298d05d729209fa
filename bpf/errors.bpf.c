//go:build ignore
/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Errors that sockets are told of, with their numbers: which of them a refused
 * connection had, and what ICMP says of the way to a node. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "kernel.h"
#include "maps.h"

#define ECONNRESET 104

/* The queue of a socket's errors, of which each stands in a packet's cb. */
struct sk_buff_head {
	struct sk_buff *prev;
	__u32 qlen;
} __relocated;

struct sock___queue {
	struct sk_buff_head sk_error_queue;
} __relocated;

struct sock_extended_err {
	__u32 ee_errno;
	__u8 ee_origin;
} __relocated;

struct sock_exterr_skb {
	struct sock_extended_err ee;
} __relocated;

#define SO_EE_ORIGIN_ICMP 2
#define SO_EE_ORIGIN_ICMP6 3

/* What ICMP said last, 0 if nothing of it waits. */
static __always_inline int queued(const struct sock *sk)
{
	const struct sock___queue *q = (const void *)sk;
	const struct sock_exterr_skb *e;
	struct sk_buff *last;
	__u8 origin;

	if (!BPF_CORE_READ(q, sk_error_queue.qlen))
		return 0;
	last = BPF_CORE_READ(q, sk_error_queue.prev);
	e = (const void *)last + bpf_core_field_offset(struct sk_buff, cb);
	origin = BPF_CORE_READ(e, ee.ee_origin);
	if (origin != SO_EE_ORIGIN_ICMP && origin != SO_EE_ORIGIN_ICMP6)
		return 0;
	return BPF_CORE_READ(e, ee.ee_errno);
}

/* A socket has one error at a time, and comes here twice with most. */
static __always_inline void tell(struct sock *sk, int err)
{
	struct conn *c = bpf_sk_storage_get(&conns, sk, NULL, 0);
	struct node_counters *n;

	if (!c)
		return;
	if (!err) /* of a socket that is held for a moment ICMP's is only queued */
		err = queued(sk);
	if (!err || err == c->error)
		return;
	c->error = err;
	n = counters_of(c->node);
	if (n)
		n->errors++;
	if (err != ECONNRESET) /* which is told of as EVENT_RESET */
		say(c, EVENT_ERROR, err, bpf_ktime_get_ns());
}

SEC("tp_btf/inet_sk_error_report")
int BPF_PROG(error, struct sock *sk)
{
	tell(sk, sk->sk_err);
	return 0;
}

/* Who waits for the socket is woken before the tracepoint above is passed, and may
 * have taken the error by then. The end of a connection comes before (tcp_done). */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(ended, struct sock *sk, int from, int to)
{
	if (to == BPF_TCP_CLOSE && sk->sk_err)
		tell(sk, sk->sk_err);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
