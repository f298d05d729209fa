package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warmpath/controlplane/admin"
	"warmpath/controlplane/guard"
	"warmpath/netlab"
)

// fenced is a network namespace with nothing but loopback, in which a router
// runs with a guard on it, and a bpffs to pin it in. Its name carries this
// process's id; both are gone after the test.
type fenced struct {
	t    *testing.T
	name string
	dir  string // of configuration and lists
	pin  string
	port string // that clients connect to
}

func fence(t *testing.T) *fenced {
	t.Helper()
	need(t, os.Geteuid() == 0, "root, for network namespaces and BPF")
	_, err := exec.LookPath("ip")
	need(t, err == nil, "ip (iproute2)")
	f := &fenced{t: t, name: fmt.Sprintf("warmpath-%d-g", os.Getpid()), dir: t.TempDir(), port: "18080"}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", f.name).Run() })
	for _, args := range [][]string{{"netns", "add", f.name}, {"-n", f.name, "link", "set", "lo", "up"}} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Skipf("missing on this host: network namespaces: %v: %s", err, out)
		}
	}
	mount := filepath.Join(f.dir, "bpf")
	f.pin = filepath.Join(mount, "warmpath")
	if err := os.Mkdir(mount, 0o700); err != nil {
		t.Fatal(err)
	}
	err = unix.Mount("bpf", mount, "bpf", 0, "")
	need(t, err == nil, fmt.Sprintf("a bpffs: %v", err))
	t.Cleanup(func() { _ = unix.Unmount(mount, unix.MNT_DETACH) })
	return f
}

// write writes the configuration: more are keys of kernel.xdp.
func (f *fenced) write(more string) string {
	f.t.Helper()
	return f.file("warmpath.yaml", fmt.Sprintf(`listen: 127.0.0.1:%s
admin: {listen: "127.0.0.1:18081"}
state_dir: %q
log: {format: json}
nodes: []
kernel: {xdp: {pin: %q%s}}
`, f.port, filepath.Join(f.dir, "state"), f.pin, more))
}

func (f *fenced) file(name, text string) string {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
	return path
}

func (f *fenced) command(args ...string) *exec.Cmd {
	return exec.Command("ip", append([]string{"netns", "exec", f.name, program("warmpath")}, args...)...)
}

// start starts a router and waits until it serves.
func (f *fenced) start(config string) *process {
	f.t.Helper()
	p := launch(f.t, "warmpath", f.command("serve", "--config", config))
	eventually(f.t, startWithin, "the router serves", func() bool {
		if !p.running() {
			f.t.Fatalf("warmpath ended with code %d: %s", p.code, p.err.String())
		}
		return strings.Contains(p.err.String(), `"msg":"serving"`)
	})
	return p
}

// dial connects inside the namespace, from an address of loopback.
func (f *fenced) dial(from, port string, within time.Duration) (c net.Conn, err error) {
	err = netlab.In(f.name, func() error {
		d := net.Dialer{Timeout: within, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		c, err = d.Dial("tcp", "127.0.0.1:"+port)
		return err
	})
	return c, err
}

// reach says what a connection from an address comes to: "ok", "dropped" or
// "refused".
func (f *fenced) reach(from string) string {
	f.t.Helper()
	c, err := f.dial(from, f.port, 300*time.Millisecond)
	var timeout net.Error
	switch {
	case err == nil:
		_ = c.Close()
		return "ok"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "dropped"
	}
	f.t.Fatalf("connect from %s: %v", from, err)
	return ""
}

func (f *fenced) reaches(what string, want map[string]string) {
	f.t.Helper()
	for from, how := range want {
		if got := f.reach(from); got != how {
			f.t.Errorf("%s: a connection from %s is %s, want %s", what, from, got, how)
		}
	}
}

// ask sends a request to the admin side.
func (f *fenced) ask(method, path, body string) (int, string) {
	f.t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return f.dial("127.0.0.1", "18081", 5*time.Second)
	}}}
	req, err := http.NewRequest(method, "http://127.0.0.1:18081"+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		f.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp.StatusCode, string(said)
}

func (f *fenced) xdp() guard.Status {
	f.t.Helper()
	var v admin.KernelView
	status, body := f.ask("GET", "/api/kernel", "")
	if err := json.Unmarshal([]byte(body), &v); err != nil || status != 200 {
		f.t.Fatalf("GET /api/kernel: %d %s", status, body)
	}
	return v.XDP
}

