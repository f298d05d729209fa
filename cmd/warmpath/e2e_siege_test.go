package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warmpath/netlab"
)

// besieged is a router in a namespace of its own, and one of clients, good and
// bad, with a veth between them.
type besieged struct {
	*fenced
	clients string
	card    net.HardwareAddr // the router's
	router  *process
}

const besiegedCard = "guarded0"

func besiege(t *testing.T) *besieged {
	t.Helper()
	need(t, runtime.NumCPU() >= 2, "two CPUs: one for who sends, one for the router")
	b := &besieged{fenced: fence(t), clients: fmt.Sprintf("warmpath-%d-c", os.Getpid())}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", b.clients).Run() })
	b.run("ip", "netns", "add", b.clients)
	b.run("ip", "-n", b.name, "link", "add", besiegedCard, "type", "veth", "peer", "name", "client", "netns", b.clients)
	b.run("ip", "-n", b.name, "addr", "add", "10.77.0.1/16", "dev", besiegedCard)
	for i := range goodClients {
		b.run("ip", "-n", b.clients, "addr", "add", fmt.Sprintf("10.77.0.%d/16", 2+i), "dev", "client")
	}
	b.run("ip", "-n", b.name, "link", "set", besiegedCard, "up")
	b.run("ip", "-n", b.clients, "link", "set", "client", "up")
	b.steer()
	// What answers the flood leaves by a gateway, and is lost behind it.
	b.run("ip", "-n", b.name, "route", "add", "10.78.0.0/16", "via", "10.77.0.2")
	b.card = b.address(b.name, besiegedCard)
	// Who is where is known beforehand, as of clients behind a gateway: no client
	// waits for another's answer to that question.
	theirs := b.address(b.clients, "client")
	b.run("ip", "-n", b.clients, "neigh", "replace", "10.77.0.1", "lladdr", b.card.String(), "nud", "permanent", "dev", "client")
	for i := range goodClients {
		b.run("ip", "-n", b.name, "neigh", "replace", fmt.Sprintf("10.77.0.%d", 2+i), "lladdr", theirs.String(), "nud", "permanent", "dev", besiegedCard)
	}
	b.router = b.start(b.configure(false))
	pin(t, b.router.pid(), only(victimCPU))
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	pin(t, os.Getpid(), only(0)) // the good clients' network poller too
	t.Cleanup(func() { pin(t, os.Getpid(), &all) })
	return b
}

func (b *besieged) run(name string, args ...string) {
	b.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		b.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// address is a card's own.
func (b *besieged) address(namespace, card string) net.HardwareAddr {
	b.t.Helper()
	out, err := exec.Command("ip", "netns", "exec", namespace, "cat", "/sys/class/net/"+card+"/address").Output()
	if err != nil {
		b.t.Fatal(err)
	}
	address, err := net.ParseMAC(strings.TrimSpace(string(out)))
	if err != nil {
		b.t.Fatal(err)
	}
	return address
}

// steer has what comes in by the router's card handled by the router's CPU, as
// with a card whose interrupts go there: else the CPU that sends would do it. XDP
// comes before that, and is paid for by the sender.
func (b *besieged) steer() {
	b.t.Helper()
	b.run("ip", "netns", "exec", b.name, "sh", "-c", fmt.Sprintf("echo %x > /sys/class/net/%s/queues/rx-0/rps_cpus", 1<<victimCPU, besiegedCard))
}

func (b *besieged) configure(guarded bool) string {
	b.t.Helper()
	nic := ""
	if guarded {
		nic = besiegedCard
	}
	return b.file("warmpath.yaml", fmt.Sprintf(`listen: 10.77.0.1:8080
admin: {listen: "127.0.0.1:18081"}
log: {format: json}
nodes: []
kernel: {xdp: {interface: %q, mode: %s, pin: "", syn_per_source: 10, syn_burst: 10}}
`, nic, *floodMode))
}

// pin gives all threads of a process to some CPUs.
func pin(t *testing.T, pid int, cpus *unix.CPUSet) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(tasks) == 0 {
		t.Fatalf("no threads of %d: %v", pid, err)
	}
	for _, task := range tasks {
		tid, _ := strconv.Atoi(filepath.Base(task))
		if err := unix.SchedSetaffinity(tid, cpus); err != nil && err != unix.ESRCH {
			t.Fatalf("pin %s: %v", task, err)
		}
	}
}

// only is one CPU.
func only(cpu int) *unix.CPUSet {
	var set unix.CPUSet
	set.Set(cpu)
	return &set
}

// good has all good clients connect, each on a schedule of its own that a slow
// answer does not hold up: what waits counts as waiting.
func (b *besieged) good() (took []time.Duration, failed int) {
	const every = goodClients * time.Second / goodPerSecond
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range goodClients {
		d := &net.Dialer{Timeout: 3 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(10, 77, 0, byte(2+i))}}
		d.SetMultipathTCP(false)
		began := time.Now().Add(time.Duration(i) * every / goodClients)
		all.Go(func() {
			err := b.onCPU(0, func() error {
				for n := 0; time.Duration(n)*every < *floodPhase; n++ {
					at := began.Add(time.Duration(n) * every)
					<-time.After(time.Until(at))
					ok := exchange(d)
					mu.Lock()
					took = append(took, time.Since(at))
					if !ok {
						failed++
					}
					mu.Unlock()
				}
				return nil
			})
			if err != nil {
				b.t.Errorf("a good client: %v", err)
			}
		})
	}
	all.Wait()
	return took, failed
}

