/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Maps of the guard. */
#pragma once

#include "guard_abi.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct limits);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GUARD_PORTS);
	__type(key, __u16);
	__type(value, struct port_rule);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, GUARD_PORTS);
	__type(key, __u32);
	__type(value, struct port_bucket);
} port_buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, GUARD_PORTS);
	__type(key, __u32);
	__type(value, struct port_counts);
} port_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct verdicts);
} counters SEC(".maps");

/* Buckets of sources: when each is full again. The families have one each, so
 * that somebody with a large IPv6 network pushes nobody's IPv4 bucket out. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, GUARD_SOURCES);
	__type(key, __u32); /* the address */
	__type(value, __u64);
} sources4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, GUARD_SOURCES);
	__type(key, __u64); /* its first half, a /64: what one customer usually has */
	__type(value, __u64);
} sources6 SEC(".maps");

struct list4 {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, GUARD_ENTRIES);
	__type(key, struct prefix4);
	__type(value, __u32); /* enum listed */
};

struct list6 {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, GUARD_ENTRIES);
	__type(key, struct prefix6);
	__type(value, __u32);
};

/* The lists, one of each family or none. User space fills a new one and puts it
 * in the old one's place, so that no packet meets half a list. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct list4);
} lists4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct list6);
} lists6 SEC(".maps");

/* So that their layouts stand in the object: the lists' definitions alone only
 * name them. */
const struct prefix4 *_prefix4 __attribute__((unused));
const struct prefix6 *_prefix6 __attribute__((unused));
