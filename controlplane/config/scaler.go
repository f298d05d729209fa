package config

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"warmpath/controlplane/engine"
	"warmpath/controlplane/state"
	"warmpath/scaler"
	"warmpath/scaler/actuate"
)

// Scaler asks for nodes and gives them back.
type Scaler struct {
	Enabled    bool
	Interval   time.Duration
	Fleet      string // the mark of its nodes at providers
	Model      string // that nodes are made for; "" = as the offers say
	Min, Max   int
	TargetTTFT time.Duration
	// TargetSlowdown is so many times what a prompt takes on an idle node, if that is longer
	// than TargetTTFT; 0 = the target is the same for all.
	TargetSlowdown float64
	Attainment     float64
	Triggers       Triggers
	StabiliseUp    time.Duration

	StabiliseDown time.Duration
	CoolDown      time.Duration
	StepUp        int
	StepDown      int
	Recovery      time.Duration
	Idle          time.Duration
	ReplaceDown   time.Duration
	Budget        float64 // an hour
	MaxLatency    time.Duration
	Placement     string // pack, spread
	StartUp       time.Duration
	PrefillRate   float64 // tokens a second; 0 = not known beforehand
	Orphans       string  // report, adopt, remove
	DrainExpired  string  // wait, end
	// Routers are admin sides of the routers that a scaler in a process of its own
	// scales for; RouterToken is what it sends them, "" = Admin.Token.
	Routers     []string
	RouterToken string
	Offers      []Offer
}

// Triggers are the scaler's thresholds; 0 = off.
type Triggers struct {
	Queue    float64
	LowQueue float64
	HitRatio float64
	TTFT     time.Duration
	KVUse    float64
}

// Offer is one way to get nodes.
type Offer struct {
	Name     string
	Provider string // see Providers
	Region   string
	GPU      string
	Island   string
	Price    float64 // an hour
	Latency  time.Duration
	StartUp  time.Duration // 0 = scaler.start_up
	Quota    int

	// What its nodes have.
	Engine      string
	Weight      float64
	MaxInFlight int
	KVEvents    KVEvents // with places for what is a node's own: see offerPlaces

	Process    ProcessOffer
	Command    CommandOffer
	Webhook    WebhookOffer
	Kubernetes KubernetesOffer
	EC2        EC2Offer
}

// Spec is a node that was made by the offer; nil is an offer that the configuration
// has no more.
func (o *Offer) Spec(name, url string) state.Spec {
	s := state.Spec{Name: name, URL: url}
	if o != nil {
		s.Engine, s.Island, s.Region, s.Weight, s.MaxInFlight = o.Engine, o.Island, o.Region, o.Weight, o.MaxInFlight
		s.KVEvents = o.KVEvents.at(name, url)
	}
	return s
}

// ProcessOffer makes nodes on this host.
type ProcessOffer struct {
	Command             []string
	FirstPort, LastPort int
	LogDir              string
	StopAfter           time.Duration
}

// CommandOffer makes nodes by the user's scripts.
type CommandOffer struct {
	Create, Delete, List []string
	Timeout              time.Duration
}

// WebhookOffer makes nodes by signed requests.
type WebhookOffer struct {
	URL         string
	SecretFile  string
	CallbackURL string
	Timeout     time.Duration
}

// KubernetesOffer makes nodes by the scale subresource of a workload.
type KubernetesOffer struct {
	Kubeconfig, Context, Namespace string
	Kind, Name                     string
	Port                           string // number or name
}

// EC2Offer makes nodes at AWS.
type EC2Offer struct {
	Region, Endpoint, Profile string
	LaunchTemplate, Image     string
	InstanceType, Subnet      string
	SecurityGroups            []string
	KeyName, InstanceProfile  string
	UserDataFile              string
	Spot                      bool
	MaxPrice, Address         string
	Port                      int
}

// Providers are the values of Offer.Provider.
var Providers = []string{"process", "command", "webhook", "kubernetes", "ec2"}

// maxOfferName leaves room in a node's name for what makes it unique.
const maxOfferName = actuate.MaxKeyBytes - 23