// onCPU runs what in the clients' namespace, on a CPU.
func (b *besieged) onCPU(cpu int, what func() error) error {
	var all unix.CPUSet
	return netlab.In(b.clients, func() error {
		if err := errors.Join(unix.SchedGetaffinity(0, &all), unix.SchedSetaffinity(0, only(cpu))); err != nil {
			return err
		}
		return errors.Join(what(), unix.SchedSetaffinity(0, &all))
	})
}

// exchange is what a good client does: it connects, asks and is answered.
func exchange(d *net.Dialer) bool {
	c, err := d.Dial("tcp", "10.77.0.1:8080")
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(3 * time.Second))
	if _, err := io.WriteString(c, "GET /v1/models HTTP/1.1\r\nHost: router\r\nConnection: close\r\n\r\n"); err != nil {
		return false
	}
	answer, err := io.ReadAll(c)
	return err == nil && strings.HasPrefix(string(answer), "HTTP/1.1 "+strconv.Itoa(http.StatusOK))
}

// sendSYNs sends SYNs of 1,000 sources at a rate until it is told to stop.
func sendSYNs(stop *atomic.Bool, sent *atomic.Uint64, to net.HardwareAddr) error {
	nic, err := net.InterfaceByName("client")
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_ = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1) // cheaper, where it is known
	// Good clients have the CPU before the sender: what they wait for is the router.
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, 19); err != nil {
		return err
	}
	defer unix.Setpriority(unix.PRIO_PROCESS, 0, 0)
	at := unix.SockaddrLinklayer{Ifindex: nic.Index, Halen: 6}
	frame := synFrame(to, nic.HardwareAddr)
	began := time.Now()
	for n := 0; !stop.Load(); {
		due := int(time.Since(began).Seconds() * float64(*floodRate))
		if n >= due {
			_ = syscall.Nanosleep(&syscall.Timespec{Nsec: 200_000}, nil) // good clients share this CPU
			continue
		}
		for ; n < due && !stop.Load(); n++ {
			setSource(frame, n)
			if unix.Sendto(fd, frame, 0, &at) == nil {
				sent.Add(1)
			}
		}
	}
	return nil
}

// synFrame is a SYN to the router, without source and checksums.
func synFrame(to, from net.HardwareAddr) []byte {
	frame := make([]byte, 58)
	copy(frame, to)
	copy(frame[6:], from)
	frame[12], frame[14], frame[17], frame[22], frame[23] = 0x08, 0x45, 44, 64, 6 // IPv4, 44 bytes, TCP
	copy(frame[30:], []byte{10, 77, 0, 1})
	binary.BigEndian.PutUint16(frame[36:], 8080)
	frame[46], frame[47] = 6<<4, 2 // 24 bytes, SYN
	binary.BigEndian.PutUint16(frame[48:], 64240)
	copy(frame[54:], []byte{2, 4, 5, 0xb4}) // the largest segment that it takes
	return frame
}

// setSource makes the frame the n-th one: a source in turn, and another port each
// time round. The sources join one by one over the first second: were they all to
// begin at once, their buckets would be filled again at once for ever.
func setSource(frame []byte, n int) {
	joined := min(floodSources, 1+n*floodSources/(*floodRate))
	i := n % joined
	copy(frame[26:], []byte{10, 78, byte(i >> 8), byte(i)})
	binary.BigEndian.PutUint16(frame[34:], uint16(1024+n/joined%60_000))
	clear(frame[24:26])
	binary.BigEndian.PutUint16(frame[24:], checksum(frame[14:34], 0))
	clear(frame[50:52])
	pseudo := uint32(6) + uint32(len(frame)-34)
	for at := 26; at < 34; at += 2 {
		pseudo += uint32(binary.BigEndian.Uint16(frame[at:]))
	}
	binary.BigEndian.PutUint16(frame[50:], checksum(frame[34:], pseudo))
}

// checksum is that of RFC 1071, of an even number of bytes.
func checksum(b []byte, sum uint32) uint16 {
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// usage is how much CPU time has gone where.
type usage struct {
	busy [2]time.Duration // of each CPU, with what the host of the machine took
	// What others had: the host of the machine, and programs beside this one and the
	// router. Of programs it is the user's part, for what packets cost is the
	// kernel's, charged to whom it may.
	others time.Duration
}

const tick = 10 * time.Millisecond // of /proc

func (b *besieged) usage() (u usage) {
	text, _ := os.ReadFile("/proc/stat")
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 9 || fields[0] != "cpu0" && fields[0] != "cpu1" {
			continue
		}
		for i, field := range fields[1:9] { // user nice system idle iowait irq softirq steal
			v, _ := strconv.ParseInt(field, 10, 64)
			if i != 3 && i != 4 {
				u.busy[fields[0][3]-'0'] += time.Duration(v) * tick
			}
			if i == 0 || i == 1 || i == 7 {
				u.others += time.Duration(v) * tick
			}
		}
	}
	u.others -= userTime(os.Getpid()) + userTime(b.router.pid())
	return u
}

func userTime(pid int) time.Duration {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 12 {
		return 0
	}
	v, _ := strconv.ParseInt(fields[11], 10, 64)
	return time.Duration(v) * tick
}

// calm waits until the machine does little else, but not for ever.
func (b *besieged) calm() {
	const look = 300 * time.Millisecond
	for range 200 {
		before := b.usage()
		<-time.After(look)
		after := b.usage()
		if after.busy[0]+after.busy[1]-before.busy[0]-before.busy[1] < look/5 {
			return
		}
	}
}
