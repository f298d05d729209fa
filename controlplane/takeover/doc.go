// Package takeover lets a router that is started take over from one that runs:
// its listening sockets, so that no connection is refused, and what it knows of
// the nodes' caches, so that requests go on finding their prefixes. Requests
// under way end in the process where they began.
//
// Two processes speak over a unix socket (Path) on which the running one waits:
//
//	new                                    old
//	Hello  version, program         ──►
//	                                ◄──    Welcome, or Refusal with the reason
//	                                ◄──    Socket …  one each, its descriptor beside it (SCM_RIGHTS)
//	                                ◄──    Node …    what is known of each node
//	  … starts: loops, control plane; nothing is accepted yet
//	Fetch  one rank of a node       ──►
//	                                ◄──    Piece …, Tails …   what the index holds of it
//	                                ◄──    Rank      where its events, or its reports, stand
//	  … begins to accept
//	Ready                           ──►
//	                                       stops accepting, drains
//	                                ◄──    Yours
//	                                ◄──    Note …    what was sent to fetched ranks since, and is sent yet
//
// Until Ready the old process owns everything: if the connection ends, it goes
// on as if nothing had happened, also if the new one has ended by the time that
// Ready is read. From Ready on the new one does. If the old one dies before, the
// new one goes on with what it has by then; if it is alive and the connection is
// broken, the new one gives up, for two would serve else.
//
// The sockets are shared, never closed and opened again: what waits in their
// queues waits for whoever accepts next. That includes the unix socket itself.
//
// # What can be relied on
//
// Either side must belong to the same user, or the other one to root. Nothing
// that comes is trusted all the same: frames have a length, a bound and a
// checksum, and what is in them is read strictly. Versions must be equal; Hello,
// Welcome and Refusal can be read by every version.
//
// The package owns the protocol, the sockets of the process (Sockets) and the
// order of things. It knows nothing of what is handed over: the running router
// is a Giver, and the starting one asks an Heir.
//
// # Under systemd
//
// A unit whose reload starts the program anew; the new process says that it is
// the main one (MAINPID, sd_notify(3)), and the old one ends by itself:
//
//	[Service]
//	Type=notify
//	NotifyAccess=all
//	StateDirectory=warmpath
//	ExecStart=/usr/bin/warmpath serve --config /etc/warmpath/warmpath.yaml
//	ExecReload=/bin/sh -c '/usr/bin/warmpath serve --config /etc/warmpath/warmpath.yaml &'
//	TimeoutStopSec=200
//
// with state_dir: /var/lib/warmpath in the configuration.
package takeover
