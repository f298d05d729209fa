/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the guard and user space share: layouts of its maps' keys and values.
 *
 * They live as long as a pinned guard does, longer than any process: a change
 * of a layout or of a meaning takes a higher GUARD_ABI, by which a newer process
 * knows that it cannot go on with the maps that it finds.
 *
 * No struct is packed, and none has a hole, as in abi.h.
 */
#pragma once

#define GUARD_ABI 2
#define GUARD_PORTS 64
#define GUARD_SOURCES 65536 /* of each family, the least recently seen go first */
#define GUARD_ENTRIES (1 << 20) /* of one list: a trie takes memory only as it fills */

/* How much new connections may come. Times are CLOCK_MONOTONIC. */
struct limits {
	__u64 interval_ns;   /* between two SYNs of a source, on average; 0: no limit */
	__u64 depth_ns;      /* how many at once: so many intervals */
	__u64 shed_until_ns; /* the share counts until then: it ends with whoever renews it */
	__u32 shed_permille; /* share of the SYNs of sources that no list names */
	__u32 salt;          /* of the hash that shedding chooses by */
	__u32 abi;           /* GUARD_ABI; user space's from here on */
	__u32 owner;         /* the process that tends the guard */
	__u32 mode;          /* 1 native, 2 generic: how it hangs on the interface */
	__u32 owner_began;   /* in clock ticks since the host did: numbers of processes come again */
};

/* A guarded port. Its key is the port in host order. */
struct port_rule {
	__u32 index;       /* of its counts and its bucket, below GUARD_PORTS */
	__u32 _pad;
	__u64 interval_ns; /* between two new connections, on average; 0: no cap */
	__u64 depth_ns;
};

/* The cap of a port: all CPUs draw on it. */
struct port_bucket {
	struct bpf_spin_lock lock;
	__u32 _pad;
	__u64 full_ns; /* when it is full again: the further ahead, the emptier */
};

/* Early warning, of one port on one CPU: SYNs that came, and that were dropped. */
struct port_counts {
	__u64 syns;
	__u64 dropped;
};

/* Of one CPU. Each packet is in exactly one of them. Counts never fall. */
struct verdicts {
	/* passed */
	__u64 established; /* TCP that begins no connection: nothing else is looked at */
	__u64 unguarded;   /* a SYN to a port that is not guarded */
	__u64 syn;         /* a SYN to a guarded port */
	__u64 allowed;     /* … of a source on the allow list */
	__u64 fragment;    /* any but the first of a packet */
	__u64 malformed;   /* TCP or IP that ends too early or contradicts itself */
	__u64 other;       /* no TCP, or behind more headers than are followed */
	/* dropped; all but hidden are SYNs */
	__u64 denied;      /* the deny list has its source */
	__u64 rate;        /* its source sends more than it may */
	__u64 shed;        /* the share of the low priority that is shed */
	__u64 port_cap;    /* the port takes no more */
	__u64 hidden;      /* what it is has been put out of sight: see hides */
};

/* Keys of the lists; addresses in network order, as tries compare them. */
struct prefix4 {
	__u32 bits;
	__u8 address[4];
};

struct prefix6 {
	__u32 bits;
	__u8 address[16];
};

/* What a list says of a prefix. The longest prefix decides; user space leaves
 * out what an allowed one covers, so that allowing wins. */
enum listed {
	LISTED_NOT,
	LISTED_ALLOW,
	LISTED_DENY,
};