// TestGuard: a router guards the port that its clients connect to, by files, by
// the admin side, through reloads and a hot restart, and after its end.
func TestGuard(t *testing.T) {
	f := fence(t)
	deny := f.file("deny", "# nobody we know\n127.0.0.2   # that one\n\n127.8.0.0/16\n")
	config := f.write(fmt.Sprintf(", interface: lo, deny_file: %q", deny))
	r := f.start(config)
	st := f.xdp()
	if st.State != guard.StateOn || st.Interface != "lo" || st.Mode != "generic" || !st.Pinned || st.TakenOver || st.ProgramID == 0 || st.Lists[guard.Deny] != 2 || st.Shed.Setting != "auto" {
		t.Fatalf("xdp: %+v", st)
	}
	f.reaches("by the file", map[string]string{"127.0.0.1": "ok", "127.0.0.2": "dropped", "127.8.3.4": "dropped"})

	out, err := f.command("guard", "--admin", "127.0.0.1:18081").CombinedOutput()
	for _, want := range []string{"lo", "generic", "2 denied, 0 allowed", "18080", "denied"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("warmpath guard does not say %q: %v\n%s", want, err, out)
		}
	}
	_, metrics := f.ask("GET", "/metrics", "")
	for _, want := range []string{`warmpath_xdp_packets_total{verdict="denied"} 2`, `warmpath_xdp_packets_total{verdict="syn"}`, `warmpath_xdp_syns_total{port="18080"} 3`, `warmpath_xdp_shed_share 0`} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics have no %s", want)
		}
	}

	t.Run("reload", func(t *testing.T) {
		f.file("deny", "127.0.0.3\n300.1.2.3\n10.0.0.1/8\n")
		status, said := f.ask("POST", "/api/reload", "")
		if status != 422 || !strings.Contains(said, deny+":2:") || !strings.Contains(said, deny+":3:") || !strings.Contains(said, "write 10.0.0.0/8") {
			t.Errorf("a bad list: %d %s", status, said)
		}
		f.reaches("after a bad list", map[string]string{"127.0.0.2": "dropped", "127.0.0.3": "ok"})
		f.file("deny", "127.0.0.3\n")
		if status, said := f.ask("POST", "/api/reload", ""); status != 200 {
			t.Errorf("a good list: %d %s", status, said)
		}
		f.reaches("after a good list", map[string]string{"127.0.0.2": "ok", "127.0.0.3": "dropped"})
	})

	t.Run("admin side", func(t *testing.T) {
		for _, c := range []struct {
			method, path, body string
			want               map[string]string
		}{
			{"POST", "lists/deny", `["127.0.0.4", "127.9.0.0/16"]`, map[string]string{"127.0.0.3": "dropped", "127.0.0.4": "dropped", "127.9.1.1": "dropped"}},
			{"DELETE", "lists/deny", `["127.0.0.4"]`, map[string]string{"127.0.0.3": "dropped", "127.0.0.4": "ok"}},
			{"PUT", "lists/allow", `["127.9.1.0/24"]`, map[string]string{"127.9.1.1": "ok", "127.9.2.1": "dropped"}},
			{"PUT", "shed", `{"shed": 1}`, map[string]string{"127.0.0.1": "dropped", "127.9.1.1": "ok"}},
			{"PUT", "shed", `{"shed": "off"}`, map[string]string{"127.0.0.1": "ok"}},
			{"PUT", "limits", `{"syn_per_source": 1000000}`, map[string]string{"127.0.0.1": "ok"}},
			{"PUT", "lists/deny", `[]`, map[string]string{"127.0.0.3": "ok", "127.9.2.1": "ok"}},
		} {
			if status, said := f.ask(c.method, "/api/guard/"+c.path, c.body); status != 200 {
				t.Errorf("%s %s: %d %s", c.method, c.path, status, said)
			}
			f.reaches(c.method+" "+c.path+" "+c.body, c.want)
		}
		if st := f.xdp(); st.Limits.SynPerSource != 1000000 || st.Shed.Setting != "off" || st.Packets["shed"] != 1 {
			t.Errorf("xdp: %+v", st)
		}
		for _, c := range [][4]string{
			{"PUT", "lists/deny", `["127.0.0.1/8"]`, "entry 1"},
			{"PUT", "lists/grey", `[]`, "deny, allow"},
			{"PUT", "limits", `{"syn_per_source": -1}`, "out of range"},
			{"PUT", "limits", `{"syn_per_planet": 1}`, "unknown field"},
			{"PUT", "shed", `{"shed": 2}`, "no share"},
			{"PUT", "shed", `{"shed": "on"}`, "not known"},
		} {
			if status, said := f.ask(c[0], "/api/guard/"+c[1], c[2]); status < 400 || status > 404 || !strings.Contains(said, c[3]) {
				t.Errorf("%s %s %s: %d %s", c[0], c[1], c[2], status, said)
			}
		}
	})

	f.file("deny", "127.0.0.5\n")
	next := f.start(config) // takes over
	if code := r.wait(t, 20*time.Second); code != 0 {
		t.Errorf("the former router ended with %d", code)
	}
	if st := f.xdp(); st.State != guard.StateOn || !st.TakenOver || st.Packets["denied"] < 2 {
		t.Errorf("after a hot restart: %+v", st)
	}
	f.reaches("after a hot restart", map[string]string{"127.0.0.1": "ok", "127.0.0.5": "dropped"})
	if _, stderr, code := command(t, "", "ip", "netns", "exec", f.name, program("warmpath"), "unguard", "lo", "--pin", f.pin); code == 0 || !strings.Contains(stderr, "reload") {
		t.Errorf("a guard that a router tends was taken off: %d %s", code, stderr)
	}
	next.signal(t, syscall.SIGKILL)
	next.wait(t, 10*time.Second)
	f.reaches("without a router", map[string]string{"127.0.0.1": "refused", "127.0.0.5": "dropped"})

	third := f.start(f.write("")) // no interface is named any more
	if st := f.xdp(); st.State != guard.StateOff || !strings.Contains(st.Reason, "interface") {
		t.Errorf("without an interface: %+v", st)
	}
	f.reaches("after a start without a guard", map[string]string{"127.0.0.5": "ok"})
	if status, said := f.ask("PUT", "/api/guard/shed", `{"shed": 1}`); status != 409 || !strings.Contains(said, "guard_off") {
		t.Errorf("a change of a guard that is off: %d %s", status, said)
	}
	f.write(", interface: lo, shed: 1")
	for range 2 { // on, and on again
		if status, said := f.ask("POST", "/api/reload", ""); status != 200 {
			t.Errorf("reload: %d %s", status, said)
		}
		f.reaches("on by a reload", map[string]string{"127.0.0.5": "dropped"})
	}
	f.write(", shed: 1")
	fourth := f.start(config) // takes over, and wants no guard
	if code := third.wait(t, 20*time.Second); code != 0 {
		t.Errorf("the third router ended with %d", code)
	}
	eventually(t, 20*time.Second, "what the former process left is taken off", func() bool { return f.reach("127.0.0.5") == "ok" })
	f.write(", interface: lo, shed: 1")
	if status, said := f.ask("POST", "/api/reload", ""); status != 200 {
		t.Errorf("reload: %d %s", status, said)
	}
	fourth.kill(t)
	eventually(t, 20*time.Second, "what was shed lapses without a router", func() bool { return f.reach("127.0.0.5") == "refused" })
	if out, err := f.command("unguard", "lo", "--pin", f.pin).CombinedOutput(); err != nil {
		t.Errorf("unguard: %v %s", err, out)
	}
	if _, stderr, code := command(t, "", "ip", "netns", "exec", f.name, program("warmpath"), "unguard", "lo", "--pin", f.pin); code != 1 || !strings.Contains(stderr, "no guard is pinned") {
		t.Errorf("unguard again: %d %s", code, stderr)
	}
}