func scalerKeys(s *Scaler) entry {
	dur := func(key, def, doc string, to *time.Duration, lo, hi time.Duration, off bool) entry {
		return leaf(key, def, doc, to, duration(lo, hi, off), showDuration)
	}
	t := &s.Triggers
	e := group("scaler", "how many nodes there are: asked for and given back by the load",
		leaf("enabled", "false", "", &s.Enabled, boolean, showBool),
		dur("interval", "10s", "between two decisions", &s.Interval, time.Second, time.Hour, false),
		leaf("fleet", "warmpath", "the mark of its nodes at providers; of two scalers at one provider each needs its own", &s.Fleet, keyText, plain),
		leaf("model", `""`, "that nodes are made for; empty = as the offers say", &s.Model, modelOrNone, quote),
		leaf("min", "1", "nodes; 0 = to zero, and requests are held until one is there", &s.Min, integer(0, scaler.MostNodes), showInt[int]),
		leaf("max", "16", "nodes", &s.Max, integer(1, scaler.MostNodes), showInt[int]),
		dur("target_ttft", "1s", "within which the share attainment of first tokens shall come", &s.TargetTTFT, 10*time.Millisecond, time.Hour, false),
		leaf("target_slowdown", "0", "or within so many times what its prompt takes on an idle node, if that is longer; 0 = off", &s.TargetSlowdown, number(0, 100), showNumber),
		leaf("attainment", "0.99", "", &s.Attainment, number(0.5, 0.9999), showNumber),
		group("triggers", "thresholds beside the prediction; 0 = off",
			leaf("queue", "8", "requests that wait in an engine, mean: more = up", &t.Queue, number(0, 1e6), showNumber),
			leaf("low_queue", "2", "down only below it", &t.LowQueue, number(0, 1e6), showNumber),
			leaf("hit_ratio", "0", "share of prompt tokens found cached: less = up", &t.HitRatio, number(0, 1), showNumber),
			dur("ttft", "0s", "p99 of first tokens: more = up", &t.TTFT, 10*time.Millisecond, time.Hour, true),
			leaf("kv_use", "0.95", "mean use of the KV caches by running requests: more = up", &t.KVUse, number(0, 1), showNumber)),
		dur("stabilise_up", "0s", "more must be wanted for so long", &s.StabiliseUp, time.Second, time.Hour, true),
		dur("stabilise_down", "180s", "fewer must be wanted for so long", &s.StabiliseDown, time.Second, time.Hour, true),
		dur("cool_down", "180s", "after nodes were asked for, before any is given back", &s.CoolDown, time.Second, maxDuration, true),
		leaf("step_up", "0", "most nodes in one decision; 0 = any number", &s.StepUp, integer(0, scaler.MostNodes), showInt[int]),
		leaf("step_down", "0", "", &s.StepDown, integer(0, scaler.MostNodes), showInt[int]),
		dur("recovery", "60s", "within which a backlog shall be gone once new nodes serve", &s.Recovery, time.Second, time.Hour, false),
		dur("idle", "600s", "without a request before the last node goes, with min 0", &s.Idle, time.Second, maxDuration, false),
		dur("replace_down", "120s", "a node that is down for so long is given back", &s.ReplaceDown, time.Second, maxDuration, false),
		leaf("budget", "0", "of all its nodes, an hour, in the offers' currency; 0 = no bound", &s.Budget, number(0, 1e9), showNumber),
		dur("max_latency", "0s", "of an offer, to the clients", &s.MaxLatency, time.Millisecond, time.Minute, true),
		leaf("placement", "pack", "pack: the cheapest first; spread: over regions", &s.Placement, choice("pack", "spread"), plain),
		dur("start_up", "180s", "of nodes, until it was measured", &s.StartUp, time.Second, maxDuration, false),
		leaf("prefill_tokens_per_second", "0", "of a node, until it was measured; 0 = unknown", &s.PrefillRate, number(0, 1e9), showNumber),
		leaf("orphans", "report", "nodes with the fleet's mark that nobody asked for: report, adopt or remove", &s.Orphans, choice("report", "adopt", "remove"), plain),
		leaf("drain_expired", "wait", "a node that is not empty after timeouts.drain_node: wait, or end with what is on it", &s.DrainExpired, choice("wait", "end"), plain),
		texts("routers", "with `warmpath scale`, in place of enabled: admin sides of all routers, such as http://10.0.0.1:8081", &s.Routers, routerURL, asIs),
		leaf("router_token", `""`, "their admin.token; empty = the one of this file", &s.RouterToken, token68, quote).hidden(),
		entry{key: "offers", def: "[]", doc: "ways to get nodes", open: &list{
			length:   func() int { return len(s.Offers) },
			grow:     func() { s.Offers = append(s.Offers, Offer{}) },
			elements: func(i int) []entry { return offerKeys(&s.Offers[i]) },
			example:  map[string]string{"name": "local", "provider": "process"},
			aside:    true,
			required: map[string]complaint{
				"name":     {"the offer has no name", "add name: and a unique name"},
				"provider": {"the offer has no provider", "add provider: " + strings.Join(Providers, ", ")},
			},
		}})
	restartAll(e.children)
	return e
}

