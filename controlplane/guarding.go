package controlplane

import (
	"net"

	"warmpath/controlplane/config"
	"warmpath/controlplane/guard"
)

// guardSettings is what a configuration says of the guard.
func guardSettings(c *config.Config) guard.Settings {
	x := &c.Kernel.XDP
	s := guard.Settings{
		Require: c.Kernel.Mode == "require", Interface: x.Interface, Mode: x.Mode, Ports: x.Ports, DenyFile: x.DenyFile, AllowFile: x.AllowFile,
		Limits: guard.Limits{SynPerSource: x.SynPerSource, SynBurst: x.SynBurst, SynPerPort: x.SynPerPort},
		Shed:   guard.Shed{Auto: x.Shed.Auto, Share: x.Shed.Share}, Pin: x.Pin,
	}
	switch {
	case c.Kernel.Mode == "off":
		s.Off = "kernel.mode is off"
	case x.Interface == "":
		s.Off = "kernel.xdp.interface is empty"
	}
	return s
}

// Guard is the guard of the interface where clients come in.
func (c *ControlPlane) Guard() *guard.Keeper { return c.guard }

// StartGuard puts the guard before clients, who connect to an address. It is
// called when they are served, and not before the process former (0 = none) has
// handed over: who takes its guard over too early leaves it without one. The error
// says that the guard was required and is not to be had.
func (c *ControlPlane) StartGuard(clients net.Addr, former int) error {
	port := uint16(0)
	if a, ok := clients.(*net.TCPAddr); ok {
		port = uint16(a.Port)
	}
	return c.guard.Start(c.guardPlan, port, former)
}

// guardSignals are what shedding goes by.
func (c *ControlPlane) guardSignals() guard.Signals {
	s := guard.Signals{Pressure: c.opt.Fleet.Pressure()}
	if data := c.data.Load(); data != nil {
		s.Crowd = float64(data.Clients()) / float64(c.Config().Limits.Connections)
	}
	return s
}
