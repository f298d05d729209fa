package admin

import (
	"net/http"

	"warmpath/controlplane/guard"
	"warmpath/controlplane/kernel"
	"warmpath/dataplane"
)

// KernelView is what GET /api/kernel shows.
type KernelView struct {
	kernel.View
	XDP guard.Status `json:"xdp"`
}

var (
	descKernelRTT   = desc("kernel_rtt_seconds", "Round trip of SYNs: the network alone.", "node")
	descKernelFirst = desc("kernel_first_byte_seconds", "From a request to the first segment of its answer: by the kernel in the tier full, else by the loops.", "node")
	descRetransmits = desc("kernel_retransmits_total", "Segments sent to a node again.", "node")
	descTimeouts    = desc("kernel_retransmission_timeouts_total", "Retransmission time-outs of connections to a node.", "node")
	descResets      = desc("kernel_resets_total", "Connections reset, by the node (received) or by this host (sent).", "node", "direction")
	descClosedIdle  = desc("kernel_idle_closed_total", "Connections that the node closed while no request was on them.", "node")
	descLoads       = desc("kernel_load_readings_total", "Segments of a node that carried its load (kernel.node_load).", "node")
	descNoWindow    = desc("kernel_zero_windows_total", "Times that a node took nothing more of a connection, each second anew.", "node")
	descErrors      = desc("kernel_socket_errors_total", "Errors that sockets of connections to a node were told of.", "node")
	descUnfollowed  = desc("kernel_unfollowed_total", "Connections to nodes that the kernel's programs did not follow: no_slot, their segments alone; refused, in nothing.", "reason")
	descKernelLost  = desc("kernel_events_lost_total", "Events of the kernel's programs that found no room.")
	descKernelTier  = desc("kernel_tier", "1 for what the kernel plane is: full, lite, passive or off.", "tier")
)

func (s *Server) kernel(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, KernelView{s.opt.Control.Kernel().View(), s.opt.Control.Guard().Status()})
}

// kernel makes the series of the kernel plane. Of nodes there are none where it
// sees nothing: unknown is not zero.
func (c *collector) kernel(m maker, t *dataplane.Totals) {
	v := c.opt.Control.Kernel().View()
	for _, tier := range []kernel.Tier{kernel.Full, kernel.Lite, kernel.Passive, kernel.Off} {
		m.gauge(descKernelTier, flag(v.Tier == tier), string(tier))
	}
	if v.Tier == kernel.Off {
		return
	}
	if v.Slots > 0 {
		m.counter(descKernelLost, float64(v.EventsLost))
		m.counter(descUnfollowed, float64(t.Unslotted), "no_slot")
		m.counter(descUnfollowed, float64(t.Unfollowed), "refused")
	}
	for i := range v.Nodes {
		n := &v.Nodes[i]
		m.histogram(descKernelRTT, &n.RTT, n.Name)
		m.histogram(descKernelFirst, &n.FirstByte, n.Name)
		m.counter(descRetransmits, float64(n.Retransmits), n.Name)
		m.counter(descTimeouts, float64(n.TimeOuts), n.Name)
		m.counter(descResets, float64(n.ResetsIn), n.Name, "received")
		if v.Sources.Resets == kernel.ByKernel { // user space does not see them
			m.counter(descResets, float64(n.ResetsOut), n.Name, "sent")
		}
		m.counter(descClosedIdle, float64(n.ClosedIdle), n.Name)
		if v.Sources.Windows != kernel.Unknown {
			m.counter(descNoWindow, float64(n.ZeroWindows), n.Name)
		}
		if v.Sources.Errors != kernel.Unknown {
			m.counter(descErrors, float64(n.Errors), n.Name)
		}
		if v.NodeLoad {
			m.counter(descLoads, float64(n.Readings), n.Name)
		}
	}
}
