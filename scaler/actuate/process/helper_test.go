package process

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"warmpath/scaler/actuate"
)

// lives is how long a program of ours may stay when its test was killed.
const lives = time.Minute

// The test binary is its own engine, and its own router: the word after its name says
// which.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && programs[os.Args[1]] != nil {
		time.AfterFunc(lives, func() { os.Exit(9) })
		programs[os.Args[1]](os.Args[2:])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var programs = map[string]func(args []string){
	"engine": serve,
	"deaf": func(args []string) { // does not end when it is asked to
		signal.Ignore(syscall.SIGTERM)
		serve(args)
	},
	"family": func(args []string) { // has children of all kinds, as engines have workers
		for _, attr := range []*syscall.SysProcAttr{nil, {Setpgid: true}, {Setsid: true}} {
			child := exec.Command(os.Args[0], "wait")
			child.SysProcAttr = attr
			mustStart(child)
		}
		bare := exec.Command(os.Args[0], "wait")
		bare.Env = []string{"NO=marks"}
		mustStart(bare)
		serve(args)
	},
	"orphans": func([]string) { // ends, and leaves a child
		mustStart(exec.Command(os.Args[0], "wait"))
		os.Exit(4)
	},
	"wait": func([]string) { select {} },
	"fails": func([]string) {
		fmt.Fprintln(os.Stdout, "loading")
		fmt.Fprintln(os.Stderr, "out of memory on card 0")
		os.Exit(3)
	},
	"router": func(args []string) { // starts nodes and stays until it is killed
		o := options(args[0])
		o.FirstPort, _ = strconv.Atoi(args[1])
		o.LastPort = o.FirstPort + ports - 1
		a, err := New(o)
		must(err)
		for _, key := range args[2:] {
			i, err := a.Create(context.Background(), actuate.Wanted{Key: key})
			must(err)
			fmt.Println(i.ID)
		}
		select {}
	},
}

func serve(args []string) {
	l, err := net.Listen("tcp", "127.0.0.1:"+args[0])
	must(err)
	fmt.Println("serving")
	must(http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, strings.Join(args[1:], " "))
	})))
}

func mustStart(c *exec.Cmd) { must(c.Start()) }

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(8)
	}
}

// ports is how many a test has.
const ports = 40

// options of a fleet whose nodes are engines.
func options(fleet string) Options {
	return Options{
		Command: []string{os.Args[0], "engine", "{port}", "{key}", "{model}/{\"a\": 1}"}[:4],
		Fleet:   fleet, Environ: []string{"PATH=/usr/bin:/bin", "LANG=C"}, StopAfter: 5 * time.Second,
	}
}

// fleet is one test's: a mark and a range of ports that nobody has used. All of its
// processes are ended with the test.
type fleet struct {
	t *testing.T
	Options
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t, options("f" + strings.ToLower(rand.Text())[:12])}
	f.FirstPort = freeRange(t)
	f.LastPort = f.FirstPort + ports - 1
	t.Cleanup(f.end)
	return f
}

// freeRange draws a range below those that the kernel gives to connections.
func freeRange(t *testing.T) int {
	n, err := rand.Int(rand.Reader, big.NewInt((30000-10000)/ports))
	if err != nil {
		t.Fatal(err)
	}
	return 10000 + int(n.Int64())*ports
}

// open returns another actuator of the fleet.
func (f *fleet) open() *Actuator {
	f.t.Helper()
	a, err := New(f.Options)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = a.Close() })
	return a
}

// end kills whatever is left of the fleet, without the code that is tested.
func (f *fleet) end() {
	eventually(f.t, "the fleet's processes are gone", func() bool {
		pids := f.pids()
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		return len(pids) == 0
	})
}

// pids are the processes with the fleet's mark that are not dead.
func (f *fleet) pids() []int {
	var pids []int
	names, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, name := range names {
		env, _ := os.ReadFile(name)
		if pid, _ := strconv.Atoi(strings.Split(name, "/")[2]); slices.Contains(strings.Split(string(env), "\x00"), "WARMPATH_FLEET="+f.Fleet) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (f *fleet) create(a *Actuator, key string) actuate.Instance {
	f.t.Helper()
	i, err := a.Create(f.t.Context(), actuate.Wanted{Key: key})
	if err != nil {
		f.t.Fatalf("Create(%q): %v", key, err)
	}
	return i
}

func (f *fleet) list(a *Actuator) map[string]actuate.Instance {
	f.t.Helper()
	all, err := a.List(f.t.Context())
	if err != nil {
		f.t.Fatalf("List: %v", err)
	}
	byKey := map[string]actuate.Instance{}
	for _, i := range all {
		byKey[i.Key] = i
	}
	return byKey
}

func (f *fleet) remove(a *Actuator, i actuate.Instance) {
	f.t.Helper()
	if err := a.Delete(f.t.Context(), i); err != nil {
		f.t.Fatalf("Delete(%+v): %v", i, err)
	}
}

// serves waits until an engine answers.
func serves(t *testing.T, url string) {
	t.Helper()
	eventually(t, url+" answers", func() bool {
		resp, err := http.Get(url)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err == nil
	})
}

// leaderOf is the number of the process that Detail names.
func leaderOf(t *testing.T, i actuate.Instance) int {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimPrefix(i.Detail, "process "))
	if err != nil {
		t.Fatalf("detail %q names no process", i.Detail)
	}
	return pid
}

// gone reports whether a process has ended, and whether it is a zombie.
func gone(pid int) (ended, zombie bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true, false
	}
	_, _, dead, err := parseStat(text)
	return dead || err != nil, dead
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(15 * time.Second); !is(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// startRouter starts a process that makes nodes, and waits until it has. kill ends it
// as nothing can be caught.
func (f *fleet) startRouter(keys ...string) (ids []string, kill func()) {
	f.t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"router", f.Fleet, strconv.Itoa(f.FirstPort)}, keys...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	killed := false
	kill = func() {
		if !killed {
			killed = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	f.t.Cleanup(kill)
	lines := bufio.NewScanner(out)
	for range keys {
		if !lines.Scan() {
			f.t.Fatal("the router ended")
		}
		ids = append(ids, lines.Text())
	}
	return ids, kill
}

// logTo is a log that a test reads.
func logTo(b *safeBuffer) *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }
