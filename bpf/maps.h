/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Maps of the flow programs. Each object declares them all; the loader makes them
 * once and gives them to the others. */
#pragma once

#include "abi.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_NODES);
	__type(key, __u32);
	__type(value, struct node_rule);
} rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct conn);
} conns SEC(".maps");

/* The short way from a segment to its slot. Storage of the socket, the long one,
 * is three dependent reads of memory that is in no cache. Two connections from
 * one port to different nodes are told apart by the slot's cookie: the earlier
 * takes the long way. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct port_slots);
} by_port SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* the loader says how many */
	__type(key, __u32);
	__type(value, struct slot);
} slots SEC(".maps");

/* Of a local port: the number of its slot + 1, LONG_WAY, 0 = no node's. */
static __always_inline __u16 *short_way(__u16 port)
{
	struct port_slots *p;
	__u32 zero = 0;

	p = bpf_map_lookup_elem(&by_port, &zero);
	return p ? &p->slot[port] : NULL;
}

/* Added: another program of this socket may have set some. */
static __always_inline void add_flags(struct bpf_sock_ops *ctx, __u32 flags)
{
	bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | flags);
}

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_NODES);
	__type(key, __u32);
	__type(value, struct node_counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_NODES);
	__type(key, __u32);
	__type(value, struct node_times);
} times SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 256 * 1024);
} events SEC(".maps");

/* Events that found no room. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} events_lost SEC(".maps");

/* So that its layout stands in the object, from which Go's is generated. */
const struct event *_event __attribute__((unused));

static __always_inline struct node_counters *counters_of(__u32 node)
{
	return bpf_map_lookup_elem(&counters, &node);
}

static __always_inline struct node_times *times_of(__u32 node)
{
	return bpf_map_lookup_elem(&times, &node);
}

/* The slot of a connection, NULL if it has none or another has it by now. */
static __always_inline struct slot *slot_of(const struct conn *c)
{
	__u32 i = c->slot;
	struct slot *s = bpf_map_lookup_elem(&slots, &i);

	return s && s->generation == c->generation ? s : NULL;
}

static __always_inline __u32 bucket_of(__u64 ns)
{
	__u32 b = 0;

	if (ns >> 32) { b += 32; ns >>= 32; }
	if (ns >> 16) { b += 16; ns >>= 16; }
	if (ns >> 8) { b += 8; ns >>= 8; }
	if (ns >> 4) { b += 4; ns >>= 4; }
	if (ns >> 2) { b += 2; ns >>= 2; }
	if (ns >> 1) { b += 1; ns >>= 1; }
	b += ns;
	return b < BUCKETS ? b : BUCKETS - 1;
}

static __always_inline void say(const struct conn *c, __u32 kind, __u32 count, __u64 at_ns)
{
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e) {
		__u32 zero = 0;
		__u64 *lost = bpf_map_lookup_elem(&events_lost, &zero);

		if (lost)
			(*lost)++;
		return;
	}
	e->at_ns = at_ns;
	e->since_ns = c->rto_ns;
	e->kind = kind;
	e->node = c->node;
	e->slot = c->slot;
	e->count = count;
	e->tenant = c->tenant;
	e->_pad = 0;
	bpf_ringbuf_submit(e, 0);
}

/* What a socket of a sockops program carries, NULL if it is not followed. */
static __always_inline struct conn *conn_of(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;

	return sk ? bpf_sk_storage_get(&conns, sk, NULL, 0) : NULL;
}
