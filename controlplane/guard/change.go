package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"warmpath/bpf"
)

// ChangeList changes a list until the next reload, which reads the files again.
func (k *Keeper) ChangeList(name ListName, change ListChange, by []netip.Prefix) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.mine(); err != nil {
		return err
	}
	lists := k.lists
	if name == Allow {
		lists.Allow = change.changed(lists.Allow, by)
	} else {
		lists.Deny = change.changed(lists.Deny, by)
	}
	if err := k.kernel.SetLists(lists); err != nil {
		return err
	}
	k.lists = lists
	k.opt.Log.Info("list of the guard changed", "list", string(name), "change", string(change), "entries", len(by))
	return nil
}

// mine reports why nothing can be changed, nil if something can.
func (k *Keeper) mine() error {
	if k.kernel == nil {
		return fmt.Errorf("%w: %s", ErrOff, k.reason)
	}
	if !k.kernel.Owned() { // what is pinned is shared with whoever has it now
		return fmt.Errorf("%w here: %w", ErrOff, bpf.ErrGuardGiven)
	}
	return nil
}

// List returns a list as it is in force.
func (k *Keeper) List(name ListName) []netip.Prefix {
	k.mu.Lock()
	defer k.mu.Unlock()
	if name == Allow {
		return slices.Clone(k.lists.Allow)
	}
	return slices.Clone(k.lists.Deny)
}

// SetLimits changes the limits until the next reload.
func (k *Keeper) SetLimits(l Limits) error {
	if err := l.check(); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.mine(); err != nil {
		return err
	}
	was := k.limits
	k.limits = l
	err := errors.Join(k.setSourceRate(), k.setPorts())
	if err != nil {
		k.limits = was
		_ = errors.Join(k.setSourceRate(), k.setPorts()) // what is shown is in force again, as far as that goes
	}
	return err
}

// SetShed changes the share to shed until the next reload.
func (k *Keeper) SetShed(s Shed) error {
	if !(s.Share >= 0 && s.Share <= 1) {
		return fmt.Errorf("shed = %v is no share; use 0 to 1", s.Share)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.mine(); err != nil {
		return err
	}
	k.shed = s
	k.renew(time.Now())
	return nil
}
