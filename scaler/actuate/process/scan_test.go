package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"warmpath/scaler/actuate"
)

func TestOptionsThatAreWrong(t *testing.T) {
	good := options("f1")
	good.FirstPort, good.LastPort = 10000, 10010
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(*Options)
		words  []string
	}{
		{"no command", func(o *Options) { o.Command = nil }, []string{"command is empty"}},
		{"unknown placeholder", func(o *Options) { o.Command = []string{"x", "--at={prot}"} }, []string{"{prot}", "word 2", "{port}, {key}, {model}"}},
		{"no fleet", func(o *Options) { o.Fleet = "" }, []string{"fleet"}},
		{"fleet", func(o *Options) { o.Fleet = "A b" }, []string{"fleet", "A b"}},
		{"ports", func(o *Options) { o.LastPort = 9999 }, []string{"10000 to 9999"}},
		{"port 0", func(o *Options) { o.FirstPort = 0 }, []string{"0 to 10010"}},
		{"max", func(o *Options) { o.MaxNodes = -1 }, []string{"-1"}},
		{"stop after", func(o *Options) { o.StopAfter = -time.Second }, []string{"-1s"}},
		{"further port beyond the last", func(o *Options) { o.FirstPort, o.LastPort, o.Command = 65000, 65010, []string{"x", "{port+1000}"} }, []string{"{port+1000}", "65535"}},
		{"further port of another node", func(o *Options) {
			o.FirstPort, o.LastPort, o.Command = 9000, 9009, []string{"x", "{port+20}", "{port+25}"}
		}, []string{"{port+25}", "at least 30"}},
		{"url", func(o *Options) { o.URL = "127.0.0.1:{port}" }, []string{"127.0.0.1:{port}"}},
		{"url's scheme", func(o *Options) { o.URL = "tcp://h:{port}" }, []string{"tcp://", "http://host:{port}"}},
		{"url's placeholder", func(o *Options) { o.URL = "http://h:{model}" }, []string{"{model}", "{port}, {key}"}},
		{"environment", func(o *Options) { o.Environ = []string{"A=1", "B"} }, []string{"line 2", `"B"`}},
		{"no procfs", func(o *Options) { o.Proc = os.TempDir() }, []string{"procfs"}},
		{"logs", func(o *Options) { o.LogDir = "/dev/null/logs" }, []string{"logs", "not a directory"}},
	} {
		o := good
		c.change(&o)
		_, err := New(o)
		for _, word := range append(c.words, "") {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v, want the words %q", c.name, err, word)
			}
		}
	}
}

// Whatever a program is called, and however many fields the kernel adds, stat reads
// the same.
func TestStatIsReadAsTheKernelWritesIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching(`[ -~\n)(]{0,15}`).Draw(t, "name")
		sid, start := rapid.IntRange(0, 1<<22).Draw(t, "sid"), rapid.Uint64().Draw(t, "start")
		state := rapid.SampledFrom([]string{"R", "S", "D", "Z", "T", "t", "X", "I"}).Draw(t, "state")
		before := fmt.Sprintf("7 (%s) %s 1 2 %d 0 -1 4194304 %s", name, state, sid, strings.Repeat("5 ", 12))
		text := fmt.Sprintf("%s %d 1 2 3\n", before, start)
		m, flags, dead, err := parseStat([]byte(text))
		if err != nil || m.session != sid || m.start != start || flags != 4194304 || dead != (state == "Z" || state == "X") {
			t.Errorf("%q: %+v %d %v %v", text, m, flags, dead, err)
		}
		if _, _, _, err := parseStat([]byte(text[:rapid.IntRange(0, len(before)).Draw(t, "cut")])); err == nil {
			t.Error("half of it was taken")
		}
	})
}

func TestMarksAreAllThereOrNone(t *testing.T) {
	all := []string{"WARMPATH_FLEET=f", "WARMPATH_NODE=k", "WARMPATH_PORT=81", "WARMPATH_INSTANCE=x"}
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.Permutation(append([]string{"A=WARMPATH_FLEET=g", "WARMPATH_FLEETS=g", ""}, all...)).Draw(t, "lines")
		lines = lines[:rapid.IntRange(0, len(lines)).Draw(t, "n")]
		there := 0
		for _, line := range lines {
			if strings.HasPrefix(line, "WARMPATH_") && line != "WARMPATH_FLEETS=g" {
				there++
			}
		}
		m, ok := parseMarks([]byte(strings.Join(lines, "\x00")))
		if ok != (there == len(all)) || ok && m != (marks{"f", "k", "x", 81}) {
			t.Errorf("%q: %+v %v", lines, m, ok)
		}
	})
}

