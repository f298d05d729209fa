package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"warmpath/controlplane/admin"
	"warmpath/controlplane/config"
	"warmpath/controlplane/controltest"
	"warmpath/scaler"
	engineprocess "warmpath/scaler/actuate/process"
)

// write makes a file of the test's.
func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// quotaScript lists nothing and gives nothing.
const quotaScript = `#!/bin/sh
case "$(cat)" in
*'"action":"create"'*) echo '{"refused":{"reason":"quota","message":"4 of 4 cards are in use"}}' ;;
*) echo '{"nodes":[]}' ;;
esac
`

const offersText = `nodes: []
state_dir: %q
scaler:
  enabled: true
  fleet: %s
  interval: 1s
  min: 3
  max: 4
  start_up: 2s
  offers:
    - {name: broker, provider: webhook, price: 1, webhook: {url: %q, secret_file: %q}}
    - {name: unsigned, provider: webhook, price: 2, webhook: {url: %q, secret_file: %q}}
    - {name: script, provider: command, price: 3, command: {create: [%[8]q], delete: [%[8]q], list: [%[8]q]}}
    - {name: absent, provider: command, price: 4, command: {create: [%[9]q], delete: [%[9]q], list: [%[9]q]}}
    - {name: cluster, provider: kubernetes, price: 5, kubernetes: {kubeconfig: %[10]q, name: vllm}}
    - {name: aws, provider: ec2, price: 6, ec2: {region: eu-south-1, image: ami-1, instance_type: g6.xlarge, user_data_file: %[13]q}}
    - {name: local, provider: process, price: 9, quota: 2, process: {command: [%[7]q, --port, "{port}", --kv-events-port, "{port+100}", --replay-port, "{port+200}"], first_port: %[11]d, last_port: %[12]d, stop_after: 5s}, kv_events: {endpoint: "tcp://{host}:{port+100}", replay: "tcp://{host}:{port+200}"}}
`

// offered is a router with offers of which one alone works.
type offered struct {
	*scaled
	broker                        *controltest.Provider
	secret, missing, absent, kube string // files
}

func serveOffers(t *testing.T) *offered {
	t.Helper()
	folder := t.TempDir()
	o := &offered{
		scaled: &scaled{fleet: fmt.Sprintf("e2e-%d-%d", os.Getpid(), rand.IntN(1e6))},
		secret: write(t, filepath.Join(folder, "secret"), "sixteen bytes and more\n", 0o600), missing: filepath.Join(folder, "no-secret"),
		absent: filepath.Join(folder, "make-node"), kube: filepath.Join(folder, "kubeconfig"),
	}
	o.broker = controltest.StartProvider(t, startEngines(t, 1).urls...)
	o.broker.Refuse(http.StatusForbidden, "<h1>account 7</h1>\n\tmay not see nodes: ask \x1b[31mops\x1b[0m\n")
	script := write(t, filepath.Join(folder, "quota"), quotaScript, 0o700)
	first := freePorts(20000+rand.IntN(8000), 16)
	path := configure(t, settings, fmt.Sprintf(offersText, filepath.Join(folder, "state"), o.fleet, o.broker.URL(), o.secret, o.broker.URL(), o.missing,
		program("enginesim"), script, o.absent, o.kube, first, first+15, o.kube+"-data"))
	var err error
	o.engine, err = engineprocess.New(engineprocess.Options{
		Command: []string{program("enginesim")}, Fleet: o.fleet + "-local", FirstPort: first, LastPort: first + 15,
		Environ: config.Environ(), StopAfter: time.Second, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.endEngines(t) })
	o.serving = launchRouter(t, path)
	return o
}

// withheld is why each offer is not asked.
func (o *offered) withheld(t *testing.T) map[string]string {
	t.Helper()
	why := map[string]string{}
	for _, offer := range o.view(t).Offers {
		why[offer.Name] = offer.Withheld
	}
	return why
}

// told is what the log says of an offer, above information.
func (o *offered) told(t *testing.T, offer string) (said []string) {
	t.Helper()
	for line := range strings.Lines(o.err.String()) {
		var l struct{ Level, Offer, Err string }
		if json.Unmarshal([]byte(line), &l) == nil && l.Offer == offer && l.Level != "INFO" && l.Level != "DEBUG" {
			said = append(said, l.Err)
		}
	}
	return said
}

