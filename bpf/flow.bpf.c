//go:build ignore
/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What becomes of the connections to nodes, from the kernel's own callbacks
 * (BPF_SOCK_OPS_* of include/uapi/linux/bpf.h), and how the kernel treats them.
 *
 * It hangs on the cgroup that the router is in, and leaves sockets alone that
 * user space has not given a struct conn. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"

#define AF_INET 2
#define SOL_SOCKET 1
#define SO_PRIORITY 12
#define IPPROTO_IP 0
#define IP_TOS 1
#define IPPROTO_IPV6 41
#define IPV6_TCLASS 67
#define SOL_TCP 6
#define TCP_USER_TIMEOUT 18
#define TCP_NOTSENT_LOWAT 25

static __always_inline struct node_rule *rule_of(const struct conn *c)
{
	__u32 node = c->node;

	return bpf_map_lookup_elem(&rules, &node);
}

/* Makes the short way from a segment to its slot. */
static __always_inline void shorten(struct bpf_sock_ops *ctx, const struct conn *c)
{
	struct slot *s = slot_of(c);
	__u16 *way = short_way(ctx->local_port);

	if (s) {
		s->cookie = bpf_get_socket_cookie(ctx);
		s->node = c->node;
		s->use = c->generation;
	}
	if (way)
		*way = s && c->slot < LONG_WAY - 1 ? c->slot + 1 : LONG_WAY;
}

/* The kernel is about to send the SYN. */
static __always_inline void connecting(struct bpf_sock_ops *ctx, struct conn *c)
{
	struct node_counters *n = counters_of(c->node);
	struct node_rule *rule = rule_of(c);
	int v;

	shorten(ctx, c);
	c->connect_ns = bpf_ktime_get_ns();
	if (n)
		n->connects++;
	add_flags(ctx, BPF_SOCK_OPS_RTO_CB_FLAG | BPF_SOCK_OPS_RETRANS_CB_FLAG | BPF_SOCK_OPS_STATE_CB_FLAG);
	/* From the start, because the variance of the first round trip is not taken
	 * below RTO_min (tcp_rtt_estimator of net/ipv4/tcp_input.c), and falls slowly. */
	if (rule && rule->near && rule->rto_min_us) {
		v = rule->rto_min_us;
		bpf_setsockopt(ctx, SOL_TCP, TCP_BPF_RTO_MIN, &v, sizeof(v));
	}
	if (rule && rule->tos) {
		v = rule->tos - 1;
		if (ctx->family == AF_INET)
			bpf_setsockopt(ctx, IPPROTO_IP, IP_TOS, &v, sizeof(v));
		else
			bpf_setsockopt(ctx, IPPROTO_IPV6, IPV6_TCLASS, &v, sizeof(v));
	}
	/* After the mark, which sets a priority too. */
	if (rule && rule->priority) {
		v = rule->priority - 1;
		bpf_setsockopt(ctx, SOL_SOCKET, SO_PRIORITY, &v, sizeof(v));
	}
}

/* RTO_min is lowered only where the path is far shorter than it: a fourth. A
 * peer that holds back its acknowledgements is the other reason for a lower
 * bound, which user space knows (50 ms). */
static __always_inline void tune(struct bpf_sock_ops *ctx, const struct node_rule *rule, __u32 syn_rtt_us)
{
	int v;

	if (rule->rto_min_us && syn_rtt_us < rule->rto_min_us / 4) {
		v = rule->rto_min_us;
		bpf_setsockopt(ctx, SOL_TCP, TCP_BPF_RTO_MIN, &v, sizeof(v));
	}
	if (rule->user_timeout_ms) {
		v = rule->user_timeout_ms;
		bpf_setsockopt(ctx, SOL_TCP, TCP_USER_TIMEOUT, &v, sizeof(v));
	}
	if (rule->notsent_lowat_bytes) {
		v = rule->notsent_lowat_bytes;
		bpf_setsockopt(ctx, SOL_TCP, TCP_NOTSENT_LOWAT, &v, sizeof(v));
	}
}

