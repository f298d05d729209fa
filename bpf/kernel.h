/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The few fields of the kernel's own structs that are read. CO-RE finds where
 * they are on the running kernel, so that no vmlinux.h is needed. */
#pragma once

#define __relocated __attribute__((preserve_access_index))

struct minmax_sample {
	__u32 t;
	__u32 v;
} __relocated;

struct minmax {
	struct minmax_sample s[3];
} __relocated;

typedef struct {
	__s64 counter;
} __relocated atomic64_t;

struct sock_common {
	__u16 skc_num;
	atomic64_t skc_cookie;
} __relocated;

struct sock {
	struct sock_common __sk_common;
	int sk_err;
} __relocated;

struct tcp_sock {
	__u32 rcv_nxt;
	__u64 tcp_mstamp;    /* µs: when it sent or received last, CLOCK_MONOTONIC (tcp_mstamp_refresh of net/ipv4/tcp_output.c) */
	__u32 retrans_stamp; /* 0 = it waits for no acknowledgement of what was sent again … */
	__u32 tlp_high_seq;  /* … nor of a probe for a lost tail */
	struct minmax rtt_min;
} __relocated;

struct sk_buff {
	char cb[48];
} __relocated;

/* TCP_SKB_CB(skb) of include/net/tcp.h: what lies in cb once TCP has the packet. */
struct tcp_skb_cb {
	__u32 seq;
	__u32 end_seq;
} __relocated;
