package admin_test

import (
	"testing"

	"warmpath/controlplane/admin"
	"warmpath/controlplane/guard"
)

// Without a guard the router says so, and changes are refused with the remedy.
// What they do to a guard is tested with the program, in a namespace.
func TestNoGuard(t *testing.T) {
	s := serve(t, "", "nodes: []\n")
	if err := s.Control.StartGuard(s.Data.Addr(), 0); err != nil {
		t.Fatal(err)
	}
	var v admin.KernelView
	s.get("/api/kernel", &v)
	if v.XDP.State != guard.StateOff || v.XDP.Reason != "kernel.xdp.interface is empty" || v.XDP.Limits.SynPerSource != 100 || v.XDP.Shed.Setting != "auto" {
		t.Errorf("xdp: %+v", v.XDP)
	}
	if status, body := s.call("GET", "/api/guard/lists/deny", ""); status != 200 || body != "" {
		t.Errorf("the list: %d %q", status, body)
	}
	for _, c := range [][3]string{
		{"PUT", "lists/deny", `["10.0.0.0/8"]`},
		{"POST", "lists/allow", `["10.0.0.0/8"]`},
		{"DELETE", "lists/allow", `["10.0.0.0/8"]`},
		{"PUT", "limits", `{"syn_per_port": 1000}`},
		{"PUT", "shed", `{"shed": 0.5}`},
	} {
		s.refused(c[0], "/api/guard/"+c[1], c[2], 409, "guard_off", "set kernel.xdp.interface")
	}
	s.refused("PUT", "/api/guard/lists/deny", `["10.0.0.1/8"]`, 400, "bad_prefix", "write 10.0.0.0/8")
	s.refused("PUT", "/api/guard/lists/deny", `["10.0.0.0/8"] []`, 400, "bad_body", "more than one value")
	s.refused("PUT", "/api/guard/lists/deny", `null`, 400, "bad_body", "null")
	s.refused("PUT", "/api/guard/lists/black", `[]`, 404, "unknown_list", "deny, allow")
	s.refused("PUT", "/api/guard/shed", `{}`, 400, "bad_shed", "auto")
	s.refused("PUT", "/api/guard/shed", `{"shed":"now"}`, 400, "bad_shed", "auto")
	s.refused("PUT", "/api/guard/limits", `{"syn_per_source": 99999999}`, 400, "bad_value", "out of range")
	for name := range s.metrics() {
		if name == "warmpath_xdp_packets_total" {
			t.Error("there are packets without a guard")
		}
	}
}
