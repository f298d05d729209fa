package guard

import (
	"errors"
	"fmt"
	"syscall"

	"warmpath/bpf"
)

// removeStale removes pinned guards that a process left which is no more, and
// that plan does not go on with: whoever takes the interface out of the
// configuration and starts the router again means the guard to go. of is the
// process that left them, 0 for any.
func (k *Keeper) removeStale(plan *Plan, of int) {
	root := plan.settings.Pin
	if root == "" {
		return
	}
	for _, nic := range bpf.PinnedGuards(root) {
		if plan.settings.Off == "" && nic == plan.settings.Interface {
			continue
		}
		owner, runs := bpf.GuardOwner(root, nic)
		if owner == 0 || runs || of != 0 && owner != of {
			continue // its router runs, or that cannot be known
		}
		if err := bpf.RemoveGuard(root, nic); err != nil {
			k.opt.Log.Warn("a guard that nobody tends was left where it is", "interface", nic, "err", err)
			continue
		}
		k.opt.Log.Info("a guard that nobody tends was taken off", "interface", nic)
	}
}

func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// TakeOff takes a pinned guard off an interface, unless a process tends it.
func TakeOff(pin, nic string) error {
	if owner, runs := bpf.GuardOwner(pin, nic); runs {
		return fmt.Errorf("process %d tends the guard of %s; take kernel.xdp.interface out of its configuration and reload, or end it", owner, nic)
	}
	return bpf.RemoveGuard(pin, nic)
}