// restartAll marks keys whose change needs a restart: what is owned must not change
// hands while it runs.
func restartAll(entries []entry) {
	for i := range entries {
		entries[i].restart = true
		restartAll(entries[i].children)
		if l := entries[i].open; l != nil {
			elements := l.elements
			l.elements = func(i int) []entry {
				list := elements(i)
				restartAll(list)
				return list
			}
		}
	}
}

func offerKeys(o *Offer) []entry {
	return []entry{
		leaf("name", "", "begins its nodes' names; small letters, digits and '-'", &o.Name, keyText, shownName),
		leaf("provider", "", strings.Join(Providers, ", "), &o.Provider, choice(Providers...), shownName),
		leaf("region", `""`, "", &o.Region, label, quote),
		leaf("gpu", `""`, "for people", &o.GPU, label, quote),
		leaf("island", `""`, "the set of nodes inside which KV state can be reused", &o.Island, label, quote),
		leaf("price", "0", "of a node, an hour", &o.Price, number(0, 1e6), showNumber),
		leaf("latency", "0s", "to the clients", &o.Latency, duration(time.Microsecond, time.Minute, true), showDuration),
		leaf("start_up", "0s", "0s = scaler.start_up", &o.StartUp, duration(time.Second, maxDuration, true), showDuration),
		leaf("quota", "0", "nodes; 0 = as many as max", &o.Quota, integer(0, scaler.MostNodes), showInt[int]),
		leaf("engine", "auto", "as of nodes", &o.Engine, choice(engine.Names()...), plain),
		leaf("weight", "1.0", "capacity class", &o.Weight, number(state.MinCapacityClass, state.MaxCapacityClass), showNumber),
		leaf("max_in_flight", "0", "requests at once at each; 0 = no cap", &o.MaxInFlight, integer(0, state.MostInFlight), showInt[int]),
		kvEventsKeys("as of nodes; {host}, {port}, {port+1000} and {key} are filled in, by the node's URL and name", &o.KVEvents),
		group("process", "engines on this host; they outlive the router",
			arguments("command", "program and arguments; {port}, {port+1000}, {key} and {model} are filled in", &o.Process.Command),
			leaf("first_port", "0", "", &o.Process.FirstPort, integer(0, math.MaxUint16), showInt[int]),
			leaf("last_port", "0", "", &o.Process.LastPort, integer(0, math.MaxUint16), showInt[int]),
			leaf("log_dir", `""`, "empty = what they print is lost", &o.Process.LogDir, text("/var/log/warmpath"), quote),
			leaf("stop_after", "30s", "SIGTERM, then SIGKILL", &o.Process.StopAfter, duration(time.Second, time.Hour, false), showDuration)),
		group("command", "scripts that read and write JSON",
			arguments("create", "", &o.Command.Create),
			arguments("delete", "", &o.Command.Delete),
			arguments("list", "", &o.Command.List),
			leaf("timeout", "60s", "", &o.Command.Timeout, duration(time.Second, time.Hour, false), showDuration)),
		group("webhook", "signed requests",
			leaf("url", `""`, "", &o.Webhook.URL, text("https://provider.example/nodes"), quote),
			leaf("secret_file", `""`, "whose contents sign requests and callbacks", &o.Webhook.SecretFile, text("/etc/warmpath/webhook.secret"), quote),
			leaf("callback_url", `""`, "where the provider says that a node is ready", &o.Webhook.CallbackURL, text("https://router.example/api/scaler/callback/NAME"), quote),
			leaf("timeout", "30s", "", &o.Webhook.Timeout, duration(time.Second, time.Hour, false), showDuration)),
		group("kubernetes", "a workload's scale, and its pods' deletion cost",
			leaf("kubeconfig", `""`, "empty = the cluster that this runs in", &o.Kubernetes.Kubeconfig, text("/etc/warmpath/kubeconfig"), quote),
			leaf("context", `""`, "", &o.Kubernetes.Context, text("prod"), quote),
			leaf("namespace", "default", "", &o.Kubernetes.Namespace, keyText, plain),
			leaf("kind", "deployment", "deployment or statefulset", &o.Kubernetes.Kind, choice("deployment", "statefulset"), plain),
			leaf("name", `""`, "", &o.Kubernetes.Name, text("vllm"), quote),
			leaf("port", "8000", "number, or name of a container's port", &o.Kubernetes.Port, portText, quote)),
		ec2Keys(&o.EC2),
	}
}

