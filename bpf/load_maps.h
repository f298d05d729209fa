/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Maps of the load programs: three of the node's, one of the router's. */
#pragma once

#include "abi.h"

/* Ports whose accepted connections carry the option. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} load_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct load_said);
} load_now SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct load_sent);
} load_conns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, MAX_NODES);
	__type(key, __u32);
	__type(value, struct node_load);
} node_loads SEC(".maps");
