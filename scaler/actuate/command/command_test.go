package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"warmpath/scaler/actuate"
	"warmpath/scaler/actuate/actuatetest"
)

// provider is one in a folder: a node is a file with the mark of its fleet.
const provider = `
set -eu
dir=$1
read -r request
field() { printf '%s' "$request" | sed -n 's/.*"'"$1"'":"\([^"]*\)".*/\1/p'; }
node() { printf '{"key":"%s","id":"i-%s","phase":"running","url":"http://10.0.0.1:8000/%s"}' "$1" "$1" "$1"; }
fleet=$(field fleet) key=$(field key) id=$(field id)
case $(field action) in
create)
	if [ -n "$(field quota)" ]; then printf '{"refused":{"reason":"quota","message":"no more than %s"}}' "$(field quota)"; exit; fi
	echo "$fleet" >"$dir/.$key.$$"
	ln "$dir/.$key.$$" "$dir/$key" 2>/dev/null || true
	rm "$dir/.$key.$$"
	printf '{"nodes":[%s]}' "$(node "$key")" ;;
delete)
	if [ -n "$key" ] && { [ -z "$id" ] || [ "$id" = "i-$key" ]; } && [ "$(cat "$dir/$key" 2>/dev/null)" = "$fleet" ]; then rm "$dir/$key"; fi
	printf '{"nodes":[]}' ;;
list)
	cd "$dir"; comma=; printf '{"nodes":['
	for key in *; do
		if [ "$(cat "$key" 2>/dev/null)" = "$fleet" ]; then printf '%s%s' "$comma" "$(node "$key")"; comma=,; fi
	done
	printf ']}' ;;
esac
`

var environ = []string{"PATH=/usr/bin:/bin"}

// options are those of one script that does all three.
func options(t *testing.T, fleet, script string, arguments ...string) Options {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	argv := slices.Clip(append([]string{"sh", path}, arguments...))
	return Options{Create: argv, Delete: argv, List: argv, Fleet: fleet, Environ: environ, Timeout: 20 * time.Second}
}

func open(t *testing.T, o Options) *Actuator {
	t.Helper()
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestConforms(t *testing.T) {
	nodes := t.TempDir()
	opens := func(fleet string, change func(*Options)) actuatetest.New {
		return func(t *testing.T) actuate.Actuator {
			o := options(t, fleet, provider, nodes)
			change(&o)
			return open(t, o)
		}
	}
	actuatetest.Conforms(t, opens("ours", func(*Options) {}), actuatetest.OtherFleet(opens("theirs", func(*Options) {})), actuatetest.Model("m"),
		actuatetest.Refuses("as the script says", actuate.Quota, opens("ours", func(o *Options) { o.Settings = map[string]string{"quota": "4 cards"} }), "no more than 4 cards"),
		actuatetest.Refuses("no such file", actuate.Settings, opens("ours", func(o *Options) { o.Create = []string{nodes + "/none"} }), "none: no such file or directory"),
		actuatetest.Refuses("not in PATH", actuate.Settings, opens("ours", func(o *Options) { o.Create = []string{"no-such-program"} }), "no-such-program", "not found", "/usr/bin:/bin"),
		actuatetest.Refuses("a folder", actuate.Settings, opens("ours", func(o *Options) { o.Create = []string{nodes} }), "permission denied"),
	)
}

func TestWhatAProgramIsAsked(t *testing.T) {
	seen := filepath.Join(t.TempDir(), "seen")
	o := options(t, "f1", `cat >"$1.$2"; env | grep -v -e ^PWD= -e ^SHLVL= -e ^_= >"$1.env"; printf '{"nodes":[{"key":"k1","id":"i","phase":"pending"}]}'`, seen)
	o.Create = append(o.Create, "create; echo $(no shell)")
	o.Delete = append(o.Delete, "delete")
	o.List = append(o.List, "list")
	o.Environ = append(o.Environ, "TOKEN=a b")
	o.Settings = map[string]string{"type": "a\"\n<b>"}
	a := open(t, o)
	if i, err := a.Create(t.Context(), actuate.Wanted{Key: "k1", Model: "q/w"}); err != nil || i != (actuate.Instance{Key: "k1", ID: "i"}) {
		t.Errorf("Create: %+v, %v", i, err)
	}
	if err := a.Delete(t.Context(), actuate.Instance{Key: "k1", ID: "i", Detail: "d"}); err != nil {
		t.Error(err)
	}
	if _, err := a.List(t.Context()); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]map[string]any{
		"create; echo $(no shell)": {"action": "create", "fleet": "f1", "key": "k1", "model": "q/w", "settings": map[string]any{"type": "a\"\n<b>"}},
		"delete":                   {"action": "delete", "fleet": "f1", "key": "k1", "id": "i", "settings": map[string]any{"type": "a\"\n<b>"}},
		"list":                     {"action": "list", "fleet": "f1", "settings": map[string]any{"type": "a\"\n<b>"}},
	} {
		text, err := os.ReadFile(seen + "." + name)
		if err != nil {
			t.Error(err)
			continue
		}
		var got map[string]any
		if err := json.Unmarshal(text, &got); err != nil || fmt.Sprint(got) != fmt.Sprint(want) || strings.Count(string(text), "\n") != 1 {
			t.Errorf("%s was asked %s, want %v", name, text, want)
		}
	}
	if env, err := os.ReadFile(seen + ".env"); err != nil || string(env) != "TOKEN=a b\nPATH=/usr/bin:/bin\n" && string(env) != "PATH=/usr/bin:/bin\nTOKEN=a b\n" {
		t.Errorf("environment %q, %v", env, err)
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"an exit code", `echo '{"nodes":[]}'; echo "no such
zone: x" >&2; exit 3`, "exit status 3; it said: no such\nzone: x"},
		{"a signal", `kill -9 $$`, "signal: killed"},
		{"nothing", `exit 0`, "is empty"},
		{"half", `printf '{"nodes":['; echo because >&2`, "in the middle, or is empty; it said: because"},
		{"words before", `echo done; echo '{"nodes":[]}'`, "invalid character"},
		{"words after", `echo '{"nodes":[]}'; echo done`, "something follows its end"},
		{"an unknown phase", `printf '{"nodes":[{"key":"a","id":"i","phase":"up"}]}'`, `nodes[0].phase is "up"`},
		{"an unknown reason", `printf '{"refused":{"reason":"mood","message":"x"}}'`, `refused.reason is "mood"`},
		{"a key twice", `printf '{"nodes":[{"key":"a","id":"i","phase":"ended"},{"key":"a","id":"j","phase":"running"}]}'`, `the same key "a"`},
		{"too much", `exec cat /dev/zero`, "more than 1048576 bytes"},
		{"too much said", `head -c 3000000 /dev/zero | tr '\0' x >&2; echo the end >&2; exit 1`, "xxxthe end"},
	} {
		a := open(t, options(t, "f1", c.script))
		begun := time.Now()
		_, err := a.List(t.Context())
		if err == nil || !strings.Contains(err.Error(), c.want) || actuate.AsRefusal(err) != nil || len(err.Error()) > 8000 {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("%s took %v", c.name, took)
		}
	}
}

