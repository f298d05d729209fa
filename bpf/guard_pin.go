package bpf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// pinnedLink is the name of the link's pin, beside those of the maps. It is made
// last: a folder without it is what a process left that died.
const pinnedLink = "link"

// pinned are the maps that a guard keeps, by their names.
func (o *guardMaps) pinned() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		guardMapSettings: o.Settings, guardMapPorts: o.Ports, guardMapPortBuckets: o.PortBuckets, guardMapPortCounters: o.PortCounters,
		guardMapCounters: o.Counters, guardMapSources4: o.Sources4, guardMapSources6: o.Sources6, guardMapLists4: o.Lists4, guardMapLists6: o.Lists6,
	}
}

// pinFolder is where the guard of an interface is pinned. bpffs takes no dots in
// names, and interfaces no colons.
func pinFolder(root, nic string) string {
	return filepath.Join(root, strings.ReplaceAll(nic, ".", ":"))
}

// lockPins makes the folder of pins and keeps other processes out of it until
// unlock; folder is "" if nothing can be pinned, and why says why.
func lockPins(opt GuardOptions) (folder, why string, unlock func()) {
	unlock = func() {}
	if opt.PinFolder == "" {
		return "", "no folder is named for it", unlock
	}
	if !onBPFFS(opt.PinFolder) {
		return "", fmt.Sprintf("%s is in no bpffs; mount one: mount -t bpf bpf /sys/fs/bpf", opt.PinFolder), unlock
	}
	if err := os.MkdirAll(opt.PinFolder, 0o700); err != nil {
		return "", err.Error(), unlock
	}
	unlock, err := lockFolder(opt.PinFolder)
	if err != nil {
		return "", err.Error(), func() {}
	}
	return pinFolder(opt.PinFolder, opt.Interface), "", unlock
}

func lockFolder(folder string) (unlock func(), err error) {
	dir, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		_ = dir.Close()
		return nil, fmt.Errorf("lock %s: %w", folder, err)
	}
	return func() { _ = dir.Close() }, nil
}

// onBPFFS reports whether a folder, or the nearest one above it that is there,
// lies in a bpffs.
func onBPFFS(folder string) bool {
	for {
		var fs unix.Statfs_t
		err := unix.Statfs(folder, &fs)
		if err == nil {
			return fs.Type == unix.BPF_FS_MAGIC
		}
		up := filepath.Dir(folder)
		if !errors.Is(err, unix.ENOENT) || up == folder {
			return false
		}
		folder = up
	}
}

// pin pins maps and link.
func (g *Guard) pin(folder string) error {
	if err := g.pinMaps(folder); err != nil {
		return err
	}
	if err := g.link.Pin(filepath.Join(folder, pinnedLink)); err != nil {
		return fmt.Errorf("pin guard: %w", err)
	}
	g.folder, g.unlike = folder, ""
	return nil
}

func (g *Guard) pinMaps(folder string) error {
	if err := removePins(folder); err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return fmt.Errorf("make folder of pins: %w", err)
	}
	for name, m := range g.objects.pinned() {
		if err := m.Pin(filepath.Join(folder, name)); err != nil {
			return fmt.Errorf("pin map %s of guard: %w", name, err)
		}
	}
	return nil
}