static __always_inline void established(struct bpf_sock_ops *ctx, struct conn *c)
{
	__u32 syn_rtt_us = ctx->srtt_us >> 3;
	struct node_counters *n = counters_of(c->node);
	struct node_rule *rule = rule_of(c);
	struct node_times *t = times_of(c->node);
	__u64 now = bpf_ktime_get_ns();
	struct slot *s = slot_of(c);

	if (n) {
		n->established++;
		n->heard_ns = now;
	}
	if (t) {
		t->connect[bucket_of(now - c->connect_ns)]++;
		t->syn_rtt[bucket_of((__u64)syn_rtt_us * 1000)]++;
	}
	if (s) {
		s->state = BPF_TCP_ESTABLISHED;
		s->rtt_min_us = syn_rtt_us;
	}
	if (rule)
		tune(ctx, rule, syn_rtt_us);
}

static __always_inline void changed(struct conn *c, __u32 from, __u32 to)
{
	struct node_counters *n = counters_of(c->node);
	struct slot *s = slot_of(c);

	if (s)
		s->state = to;
	if (from == BPF_TCP_SYN_SENT && to == BPF_TCP_CLOSE) {
		if (n)
			n->failed++;
		say(c, EVENT_FAILED, 0, bpf_ktime_get_ns());
	}
	/* Only user space knows where an answer ends: it gives an idle connection
	 * the request number 0. */
	if (from == BPF_TCP_ESTABLISHED && to == BPF_TCP_CLOSE_WAIT && s && s->seq == 0) {
		if (n)
			n->closed_idle++;
		say(c, EVENT_CLOSED_IDLE, 0, bpf_ktime_get_ns());
	}
}

static __always_inline void timed_out(struct bpf_sock_ops *ctx, struct conn *c, __u32 count)
{
	struct node_counters *n = counters_of(c->node);
	__u64 now = bpf_ktime_get_ns();

	if (n)
		n->rtos++;
	if (count == 1)
		c->rto_ns = now;
	if (ctx->state == BPF_TCP_SYN_SENT)
		say(c, EVENT_SYN_RTO, count, now);
	else if (count >= 2 && ctx->state == BPF_TCP_ESTABLISHED)
		/* Once this side has ended it, what goes unanswered is its end alone:
		 * whatever lies on the way may have forgotten an idle connection. */
		say(c, EVENT_RTO, count, now);
}

static __always_inline void sent_again(struct conn *c, __u32 segments)
{
	struct node_counters *n = counters_of(c->node);

	if (n)
		n->retransmits += segments;
}

SEC("sockops")
int flow(struct bpf_sock_ops *ctx)
{
	struct node_rule *rule;
	struct conn *c;

	switch (ctx->op) {
	case BPF_SOCK_OPS_TIMEOUT_INIT:
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
	case BPF_SOCK_OPS_STATE_CB:
	case BPF_SOCK_OPS_RTO_CB:
	case BPF_SOCK_OPS_RETRANS_CB:
		break;
	default:
		return 1;
	}
	c = conn_of(ctx);
	if (!c)
		return 1;
	switch (ctx->op) {
	case BPF_SOCK_OPS_TIMEOUT_INIT:
		rule = rule_of(c);
		if (rule && rule->syn_rto_jiffies) /* else 0: the host's own setting */
			ctx->reply = rule->syn_rto_jiffies;
		break;
	case BPF_SOCK_OPS_TCP_CONNECT_CB:
		connecting(ctx, c);
		break;
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		established(ctx, c);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		changed(c, ctx->args[0], ctx->args[1]);
		break;
	case BPF_SOCK_OPS_RTO_CB:
		timed_out(ctx, c, ctx->args[0] + 1); /* it is told of before it is counted */
		break;
	case BPF_SOCK_OPS_RETRANS_CB:
		sent_again(c, ctx->args[1]);
		break;
	}
	return 1;
}

char _license[] SEC("license") = "Dual BSD/GPL";