// TestGuardNotHad: a router whose guard cannot be had runs, and says why.
func TestGuardNotHad(t *testing.T) {
	f := fence(t)
	for name, c := range map[string]struct {
		config string
		nobody bool
		words  []string
	}{
		"no privilege":     {config: ", interface: lo", nobody: true, words: []string{"not permitted", "CAP_BPF"}},
		"no interface":     {config: ", interface: eth7", words: []string{"no such interface", "ip link"}},
		"not in this mode": {config: ", interface: lo, mode: native", words: []string{"native", "generic"}},
	} {
		t.Run(name, func(t *testing.T) {
			f.t = t
			config := f.write(c.config)
			cmd := f.command("serve", "--config", config)
			if c.nobody {
				for _, dir := range []string{programs, filepath.Dir(f.dir), f.dir} {
					if err := os.Chmod(dir, 0o755); err != nil {
						t.Fatal(err)
					}
				}
				theirs := filepath.Join(f.dir, "nobody")
				if err := errors.Join(os.Mkdir(theirs, 0o777), os.Chmod(theirs, 0o777)); err != nil {
					t.Fatal(err)
				}
				config = f.file("nobody.yaml", strings.Replace(read(t, config), filepath.Join(f.dir, "state"), theirs, 1))
				cmd = exec.Command("ip", "netns", "exec", f.name, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all",
					program("warmpath"), "serve", "--config", config)
				_, err := exec.LookPath("setpriv")
				need(t, err == nil, "setpriv (util-linux)")
			}
			p := launch(t, "warmpath", cmd)
			eventually(t, startWithin, "the router serves", func() bool {
				return !p.running() || strings.Contains(p.err.String(), `"msg":"serving"`)
			})
			if got := f.reach("127.0.0.1"); got != "ok" {
				t.Errorf("a client's connection is %s", got)
			}
			said := 0
			for line := range strings.Lines(p.err.String()) {
				if strings.Contains(line, "the guard is off") {
					said++
					for _, word := range c.words {
						if !strings.Contains(line, word) {
							t.Errorf("the log does not say %q: %s", word, line)
						}
					}
				}
			}
			if said != 1 {
				t.Errorf("said %d times that the guard is off", said)
			}
			p.kill(t)
		})
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