// adoptGuard takes over the guard that is pinned in folder; nil if there is
// none that still hangs on this interface, or none in the mode that is wanted.
func adoptGuard(opt GuardOptions, index int, folder string) (*Guard, error) {
	pinned := filepath.Join(folder, pinnedLink)
	if _, err := os.Lstat(pinned); err != nil {
		return nil, nil
	}
	l, err := link.LoadPinnedLink(pinned, nil)
	if err != nil {
		return nil, fmt.Errorf("open the pinned guard %s: %w", pinned, permission(err))
	}
	on := indexOf(l)
	if on != index {
		_ = l.Close()
		if on != 0 {
			return nil, fmt.Errorf("%s is pinned for interface number %d, and %s is number %d: name another folder in kernel.xdp.pin", pinned, on, opt.Interface, index)
		}
		return nil, nil // its interface went away
	}
	maps := openMaps(folder)
	defer closeMaps(maps)
	former, _ := pinnedLimits(folder)
	if mode := GuardMode(former.Mode); opt.Mode != GuardAuto && mode != GuardAuto && mode != opt.Mode {
		// A link's mode is for life: for a moment nothing guards.
		err = l.Detach()
		_ = l.Close()
		return nil, err
	}
	g, err := newGuard(maps)
	if errors.Is(err, ebpf.ErrMapIncompatible) { // of another version
		maps = nil
		g, err = newGuard(nil)
	}
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	g.link, g.index, g.adopted, g.limits.Mode = l, index, true, former.Mode
	if err := g.takeOver(folder, maps != nil); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// takeOver exchanges the program behind the link.
func (g *Guard) takeOver(folder string, sameMaps bool) error {
	if err := g.link.Update(g.objects.Guard); err != nil {
		return fmt.Errorf("exchange the program of the pinned guard: %w", permission(err))
	}
	g.folder = folder // the new program is in force from here on
	g.limits.own()
	if err := g.store(); err != nil {
		return err
	}
	if sameMaps {
		return nil
	}
	// Who dies in here leaves a folder without a map: then the next one, too,
	// begins with new maps.
	for name, m := range g.objects.pinned() {
		path := filepath.Join(folder, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove pin of the former guard: %w", err)
		}
		if err := m.Pin(path); err != nil {
			return fmt.Errorf("pin map %s of guard: %w", name, err)
		}
	}
	return nil
}

// openMaps opens the pinned maps, nil if one is missing or their version is not
// this one's.
func openMaps(folder string) map[string]*ebpf.Map {
	maps := map[string]*ebpf.Map{}
	for name := range (&guardMaps{}).pinned() {
		m, err := ebpf.LoadPinnedMap(filepath.Join(folder, name), nil)
		if err != nil {
			closeMaps(maps)
			return nil
		}
		maps[name] = m
	}
	var limits guardLimits
	if err := maps[guardMapSettings].Lookup(uint32(0), &limits); err != nil || limits.Abi != guardABI {
		closeMaps(maps)
		return nil
	}
	return maps
}

func closeMaps(maps map[string]*ebpf.Map) {
	for _, m := range maps {
		_ = m.Close()
	}
}

// indexOf is the number of the interface that a link hangs on, 0 if none.
func indexOf(l link.Link) int {
	info, err := l.Info()
	if err != nil || info.XDP() == nil {
		return 0
	}
	return int(info.XDP().Ifindex)
}

// removePins removes a folder of pins; "" is none. bpffs removes no tree at once.
func removePins(folder string) error {
	if folder == "" {
		return nil
	}
	entries, err := os.ReadDir(folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		err = errors.Join(err, os.Remove(filepath.Join(folder, e.Name())))
	}
	return errors.Join(err, os.Remove(folder))
}

// PinnedGuards names the interfaces that have a pinned guard in a folder.
func PinnedGuards(root string) (nics []string) {
	entries, _ := os.ReadDir(root) // a folder that is not there has none
	for _, e := range entries {
		if _, err := os.Lstat(filepath.Join(root, e.Name(), pinnedLink)); err == nil {
			nics = append(nics, strings.ReplaceAll(e.Name(), ":", "."))
		}
	}
	return nics
}

// RemoveGuard takes the pinned guard of an interface off, whoever attached it.
func RemoveGuard(root, nic string) error {
	folder := pinFolder(root, nic)
	pinned := filepath.Join(folder, pinnedLink)
	if _, err := os.Lstat(pinned); err != nil {
		return fmt.Errorf("no guard is pinned for %q in %s: %w", nic, root, ErrGuardUnknown)
	}
	unlock, err := lockFolder(root)
	if err != nil {
		return err
	}
	defer unlock()
	l, err := link.LoadPinnedLink(pinned, nil)
	if err != nil {
		return fmt.Errorf("open the pinned guard %s: %w", pinned, permission(err))
	}
	defer l.Close()
	if indexOf(l) != 0 {
		err = l.Detach()
	}
	return errors.Join(permission(err), removePins(folder))
}