func ec2Keys(e *EC2Offer) entry {
	return group("ec2", "instances at AWS; credentials as the AWS SDK finds them",
		leaf("region", `""`, "", &e.Region, text("eu-south-1"), quote),
		leaf("endpoint", `""`, "empty = AWS", &e.Endpoint, text("http://127.0.0.1:5000"), quote),
		leaf("profile", `""`, "of the shared configuration", &e.Profile, text("warmpath"), quote),
		leaf("launch_template", `""`, "id or name, and :version", &e.LaunchTemplate, text("lt-0abc:3"), quote),
		leaf("image", `""`, "", &e.Image, text("ami-0abc"), quote),
		leaf("instance_type", `""`, "", &e.InstanceType, text("g6.xlarge"), quote),
		leaf("subnet", `""`, "", &e.Subnet, text("subnet-0abc"), quote),
		texts("security_groups", "", &e.SecurityGroups, inList(notEmpty), asIs),
		leaf("key_name", `""`, "", &e.KeyName, text("ops"), quote),
		leaf("instance_profile", `""`, "", &e.InstanceProfile, text("vllm-node"), quote),
		leaf("user_data_file", `""`, "what the instance runs first; {key}, {model} and {fleet} are filled in", &e.UserDataFile, text("/etc/warmpath/user-data"), quote),
		leaf("spot", "false", "", &e.Spot, boolean, showBool),
		leaf("max_price", `""`, "of a spot instance, an hour; empty = the on-demand price", &e.MaxPrice, text("1.20"), quote),
		leaf("address", "private", "private or public", &e.Address, choice("private", "public"), plain),
		leaf("port", "8000", "of the engine", &e.Port, integer(1, math.MaxUint16), showInt[int]))
}

// arguments is a program and its arguments, which may repeat themselves.
func arguments(key, doc string, to *[]string) entry {
	return entry{
		key: key, def: "[]", doc: doc,
		read: func(v item) complaint {
			if v.kind != kindList {
				return wrongType(v, "a list", "write [program, argument, …]")
			}
			if len(v.list) > maxStrings {
				return complaint{"too many values", fmt.Sprintf("use at most %d", maxStrings)}
			}
			out := make([]string, 0, len(v.list))
			for i, e := range v.list {
				if e.kind == kindRefused {
					continue
				}
				if e.kind != kindText {
					return complaint{fmt.Sprintf("value %d is %s where text is wanted", i+1, kindNames[e.kind]), "put it in quotes"}
				}
				out = append(out, e.text)
			}
			*to = out
			return complaint{}
		},
		show: func() string {
			quoted := make([]string, len(*to))
			for i, t := range *to {
				quoted[i] = quote(t)
			}
			return "[" + strings.Join(quoted, ", ") + "]"
		},
	}
}

// keyText is what can begin a node's name at every provider.
func keyText(v item) (string, complaint) {
	s, c := textLike(v, "edge-1")
	if !c.none() {
		return s, c
	}
	switch err := actuate.CheckKey(s); {
	case err != nil:
		return s, complaint{"it cannot be part of a node's name at every provider", "use small letters, digits and '-', a letter first and not '-' last"}
	case len(s) > maxOfferName:
		return s, complaint{"it is too long", fmt.Sprintf("use at most %d bytes", maxOfferName)}
	}
	return s, complaint{}
}

func modelOrNone(v item) (string, complaint) {
	s, c := textLike(v, "qwen3")
	if c.none() && s != "" {
		return modelName(v)
	}
	return s, c
}

// portText is a port's number or its name in Kubernetes.
func portText(v item) (string, complaint) {
	if n, c := integer(1, math.MaxUint16)(v); c.none() {
		return strconv.Itoa(n), c
	}
	return textLike(v, "http")
}

// routerURL is the base of a router's admin side.
func routerURL(s string) (string, complaint) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return s, complaint{"not an http or https URL", "write one such as http://10.0.0.1:8081"}
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return s, complaint{"it has more than a scheme, a host and a path", "remove the rest; the token is scaler.router_token"}
	}
	return strings.TrimRight(u.String(), "/"), complaint{}
}

