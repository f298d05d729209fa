package guard

import "strconv"

// State is how the guard stands.
type State string

// States.
const (
	StateOn      State = "on"
	StateOff     State = "off"     // nothing but a reload or a restart changes that
	StateWaiting State = "waiting" // it is tried again
	StateGiven   State = "given"   // another process tends it
)

// Status is the section xdp of GET /api/kernel.
type Status struct {
	State     State  `json:"state"`
	Reason    string `json:"reason"` // why it is not on
	Remedy    string `json:"remedy"`
	Interface string `json:"interface"`
	Mode      string `json:"mode"` // native or generic; as configured while it is not on
	NotNative string `json:"not_native,omitempty"`
	Pinned    bool   `json:"pinned"`
	NotPinned string `json:"not_pinned,omitempty"`
	TakenOver bool   `json:"taken_over"` // it was there before this process
	ProgramID uint32 `json:"program_id"`

	Packets map[string]uint64     `json:"packets"` // by verdict, since it was first attached
	Ports   map[string]PortStatus `json:"ports"`   // guarded ones
	Lists   map[ListName]int      `json:"lists"`   // how many entries
	Limits  Limits                `json:"limits"`
	Shed    ShedStatus            `json:"shed"`
}

// PortStatus counts the SYNs to a port.
type PortStatus struct {
	SYNs    uint64 `json:"syns"`
	Dropped uint64 `json:"dropped"`
}

// ShedStatus says what is shed.
type ShedStatus struct {
	Setting string  `json:"setting"` // auto, off or a share
	Share   float64 `json:"share"`   // of new connections, now
}

// String is the setting as the configuration has it.
func (s Shed) String() string {
	switch {
	case s.Auto:
		return "auto"
	case s.Share == 0:
		return "off"
	}
	return strconv.FormatFloat(s.Share, 'g', -1, 64)
}

// Status is a picture of the guard.
func (k *Keeper) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	st := Status{
		State: k.state, Reason: k.reason, Remedy: k.remedy, Packets: map[string]uint64{}, Ports: map[string]PortStatus{},
		Lists:  map[ListName]int{Deny: len(k.lists.Deny), Allow: len(k.lists.Allow)},
		Limits: k.limits, Shed: ShedStatus{Setting: k.shed.String(), Share: k.share},
	}
	if k.plan != nil {
		st.Interface, st.Mode = k.plan.settings.Interface, k.plan.settings.Mode
	}
	g := k.kernel
	if g == nil {
		return st
	}
	st.Mode, st.TakenOver, st.ProgramID = g.Mode().String(), g.Adopted(), g.ProgramID()
	st.Pinned, st.NotPinned = g.Pinned()
	if err := g.NotNative(); err != nil {
		st.NotNative = err.Error()
	}
	counts, err := g.Counts()
	if err == nil {
		counts.Each(func(verdict string, packets uint64) { st.Packets[verdict] = packets })
	}
	ports, err := g.Ports()
	if err == nil {
		for _, p := range ports {
			st.Ports[strconv.Itoa(int(p.Port))] = PortStatus{SYNs: p.SYNs, Dropped: p.Dropped}
		}
	}
	return st
}
