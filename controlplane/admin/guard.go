package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"warmpath/controlplane/guard"
)

// maxListBytes bounds the list that one request may carry.
const maxListBytes = 64 << 20

// Changes by these routes hold until the next reload, which reads the files and
// keys of the configuration again.

// guardList shows a list of the guard, as text in the form of its file.
func (s *Server) guardList(w http.ResponseWriter, r *http.Request) {
	name, ok := listName(w, r)
	if !ok {
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	var b bytes.Buffer
	for _, p := range s.opt.Control.Guard().List(name) {
		b.WriteString(p.String() + "\n")
	}
	_, _ = w.Write(b.Bytes())
}

// changeGuardList takes a JSON list of CIDRs: PUT replaces the list by it, POST
// adds to the list, DELETE removes from it.
func (s *Server) changeGuardList(w http.ResponseWriter, r *http.Request) {
	name, ok := listName(w, r)
	if !ok {
		return
	}
	var texts []string
	const remedy = `send a list such as ["203.0.113.0/24"]`
	if !readJSON(w, r, maxListBytes, &texts, remedy) {
		return
	}
	if texts == nil { // null is no empty list: a PUT of it would open the guard
		refuse(w, http.StatusBadRequest, "bad_body", "the body is null; "+remedy)
		return
	}
	prefixes := make([]netip.Prefix, 0, len(texts))
	for i, text := range texts {
		p, err := guard.ParsePrefix(text)
		if err != nil {
			refuse(w, http.StatusBadRequest, "bad_prefix", fmt.Sprintf("entry %d: %v", i+1, err))
			return
		}
		prefixes = append(prefixes, p)
	}
	change := map[string]guard.ListChange{http.MethodPut: guard.Replace, http.MethodPost: guard.Add, http.MethodDelete: guard.Remove}[r.Method]
	s.guardChanged(w, s.opt.Control.Guard().ChangeList(name, change, prefixes))
}

func listName(w http.ResponseWriter, r *http.Request) (guard.ListName, bool) {
	name := guard.ListName(r.PathValue("list"))
	if name != guard.Deny && name != guard.Allow {
		refuse(w, http.StatusNotFound, "unknown_list", fmt.Sprintf("no list %q; lists are: deny, allow", string(name)))
		return "", false
	}
	return name, true
}

// setGuardLimits takes limits; those that are not named stay.
func (s *Server) setGuardLimits(w http.ResponseWriter, r *http.Request) {
	limits := s.opt.Control.Guard().Status().Limits
	if readJSON(w, r, maxNodeBytes, &limits, `send limits such as {"syn_per_source":100}`) {
		s.guardChanged(w, s.opt.Control.Guard().SetLimits(limits))
	}
}

// setGuardShed takes {"shed": "auto"}, {"shed": "off"} or {"shed": 0.3}.
func (s *Server) setGuardShed(w http.ResponseWriter, r *http.Request) {
	const remedy = `send {"shed":"auto"}, {"shed":"off"} or {"shed":0.3}`
	var v struct {
		Shed any `json:"shed"`
	}
	if !readJSON(w, r, maxNodeBytes, &v, remedy) {
		return
	}
	var shed guard.Shed
	switch value := v.Shed.(type) {
	case float64:
		shed.Share = value
	case string:
		if shed.Auto = value == "auto"; !shed.Auto && value != "off" {
			refuse(w, http.StatusBadRequest, "bad_shed", fmt.Sprintf("shed %.40q is not known; %s", value, remedy))
			return
		}
	default:
		refuse(w, http.StatusBadRequest, "bad_shed", "shed is missing; "+remedy)
		return
	}
	s.guardChanged(w, s.opt.Control.Guard().SetShed(shed))
}

// guardChanged answers a change with how the guard is now.
func (s *Server) guardChanged(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, guard.ErrOff):
		refuse(w, http.StatusConflict, "guard_off", strings.TrimSuffix(fmt.Sprintf("%v; %s", err, s.opt.Control.Guard().Status().Remedy), "; "))
	case err != nil:
		refuse(w, http.StatusBadRequest, "bad_value", err.Error())
	default:
		s.kernel(w, nil)
	}
}

// readJSON reads a body as one value of v's shape, or refuses with what to send.
func readJSON(w http.ResponseWriter, r *http.Request, most int64, v any, remedy string) bool {
	body, ok := readBody(w, r, most)
	if !ok {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil && d.More() {
		err = errors.New("more than one value")
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "bad_body", "read body: "+err.Error()+"; "+remedy)
		return false
	}
	return true
}

// Series of the guard; there are none while it is not on.
var (
	descXDP        = desc("xdp_packets_total", "Packets that met the guard, by what became of them.", "verdict")
	descXDPSyns    = desc("xdp_syns_total", "SYNs to a guarded port.", "port")
	descXDPDropped = desc("xdp_syns_dropped_total", "… of those, the ones that the guard dropped.", "port")
	descXDPShed    = desc("xdp_shed_share", "Share of new connections that the guard drops by itself.")
)

func (c *collector) guard(m maker) {
	st := c.opt.Control.Guard().Status()
	if st.State != guard.StateOn {
		return
	}
	for verdict, packets := range st.Packets {
		m.counter(descXDP, float64(packets), verdict)
	}
	for port, n := range st.Ports {
		m.counter(descXDPSyns, float64(n.SYNs), port)
		m.counter(descXDPDropped, float64(n.Dropped), port)
	}
	m.gauge(descXDPShed, st.Shed.Share)
}
