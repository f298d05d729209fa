//go:build ignore
/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Resets, in both directions: what sockops sees of them is only that a
 * connection has ended. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "kernel.h"
#include "maps.h"

SEC("tp_btf/tcp_receive_reset")
int BPF_PROG(reset_in, struct sock *sk)
{
	struct conn *c = bpf_sk_storage_get(&conns, sk, NULL, 0);
	struct node_counters *n;
	__u64 now;

	if (!c)
		return 0;
	now = bpf_ktime_get_ns();
	n = counters_of(c->node);
	if (n) {
		n->resets_in++;
		n->heard_ns = now;
	}
	say(c, EVENT_RESET, 0, now);
	return 0;
}

SEC("tp_btf/tcp_send_reset")
int BPF_PROG(reset_out, struct sock *sk)
{
	struct node_counters *n;
	struct conn *c;

	if (!sk) /* for a packet that belongs to no socket */
		return 0;
	c = bpf_sk_storage_get(&conns, sk, NULL, 0);
	if (!c)
		return 0;
	n = counters_of(c->node);
	if (n)
		n->resets_out++;
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