func TestAProgramThatHangsIsKilledWithItsGroup(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	const hangs = `trap '' TERM INT HUP; sleep 100 & sh -c 'trap "" TERM; echo $$ >>"$0"; sleep 100' "$1" & echo $$ >>"$1"; echo waiting >&2; sleep 100`
	for _, c := range []struct {
		name string
		end  func(*Options, context.CancelFunc)
		want string
	}{
		{"its time is over", func(o *Options, _ context.CancelFunc) { o.Timeout = 500 * time.Millisecond }, "not done within 500ms, and was killed; it said: waiting"},
		{"its caller left", func(_ *Options, cancel context.CancelFunc) { time.AfterFunc(500*time.Millisecond, cancel) }, "context canceled"},
	} {
		_ = os.Remove(pids)
		ctx, cancel := context.WithCancel(t.Context())
		o := options(t, "f1", hangs, pids)
		c.end(&o, cancel)
		begun := time.Now()
		_, err := open(t, o).Create(ctx, actuate.Wanted{Key: "a"})
		cancel()
		if took := time.Since(begun); err == nil || !strings.Contains(err.Error(), c.want) || actuate.AsRefusal(err) != nil || took > 5*time.Second {
			t.Errorf("%s: %v after %v, want %q", c.name, err, took, c.want)
		}
		if c.name == "its caller left" && !errors.Is(err, context.Canceled) {
			t.Errorf("%v is not that its context was cancelled", err)
		}
		text, err := os.ReadFile(pids)
		if err != nil || len(strings.Fields(string(text))) == 0 {
			t.Fatalf("%s: %q, %v", c.name, text, err)
		}
		for _, word := range strings.Fields(string(text)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "process "+word+" is gone", func() bool { return isGone(pid) })
		}
	}
}

// What a program left running neither keeps its answer back nor is ended.
func TestWhatAProgramLeavesRunning(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	for _, redirect := range []string{"", "</dev/null >/dev/null 2>&1"} {
		a := open(t, options(t, "f1", `sleep 30 `+redirect+` & echo $! >"$1"; printf '{"nodes":[{"key":"a","id":"%s","phase":"running"}]}' $!`, pids))
		begun := time.Now()
		i, err := a.Create(t.Context(), actuate.Wanted{Key: "a"})
		if took := time.Since(begun); err != nil || took > 4*time.Second {
			t.Fatalf("%+v, %v after %v", i, err, took)
		}
		pid, err := strconv.Atoi(i.ID)
		if err != nil || isGone(pid) {
			t.Errorf("process %q was ended, %v", i.ID, err)
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

func TestOptionsThatAreWrong(t *testing.T) {
	good := options(t, "f1", "")
	for _, c := range []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.Create = nil }, "create is empty"},
		{func(o *Options) { o.Delete = []string{""} }, "delete is empty"},
		{func(o *Options) { o.List = []string{"a", "b\x00"} }, "list, word 2"},
		{func(o *Options) { o.Fleet = "" }, "fleet"},
		{func(o *Options) { o.Timeout = -1 }, "timeout -1ns"},
		{func(o *Options) { o.Environ = []string{"=x"} }, "environment, line 1"},
		{func(o *Options) { o.Settings = map[string]string{"a": strings.Repeat("x", 40<<10)} }, "settings have 40961 bytes"},
	} {
		o := good
		c.change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	a := open(t, good)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.List(t.Context()); err == nil {
		t.Error("List after Close succeeded")
	}
	if err := open(t, good).Delete(t.Context(), actuate.Instance{}); err == nil {
		t.Error("nothing was named, and it was no error")
	}
}

// isGone reports whether a process has ended, be it buried or not.
func isGone(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(text), ") Z ")
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(10 * time.Second); !is(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
