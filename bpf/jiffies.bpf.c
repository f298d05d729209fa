//go:build ignore
/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The kernel's ticks: some settings are in them, and how long one is cannot be
 * read anywhere on every kernel. Never attached, only run by hand. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp")
int jiffies(struct xdp_md *ctx)
{
	return bpf_jiffies64();
}

char _license[] SEC("license") = "Dual BSD/GPL";
