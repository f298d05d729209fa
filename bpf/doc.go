// Package bpf is the kernel's side of the router: eBPF programs in C, the
// objects made of them, and a loader with typed maps and events. It knows
// connections, packets and nodes' numbers; nothing of HTTP or of language models,
// and it holds no policy: programs measure, and do what they were told to.
//
//	program                   hook                      from   maps                                  without it
//	flow      flow.bpf.c      cgroup sockops            5.10   rules conns slots counters times      connect times, time-outs and resets come from
//	                                                           events events_lost                    user space, late; nothing is tuned per node
//	segments  segments.bpf.c  tp_btf tcp_probe          5.12   the same                              first bytes and gaps are timed in user space,
//	                                                                                                 which charges its own delays to the node
//	resets    resets.bpf.c    tp_btf tcp_receive_reset  5.11   the same                              resets are counted where user space meets them
//	                          and tcp_send_reset
//	errors    errors.bpf.c    tp_btf                    5.15   the same                              of a connection that failed only the loops know
//	                          inet_sk_error_report                                                   why, where they meet the error
//	                          and inet_sock_set_state
//	windows   windows.bpf.c   tp_btf tcp_probe          5.11   the same                              that a node takes nothing more is not known, or
//	                                                                                                 TCP_INFO's where the loops measure
//	jiffies   jiffies.bpf.c   none: run by hand         5.10   none                                  time-outs of SYNs stay as the host has them
//	load_read load.bpf.c      cgroup sockops            5.10   conns node_loads                      a node's queue is as old as the last look at its metrics
//	load_write                cgroup sockops, on the    5.10   load_ports load_now load_conns        the same
//	                          engine's host
//	guard     guard.bpf.c     XDP of an interface       5.10   settings ports port_buckets           every SYN costs a handshake; limits begin once a
//	                                                           port_counters counters sources4/6     connection is accepted
//	                                                           lists4/6
//
// Kernels are those that the objects were loaded on (make test-kernels) or, for
// 5.11 (storage of sockets in tracing programs) and 5.12 (an exchange in one
// instruction), that first had what they use. Each program is a collection of its
// own, so that one that a kernel refuses takes no other with it; they share the
// first one's maps. What only a later kernel would take is ebpf.ErrNotSupported.
// load_read and load_write are the two ends of one option of TCP (abi.h), which
// nodes may or may not send: each works beside any other sockops program.
// The guard stands alone: it has its own maps and abi (guard_abi.h), can be pinned,
// and then outlives the process (Guard).
// There is no fentry and no kprobe: kernels exist that have neither.
//
// The Go side is Apache-2.0 like the rest; programs and headers are dual GPL-2.0 /
// BSD-2-Clause, for helpers that only GPL programs may call.
package bpf
