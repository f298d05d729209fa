//go:build ignore
/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* A node's load in a TCP option (abi.h has its layout), so that it is as fresh as
 * the last segment of an answer. load_write hangs on a cgroup of the engine's host,
 * load_read on the router's; each is loaded without the other.
 *
 * Other programs may have callbacks of the same sockets: flags are added to those
 * that are set, and room is only written to that was asked for here. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "maps.h"
#include "load_maps.h"

struct load_option {
	__u8 kind;
	__u8 bytes;
	__be16 magic;
	__u32 word;
};

static __always_inline struct load_sent *sent_of(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;

	return sk ? bpf_sk_storage_get(&load_conns, sk, NULL, 0) : NULL;
}

/* A connection to a port that user space has named is one that carries it. */
static __always_inline struct load_sent *adopt(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	__u32 port = ctx->local_port;

	if (!sk || !bpf_map_lookup_elem(&load_ports, &port))
		return NULL;
	return bpf_sk_storage_get(&load_conns, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
}

/* The kernel is about to make a segment, or to find out how much one may carry:
 * then the room is always counted, for no segment may become too long by it. */
static __always_inline void reserve(struct bpf_sock_ops *ctx)
{
	struct load_sent *sent = sent_of(ctx);
	struct load_said *said;
	__u32 zero = 0;
	__u64 now;

	if (!sent)
		sent = adopt(ctx); /* one of an agent before: its flag has outlived it */
	if (!sent)
		return;
	if (ctx->args[0] == BPF_WRITE_HDR_TCP_CURRENT_MSS) {
		bpf_reserve_hdr_opt(ctx, LOAD_OPTION_BYTES, 0);
		return;
	}
	sent->due = 0;
	said = bpf_map_lookup_elem(&load_now, &zero);
	if (!said || !said->word)
		return;
	now = bpf_ktime_get_ns();
	if (now - said->at_ns >= LOAD_STALE_NS)
		return;
	if (said->word == sent->word && now - sent->at_ns < LOAD_EVERY_NS)
		return;
	if (bpf_reserve_hdr_opt(ctx, LOAD_OPTION_BYTES, 0) == 0)
		sent->due = 1;
}

static __always_inline void write(struct bpf_sock_ops *ctx)
{
	struct load_option option = {LOAD_OPTION_KIND, LOAD_OPTION_BYTES, bpf_htons(LOAD_MAGIC), 0};
	struct load_sent *sent = sent_of(ctx);
	struct load_said *said;
	__u32 zero = 0;

	if (!sent || !sent->due)
		return;
	sent->due = 0;
	said = bpf_map_lookup_elem(&load_now, &zero);
	if (!said)
		return;
	option.word = said->word;
	if (!option.word || bpf_store_hdr_opt(ctx, &option, sizeof(option), 0))
		return;
	sent->word = option.word;
	sent->at_ns = bpf_ktime_get_ns();
}

SEC("sockops")
int load_write(struct bpf_sock_ops *ctx)
{
	switch (ctx->op) {
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		if (adopt(ctx))
			add_flags(ctx, BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		reserve(ctx);
		break;
	case BPF_SOCK_OPS_WRITE_HDR_OPT_CB:
		write(ctx);
		break;
	}
	return 1;
}

/* A segment with an option that the kernel does not know has come, in its window. */
static __always_inline void read(struct bpf_sock_ops *ctx)
{
	struct load_option option = {LOAD_OPTION_KIND, 4, bpf_htons(LOAD_MAGIC), 0};
	struct conn *c = conn_of(ctx);
	struct node_load *load;
	__u32 node;

	if (!c || bpf_load_hdr_opt(ctx, &option, sizeof(option), 0) != LOAD_OPTION_BYTES)
		return;
	if (*((__u8 *)&option.word) >> 4 != LOAD_VERSION)
		return;
	node = c->node;
	load = bpf_map_lookup_elem(&node_loads, &node);
	if (!load)
		return;
	load->word = option.word;
	load->at_ns = bpf_ktime_get_ns();
	__sync_fetch_and_add(&load->readings, 1);
}

SEC("sockops")
int load_read(struct bpf_sock_ops *ctx)
{
	switch (ctx->op) {
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		if (conn_of(ctx))
			add_flags(ctx, BPF_SOCK_OPS_PARSE_UNKNOWN_HDR_OPT_CB_FLAG);
		break;
	case BPF_SOCK_OPS_PARSE_HDR_OPT_CB:
		read(ctx);
		break;
	}
	return 1;
}

char _license[] SEC("license") = "Dual BSD/GPL";