// TestOffers: of seven offers six cannot give a node. Each says why in its provider's
// words, everywhere and once; the fleet comes from the seventh, and from the others once
// their causes are gone.
func TestOffers(t *testing.T) {
	o := serveOffers(t)
	eventually(t, cycleLimit, "the offer that works has given what it may", func() bool { return o.ready(t) == 2 && len(o.running(t)) == 2 })
	o.ask(t, chatBody("Who serves?", ""))
	o.trusted(t) // its nodes' events are where kv_events says
	want := map[string]string{
		"broker":   "list nodes: refused for credential: status 403 Forbidden: <h1>account 7</h1>\n\tmay not see nodes: ask \x1b[31mops\x1b[0m",
		"unsigned": "refused for settings: read webhook.secret_file: open " + o.missing + ": no such file or directory",
		"script":   "refused for quota: 4 of 4 cards are in use",
		"absent":   "list nodes: refused for settings: fork/exec " + o.absent + ": no such file or directory",
		"cluster":  "refused for settings: actuator kubernetes: read kubeconfig \"" + o.kube + "\": stat " + o.kube + ": no such file or directory",
		"aws":      "refused for settings: read ec2.user_data_file: open " + o.kube + "-data: no such file or directory",
		"local":    "",
	}
	decided := map[time.Time]bool{}
	eventually(t, 40*time.Second, "twelve more decisions are made", func() bool {
		if last := o.view(t).Last; last != nil {
			decided[last.At] = true
		}
		return len(decided) > 12
	})
	o.saysWhy(t, want)
	if v := o.view(t); v.Last == nil || v.Last.Action != string(scaler.ActionHold) || !strings.Contains(v.Last.Why, "2 nodes stay") || !strings.Contains(v.Last.Why, "4 of 4 cards are in use") || v.Last.Target != 2 {
		t.Errorf("the plan says %+v", v.Last)
	}
	o.mended(t)
}

// saysWhy checks what is said of each offer.
func (o *offered) saysWhy(t *testing.T, want map[string]string) {
	t.Helper()
	why := o.withheld(t)
	table, _, code := o.cli(t, "scaler")
	if code != 0 || strings.ContainsRune(table, '\x1b') {
		t.Errorf("the table has code %d and what steers a terminal: %q", code, table)
	}
	for name, words := range want {
		held := 1.0
		if words == "" {
			held = 0
		}
		if !strings.HasSuffix(why[name], words) || words == "" && why[name] != "" {
			t.Errorf("%s is withheld for %q, want %q", name, why[name], words)
		}
		if got := o.metric(t, fmt.Sprintf("scaler_offer_withheld{offer=%q}", name)); got != held {
			t.Errorf("%s: the metric is %v, want %v", name, got, held)
		}
		line := ""
		for one := range strings.Lines(table) {
			if fields := strings.Fields(one); len(fields) > 2 && fields[0] == name && strings.Contains(one, " no: ") {
				line = one
			}
		}
		if words == "" {
			continue
		}
		if !strings.Contains(line, onLine(words)) {
			t.Errorf("the table says of %s: %q, want %q", name, line, onLine(words))
		}
		if said := o.told(t, name); len(said) != 1 || !strings.HasSuffix(said[0], words) {
			t.Errorf("the log says of %s %d times, want once: %q", name, len(said), said)
		}
	}
}

// mended takes the causes away: what gave no node is asked again, without a restart.
func (o *offered) mended(t *testing.T) {
	t.Helper()
	o.broker.Refuse(0, "")
	write(t, o.missing, "another secret of some length", 0o600)
	write(t, o.absent, quotaScript, 0o700)
	for _, name := range []string{"broker", "unsigned", "absent"} {
		eventually(t, 40*time.Second, name+" may be asked, or has been", func() bool {
			why := o.withheld(t)[name]
			return why == "" || strings.HasSuffix(why, "4 of 4 cards are in use")
		})
	}
	eventually(t, 40*time.Second, "the third node serves", func() bool { return o.ready(t) == 3 })
	nodes := o.view(t).Nodes
	if !slices.ContainsFunc(nodes, func(n admin.OwnedView) bool { return n.Offer == "broker" || n.Offer == "unsigned" }) {
		t.Errorf("the nodes are %+v, and none is the broker's", nodes)
	}
	if why := o.withheld(t); !strings.Contains(why["script"], "4 of 4 cards") || !strings.Contains(why["cluster"], o.kube) {
		t.Errorf("what was not mended is %q", why)
	}
	eventually(t, 10*time.Second, "the broker's node answers", func() bool {
		a := o.ask(t, chatBody(fmt.Sprintf("Hello %d. %s", bodies.Add(1), strings.Repeat("Words that fill blocks. ", 40)), ""))
		return strings.HasPrefix(a.node(), "broker") || strings.HasPrefix(a.node(), "unsigned")
	})
}