// mostRouters bounds scaler.routers: each is asked every second.
const mostRouters = 64

func notEmpty(s string) error {
	if s == "" {
		return errors.New("it is empty: remove it")
	}
	return nil
}

// scaling refuses offers that lack what their provider needs, and limits that
// contradict each other.
func (d *decoder) scaling() {
	s := &d.config.Scaler
	switch {
	case s.Min > s.Max:
		d.contradiction("scaler.min", "scaler.max", "more nodes at least than at most", "lower one or raise the other")
	case s.Triggers.Queue > 0 && s.Triggers.LowQueue > s.Triggers.Queue:
		d.contradiction("scaler.triggers.low_queue", "scaler.triggers.queue", "nodes would be given back above the queue at which they are asked for", "lower one or raise the other")
	case s.Enabled && len(s.Offers) == 0:
		key, at := d.at("scaler.enabled")
		d.refuse(key, at, "true", complaint{"there is nothing to get nodes from", "add scaler.offers"})
	case s.Enabled && len(s.Routers) > 0:
		d.contradiction("scaler.enabled", "scaler.routers", "two scalers would make nodes for the same load", "keep routers for `warmpath scale`, or enabled: true for the scaler inside `warmpath serve`")
	case len(s.Routers) > mostRouters:
		d.refuse("scaler.routers", d.places["scaler.routers"], strconv.Itoa(len(s.Routers)), complaint{"too many routers", fmt.Sprintf("use at most %d", mostRouters)})
	case len(s.Offers) > scaler.MostOffers:
		d.refuse("scaler.offers", d.places["scaler.offers"], strconv.Itoa(len(s.Offers)), complaint{"too many offers", fmt.Sprintf("use at most %d", scaler.MostOffers)})
	}
	for i := range s.Offers {
		d.offer(i, &s.Offers[i])
	}
}

func (d *decoder) offer(i int, o *Offer) {
	path := fmt.Sprintf("scaler.offers[%d].", i)
	refuse := func(key, value, what, remedy string) {
		_, at := d.at(path+key, path+"provider", path+"name")
		d.refuse(path+key, at, value, complaint{what, remedy})
	}
	offers := d.config.Scaler.Offers
	if o.Name != "" && slices.ContainsFunc(offers[:i], func(other Offer) bool { return other.Name == o.Name }) {
		refuse("name", quoteShort(o.Name), "the name stands twice", "rename one")
	}
	d.offersEvents(path, &o.KVEvents)
	switch o.Provider {
	case "process":
		switch p := &o.Process; {
		case len(p.Command) == 0:
			refuse("process.command", "[]", "it is not said what to run", `give a program and its arguments, such as ["vllm", "serve", "--port", "{port}"]`)
		case p.FirstPort == 0 || p.LastPort < p.FirstPort:
			refuse("process.last_port", strconv.Itoa(p.LastPort), "nodes have no ports", "give first_port and last_port, one port for each node")
		}
	case "command":
		for _, c := range []struct {
			key  string
			argv []string
		}{{"create", o.Command.Create}, {"delete", o.Command.Delete}, {"list", o.Command.List}} {
			if len(c.argv) == 0 {
				refuse("command."+c.key, "[]", "the script is missing", "give a program and its arguments")
			}
		}
	case "webhook":
		if u, err := url.Parse(o.Webhook.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			refuse("webhook.url", quoteShort(actuate.Place(o.Webhook.URL)), "not an http or https URL", "write one such as https://provider.example/nodes")
		}
		if o.Webhook.SecretFile == "" {
			refuse("webhook.secret_file", `""`, "nothing to sign with", "name a file with a secret that the provider has too")
		}
	case "kubernetes":
		if o.Kubernetes.Name == "" {
			refuse("kubernetes.name", `""`, "it is not said what to scale", "give the name of the workload")
		}
	case "ec2":
		if o.EC2.Region == "" {
			refuse("ec2.region", `""`, "the region is missing", "give one such as eu-south-1")
		}
		if o.EC2.LaunchTemplate == "" && (o.EC2.Image == "" || o.EC2.InstanceType == "") {
			refuse("ec2.image", quoteShort(o.EC2.Image), "it is not said what to run", "give launch_template, or image and instance_type")
		}
	}
}