// A shell that becomes an engine shows no environment for a moment, and stays its node.
func TestNodesAreFoundWhileTheyBecomeAnotherProgram(t *testing.T) {
	f := newFleet(t)
	f.Command = []string{"sh", "-c", "i=0; while [ $i -lt 40 ]; do i=$((i+1)); /bin/true; done; exec sh -c 'exec sh -c \"exec " + os.Args[0] + " engine $WARMPATH_PORT\"'"}
	a, b := f.open(), f.open()
	var keys []string
	for i := range 3 {
		keys = append(keys, f.create(a, fmt.Sprint("n", i)).Key)
	}
	for _, key := range keys {
		url := f.list(a)[key].URL
		eventually(t, url+" answers", func() bool {
			for _, look := range []*Actuator{a, b} {
				all := f.list(look)
				for _, key := range keys {
					if all[key].Phase != actuate.Running {
						t.Fatalf("node %q is %+v", key, all[key])
					}
				}
			}
			text, err := exec.Command("cat", fmt.Sprintf("/proc/%d/cmdline", leaderOf(t, f.list(a)[key]))).Output()
			return err == nil && strings.Contains(string(text), "\x00engine\x00")
		})
	}
}

// A program that writes over its environment is still its starter's node, and that
// says that nobody else will find it.
func TestOneThatHidesItsMarks(t *testing.T) {
	f := newFleet(t)
	f.Command = []string{"env", "-i", os.Args[0], "engine", "{port}"}
	var log safeBuffer
	f.Log = logTo(&log)
	a := f.open()
	i := f.create(a, "n1")
	serves(t, i.URL)
	for range 3 {
		if is := f.list(a)["n1"]; is.ID != i.ID || is.Phase != actuate.Running {
			t.Fatalf("it is %+v", is)
		}
	}
	if said := strings.Count(log.String(), "does not show its marks"); said != 1 {
		t.Errorf("it was said %d times:\n%s", said, log.String())
	}
	f.remove(a, i)
	eventually(t, "it ended", func() bool { return f.list(a)["n1"].Phase == actuate.Ended })
}

func TestCreatesOfManyRoutersTakeTurns(t *testing.T) {
	f := newFleet(t)
	var wait sync.WaitGroup
	for i := range 4 {
		wait.Go(func() {
			_, kill := f.startRouter(fmt.Sprint("r", i, "-a"), fmt.Sprint("r", i, "-b"), "same")
			kill()
		})
	}
	wait.Wait()
	all := f.list(f.open())
	urls := map[string]bool{}
	for _, i := range all {
		urls[i.URL] = true
	}
	if len(all) != 9 || len(urls) != 9 || len(f.pids()) != 9 {
		t.Errorf("%d nodes at %d places in processes %v: %+v", len(all), len(urls), f.pids(), all)
	}
}

// What becomes another program between two looks at it has an environment at the next:
// without arguments it is still on its way, with them it has just come.
func TestWhatHasNoEnvironmentYetIsLookedAtAgain(t *testing.T) {
	for _, args := range []string{"", "engine\x00"} {
		path := t.TempDir()
		write := func(text string) {
			if err := os.WriteFile(filepath.Join(path, "environ"), []byte(text), 0o600); err != nil {
				t.Error(err)
			}
		}
		write("")
		if err := syscall.Mkfifo(filepath.Join(path, "cmdline"), 0o600); err != nil {
			t.Fatal(err)
		}
		go func() { // it opens when the arguments are read, which is after the environment
			f, err := os.OpenFile(filepath.Join(path, "cmdline"), os.O_WRONLY, 0)
			if err != nil {
				t.Error(err)
				return
			}
			write("WARMPATH_FLEET=f\x00WARMPATH_NODE=k\x00WARMPATH_PORT=81\x00WARMPATH_INSTANCE=x\x00")
			_, _ = f.WriteString(args)
			_ = f.Close()
		}()
		dir, err := os.OpenRoot(path)
		if err != nil {
			t.Fatal(err)
		}
		var m member
		if err := m.readMarks(t.Context(), dir); err != nil || !m.ours || !m.shown || m.marks != (marks{"f", "k", "x", 81}) {
			t.Errorf("with arguments %q: %+v, %v", args, m, err)
		}
		_ = dir.Close()
	}
}
