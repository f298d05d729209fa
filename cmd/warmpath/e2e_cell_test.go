package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warmpath/netlab"
)

// cell is a network namespace of its own, joined to the host's by two ends of a
// virtual link: a host that can be cut off without refusing anything.
type cell struct {
	name    string // of the namespace
	here    string // the end of the link that this host has
	there   string // its end of the link
	address string
	socket  int // in it
}

const cellPrefix = "warmpath-e2e-"

// makeCells makes namespaces, which go when the test ends. Without root it skips
// the test; with root they must work where everything is set up.
func makeCells(t *testing.T, n int) []*cell {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("missing on this host: root, for network namespaces")
	}
	_, err := exec.LookPath("ip")
	need(t, err == nil, "ip, for network namespaces (package iproute2)")
	sweepCells(t)
	cells := make([]*cell, n)
	for i := range cells {
		cells[i] = makeCell(t, i)
	}
	return cells
}

func makeCell(t *testing.T, i int) *cell {
	t.Helper()
	pid := os.Getpid()
	subnet := (pid*4 + i) % (1 << 15) // of four addresses each, in 198.18.0.0/15, which is for tests (RFC 2544)
	address := func(host int) string {
		n := subnet*4 + host
		return fmt.Sprintf("198.%d.%d.%d", 18+n>>16, n>>8&255, n&255)
	}
	c := &cell{name: fmt.Sprint(cellPrefix, pid, "-", i), here: fmt.Sprintf("wph%d%d", pid%1e7, i), there: fmt.Sprintf("wpt%d%d", pid%1e7, i), address: address(2)}
	t.Cleanup(func() { // what was not made cannot be taken away, and need not
		_ = exec.Command("ip", "link", "del", c.here).Run()
		_ = exec.Command("ip", "netns", "del", c.name).Run()
	})
	for _, line := range []string{
		"netns add " + c.name,
		"link add " + c.here + " type veth peer name " + c.there + " netns " + c.name,
		"addr add " + address(1) + "/30 dev " + c.here,
		"link set " + c.here + " up",
		"-n " + c.name + " link set lo up",
		"-n " + c.name + " addr add " + c.address + "/30 dev " + c.there,
		"-n " + c.name + " link set " + c.there + " up",
	} {
		_, said, code := command(t, "", "ip", strings.Fields(line)...)
		need(t, code == 0, "network namespaces: ip "+line+": "+strings.TrimSpace(said))
	}
	c.socket = socketIn(t, c.name)
	return c
}

// sweepCells removes namespaces of tests that were killed.
func sweepCells(t *testing.T) {
	t.Helper()
	out, _, _ := command(t, "", "ip", "netns", "list")
	for line := range strings.Lines(out) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		owner, ok := strings.CutPrefix(name, cellPrefix)
		if pid, _, _ := strings.Cut(owner, "-"); ok {
			_, err := strconv.Atoi(pid)
			if _, gone := os.Stat(filepath.Join("/proc", pid)); err == nil && gone != nil {
				_, _, _ = command(t, "", "ip", "netns", "del", name)
			}
		}
	}
}

// by is the command line that runs a program in the cell.
func (c *cell) by() []string { return []string{"ip", "netns", "exec", c.name} }

// cut takes the cell's end of the link down, so that packets vanish, and returns
// when it began to. join takes it up again.
func (c *cell) cut(t *testing.T) time.Time {
	t.Helper()
	began := time.Now()
	c.link(t, 0)
	return began
}

func (c *cell) join(t *testing.T) { t.Helper(); c.link(t, unix.IFF_UP) }

// link sets the flags of the cell's end of the link. A program would take longer
// to start than the times are that are measured from here on.
func (c *cell) link(t *testing.T, flags uint16) {
	t.Helper()
	request, err := unix.NewIfreq(c.there)
	if err == nil {
		request.SetUint16(flags)
		err = unix.IoctlIfreq(c.socket, unix.SIOCSIFFLAGS, request)
	}
	if err != nil {
		t.Fatalf("set link of %s to %d: %v", c.name, flags, err)
	}
}

// loss is what has packets to and from the cell vanish, at first none.
func (c *cell) loss(t *testing.T) *netlab.Loss {
	t.Helper()
	return netlab.NewLoss(t, netlab.Host{Namespace: c.name, Link: c.there}, netlab.Host{Link: c.here})
}

// socketIn opens a socket in a namespace, where it stays.
func socketIn(t *testing.T, namespace string) int {
	t.Helper()
	fd := -1
	err := netlab.In(namespace, func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatalf("open a socket in %s: %v", namespace, err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}
