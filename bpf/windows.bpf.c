//go:build ignore
/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Nodes that take nothing more: their receive window is closed, so that a request,
 * or its rest, stays here however long the engine would be ready to work. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "kernel.h"
#include "maps.h"

/* Of struct tcp_sock, too. */
struct tcp_sock___window {
	__u32 snd_wnd;
} __relocated;

/* How often one connection is told of while its window stays closed. */
#define AGAIN_S 1

/* The tracepoint comes before the segment is taken in: the window is the one that
 * the segment before left. So a closed one is found when it is opened, or when a
 * probe of it has been answered in vain, which is after a retransmission time-out. */
SEC("tp_btf/tcp_probe")
int BPF_PROG(window, struct sock *sk, struct sk_buff *skb)
{
	struct tcp_sock___window *tp;
	struct node_counters *n;
	__u16 *way = short_way(sk->__sk_common.skc_num);
	struct conn *c;
	__u64 now;
	__u32 s;

	if (!way || !*way)
		return 0;
	tp = (void *)bpf_skc_to_tcp_sock(sk);
	if (!tp || tp->snd_wnd)
		return 0;
	c = bpf_sk_storage_get(&conns, sk, NULL, 0);
	if (!c)
		return 0;
	now = bpf_ktime_get_ns();
	s = now / 1000000000;
	if (c->no_window_s && s - c->no_window_s < AGAIN_S)
		return 0;
	c->no_window_s = s;
	n = counters_of(c->node);
	if (n)
		n->zero_windows++;
	say(c, EVENT_NO_WINDOW, 0, now);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
