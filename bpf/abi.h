/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What the kernel's side and user space share: layouts of maps' keys and values.
 *
 * No struct is packed, and none has a hole: padding is written out, so that both
 * sides see the same bytes. The Go twins are generated from the objects' BTF.
 */
#pragma once

/* Nodes are told apart by a small number that user space gives out. */
#define MAX_NODES 1024
#define NO_SLOT 0xffffffff

/* What connections to a node get. 0 leaves the host's setting alone. */
struct node_rule {
	__u32 syn_rto_jiffies;     /* first time-out of a SYN */
	__u32 rto_min_us;          /* once established, where the path is short enough … */
	__u32 near;                /* … or from the start: it is known to be */
	__u32 user_timeout_ms;     /* TCP_USER_TIMEOUT */
	__u32 notsent_lowat_bytes; /* TCP_NOTSENT_LOWAT */
	__u32 priority;            /* SO_PRIORITY, plus 1 */
	__u32 tos;                 /* DSCP << 2, plus 1 */
	__u32 _pad;
};

/* What a socket carries. User space gives it to the sockets that it wants to have
 * followed, before they connect; all others are left alone, those of another
 * router in the same cgroup too. */
struct conn {
	__u32 node;
	__u32 slot;        /* NO_SLOT: nobody follows it segment by segment */
	__u32 generation;  /* of the slot's use: what is left of an older one writes nothing */
	__u32 tenant;      /* which node it is of those that had the number one after another */
	__u32 no_window_s; /* when it was told last that the node takes nothing */
	__u32 error;       /* that was told of last */
	__u64 connect_ns;
	__u64 rto_ns; /* of the first time-out in a row */
};

/* Slots by local port: the latest followed connection's from there, plus 1. */
struct port_slots {
	__u16 slot[65536];
};
#define LONG_WAY 0xffff /* a connection whose slot, if any, has no number of 16 bits */

#define SEGMENTS 4

struct segment {
	__u64 at_ns;
	__u32 end_bytes; /* of the answer: the segment carries what lies before */
	__u32 _pad;
};

/* One connection to a node, in memory that both sides map. Times are
 * CLOCK_MONOTONIC. All that a segment in the midst of an answer touches lies in
 * the first cache line: with thousands of connections none of this is in a cache
 * when the segment comes, and each line costs more than the whole program. */
struct slot {
	/* User space writes these three, once or twice a request. */
	__u64 send_ns;    /* when the request's last byte was written */
	__u32 seq;        /* one more with each request; stored last */
	__u32 generation; /* one more with each connection */

	/* The kernel writes the rest. */
	__u64 cookie;   /* of the socket … */
	__u32 use;      /* … that has the slot in this generation */
	__u32 node;
	__u64 last_ns;  /* of the answer's last segment so far */
	__u64 gap_ns;   /* the longest wait between two */
	__u32 bytes;    /* of the answer, so far, modulo 2^32 */
	__u32 segments;
	__u32 base;     /* TCP sequence number of the answer's first byte */
	__u32 answer;   /* the request's seq that all this is of */

	__u64 first_ns;   /* of the answer's first segment */
	__u32 state;      /* of the connection: TCP_ESTABLISHED … (net/tcp_states.h) */
	__u32 rtt_min_us; /* of the connection, at the first segment */
	struct segment segment[SEGMENTS]; /* the first ones */
	__u64 out_ns;     /* when the request went out: send_ns is from before the write, and who writes may be kept waiting in between */
	__u32 out;        /* the request's seq that out_ns is of */
	__u32 _pad0;
	__u64 _pad[4];
};

/* Of one node, on one CPU. Counts never fall. */
struct node_counters {
	__u64 segments; /* with data, from the node */
	__u64 bytes;
	__u64 heard_ns; /* when anything came from it last: the largest of all CPUs' */
	__u64 connects; /* begun */
	__u64 established;
	__u64 failed;      /* ended before they were established */
	__u64 resets_in;
	__u64 resets_out;
	__u64 errors;      /* errors that sockets were told of */
	__u64 retransmits; /* segments sent again */
	__u64 rtos;        /* retransmission time-outs */
	__u64 closed_idle;  /* closed by the node while no request was on them */
	__u64 zero_windows; /* the node took nothing more, told once a second */
};

/* Buckets of powers of two: bucket i counts values below 2^i ns, from 2^(i-1) on. */
#define BUCKETS 40

struct node_times {
	__u64 first_byte[BUCKETS]; /* request sent → first segment of the answer */
	__u64 gap[BUCKETS];        /* between two segments of an answer */
	__u64 connect[BUCKETS];
	__u64 syn_rtt[BUCKETS];    /* the network alone: no process of the node's is in it */
};

/* Rare events. */
enum event_kind {
	EVENT_NONE,
	EVENT_FAILED,      /* a connection ended before it was established */
	EVENT_RTO,         /* a second or later retransmission time-out in a row, of a connection that nobody has ended */
	EVENT_SYN_RTO,     /* a SYN was not answered in time */
	EVENT_RESET,       /* the node reset a connection */
	EVENT_CLOSED_IDLE, /* the node closed a connection that had no request */
	EVENT_NO_WINDOW,   /* the node takes nothing more for now */
	EVENT_ERROR,       /* the socket was told of an error; not of resets */
};

struct event {
	__u64 at_ns;
	__u64 since_ns; /* of time-outs: when the first in a row was */
	__u32 kind;     /* enum event_kind */
	__u32 node;
	__u32 slot;
	__u32 count; /* time-outs in a row; of an error, its number */
	__u32 tenant; /* of the number node: a connection may outlive its node's having it */
	__u32 _pad;
};

/* What an engine's host says of it, in an option of segments that it sends anyway
 * (load.bpf.c):
 *
 *   byte 0      254: an experiment (RFC 6994)
 *        1      8: bytes of the option
 *        2, 3   LOAD_MAGIC, network order
 *        4      version in the upper half; the lower is 0
 *        5      KV use in 254ths; 255: not known
 *        6, 7   requests that wait, network order, of 65534 and more 65534; 65535: not known
 *
 * The last four are the word: the kernel's side carries it as it is, and 0 is none. */
#define LOAD_OPTION_KIND 254
#define LOAD_OPTION_BYTES 8
#define LOAD_MAGIC 0x5750
#define LOAD_VERSION 1
#define LOAD_EVERY_NS 5000000    /* an unchanged word is said again on a connection … */
#define LOAD_STALE_NS 1000000000 /* … until it is so old */

/* What is to be said now. User space writes it: the word first. */
struct load_said {
	__u64 at_ns; /* when the engine said it; CLOCK_MONOTONIC */
	__u32 word;
	__u32 _pad;
};

/* What was said on a connection last. */
struct load_sent {
	__u64 at_ns;
	__u32 word;
	__u32 due; /* the segment in the making has room for it */
};

/* What a node said last, on whichever connection, in memory that user space maps.
 * A cache line each: nodes are heard by several CPUs at once. */
struct node_load {
	__u64 at_ns;    /* when it came; CLOCK_MONOTONIC */
	__u64 readings; /* how often anything came */
	__u32 word;
	__u32 _pad[11];
};
