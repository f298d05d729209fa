package config

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"warmpath/controlplane/discover"
	"warmpath/controlplane/engine"
	"warmpath/controlplane/state"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/index"
)

// Bounds of lists.
const (
	maxModels   = 1024
	maxNodes    = fleet.MaxSlots
	maxStrings  = state.MaxModels // of one list of texts
	maxPolicy   = 64              // parameters of one policy
	maxPaths    = 256
	maxDuration = 24 * time.Hour
	maxBytes    = int64(1) << 50
)

// schema is every key of the configuration, bound to c, in the order of the
// documentation.
func schema(c *Config) []entry {
	return slices.Concat(identityKeys(c), fleetKeys(c), servingKeys(c), laterKeys(c))
}

func identityKeys(c *Config) []entry {
	return []entry{
		leaf("listen", "127.0.0.1:8080", "host:port of the client side", &c.Listen, listenAddress(false), quote).atRestart(),
		group("admin", "metrics, health and the admin API",
			leaf("listen", "127.0.0.1:8081", "a token is required beyond loopback", &c.Admin.Listen, listenAddress(false), quote).atRestart(),
			leaf("token", `""`, "clients send it as Authorization: Bearer", &c.Admin.Token, token68, quote).atRestart().hidden()),
		group("reports", "node reports, on a listener of their own",
			leaf("listen", `""`, "host:port; empty = no reports", &c.Reports.Listen, listenAddress(true), quote).atRestart(),
			leaf("tokens_file", `""`, "one token a node", &c.Reports.TokensFile, text("/etc/warmpath/tokens"), quote).atRestart()),
		group("site", "where this router stands",
			leaf("region", `""`, "", &c.Site.Region, label, quote),
			leaf("island", `""`, "the set of nodes inside which KV state could be reused", &c.Site.Island, label, quote)),
		leaf("state_dir", `""`, "seed and journal; empty = memory only", &c.StateDir, text("/var/lib/warmpath"), quote).atRestart(),
		leaf("seed", `""`, "fleet seed of chain hashes; empty = made once", &c.Seed, text(`"fleet-1"`), quote).atRestart().hidden(),
		texts("trusted_proxies", "addresses and CIDRs whose X-Forwarded-For and X-Real-IP count", &c.TrustedProxies, prefixOf, netip.Prefix.String),
		leaf("loops", "0", "event loops; 0 = one a CPU", &c.Loops, integer(0, 1024), showInt[int]).atRestart(),
	}
}

func fleetKeys(c *Config) []entry {
	return []entry{
		{key: "models", def: "[]", doc: "models by the names that clients send; others are learned from the engines", open: &list{
			length:   func() int { return len(c.Models) },
			grow:     func() { c.Models = append(c.Models, Model{}) },
			elements: func(i int) []entry { return modelKeys(&c.Models[i]) },
			example:  map[string]string{"name": "qwen3"},
			required: map[string]complaint{"name": {"the model has no name", "add name: and what clients send"}},
		}},
		nodesKey(c, nodeKeys),
		texts("node_urls_allowed", "CIDRs and host patterns that a node added at run time may have; none = any", &c.NodeURLsAllowed, inList(discover.CheckPattern), asIs),
		{
			key: "policy", doc: "the routing rule, and beside name its own keys",
			children: []entry{leaf("name", "cost", "", &c.Policy.Name, text("cost"), shownName)},
			extra:    policyParams(&c.Policy),
		},
	}
}

func nodesKey(c *Config, keys func(*Node) []entry) entry {
	return entry{key: "nodes", doc: "engines; required, [] if they are discovered or added at run time", open: &list{
		length:   func() int { return len(c.Nodes) },
		grow:     func() { c.Nodes = append(c.Nodes, Node{}) },
		elements: func(i int) []entry { return keys(&c.Nodes[i]) },
		example:  map[string]string{"name": "gpu-a", "url": "http://10.0.0.11:8000"},
		required: map[string]complaint{
			"name": {"the node has no name", "add name: and a unique name"},
			"url":  {"the node has no url", "add url: http://host:port"},
		},
	}}
}

func modelKeys(m *Model) []entry {
	return []entry{
		leaf("name", "", "as clients and engines call it", &m.Name, modelName, shownName),
		texts("aliases", "other names for it", &m.Aliases, inList(state.CheckModel), asIs),
		leaf("default", "false", "requests that name no model mean this one", &m.Default, boolean, showBool),
		leaf("tokenizer", `""`, "tokenizer.json; empty = text exactness", &m.Tokenizer, text("models/qwen3/tokenizer.json"), quote),
		leaf("chat_template", `""`, "empty = the one beside the tokenizer", &m.ChatTemplate, text("models/qwen3/template.jinja"), quote),
	}
}

func nodeKeys(n *Node) []entry {
	return []entry{
		leaf("name", "", "unique; letters, digits, '.', '_' and '-'", &n.Name, nodeName, shownName),
		leaf("url", "", "http://host:port, with or without a path", &n.URL, nodeURL, quote),
		texts("models", "empty = asked from the engine", &n.Models, inList(state.CheckModel), asIs),
		leaf("engine", "auto", "auto, vllm, sglang, tgi, llamacpp, trtllm or openai", &n.Engine, choice(engine.Names()...), plain),
		leaf("island", `""`, "", &n.Island, label, quote),
		leaf("region", `""`, "", &n.Region, label, quote),
		kvEventsKeys("the engine's KV-cache events", &n.KVEvents),
		leaf("hash_scheme", `""`, "of minimal reporters: sha256_prefix, sglang or vllm_cbor", &n.HashScheme, choice(state.HashSchemes...), plain),
		leaf("prefix_tokens", "64", "of hash_scheme sha256_prefix; 16 or more", &n.PrefixTokens, integer(1, state.MaxPrefixTokens), showInt[int]),
		leaf("weight", "1.0", "capacity class: speed against the other nodes", &n.Weight, number(state.MinCapacityClass, state.MaxCapacityClass), showNumber),
		leaf("max_in_flight", "0", "requests at once; 0 = no cap", &n.MaxInFlight, integer(0, state.MostInFlight), showInt[int]),
		dscpKey(&n.Mark, "kernel.dscp"),
		priorityKey(&n.Mark, "kernel.priority"),
	}
}

func servingKeys(c *Config) []entry {
	t, l := &c.Timeouts, &c.Limits
	dur := func(key, def, doc string, to *time.Duration, lo, hi time.Duration, off bool) entry {
		return leaf(key, def, doc, to, duration(lo, hi, off), showDuration)
	}
	return []entry{
		group("timeouts", "0s = off where it is allowed",
			dur("connect", "1s", "to a node", &t.Connect, time.Millisecond, time.Minute, false),
			dur("head", "10s", "a client's request head", &t.Head, 100*time.Millisecond, 10*time.Minute, true),
			leaf("first_event", "auto", "auto = max(20 s, 3 × predicted)", &t.FirstEvent, autoDuration(100*time.Millisecond, maxDuration), showAuto),
			dur("idle_stream", "300s", "silence inside an answer", &t.IdleStream, time.Second, maxDuration, true),
			dur("hold", "600s", "a request that waits for a node the scaler is asking for", &t.Hold, time.Second, maxDuration, false),
			dur("identify", "500ms", "a worker with a prompt's tokens; then its text counts", &t.Identify, time.Millisecond, time.Minute, false),
			dur("request", "1800s", "a whole request", &t.Request, time.Second, maxDuration, true),
			dur("idle_client", "75s", "a client connection between requests", &t.IdleClient, time.Second, maxDuration, true),
			dur("idle_node", "4s", "a pooled node connection; engines close theirs after 5 s", &t.IdleNode, 100*time.Millisecond, time.Hour, false),
			dur("drain_node", "1800s", "", &t.DrainNode, time.Second, maxDuration, true),
			dur("drain_process", "180s", "", &t.DrainProcess, 0, maxDuration, true),
			entry{key: "paths", doc: "request path: its own bound of a whole request", extra: pathTimeouts(t)},
			entry{key: "classes", doc: "class: its own bounds", extra: nothing("request classes")}),
		group("limits", "what clients may use",
			leaf("connections", "20000", "of clients; two descriptors each", &l.Connections, integer(1, 10000000), showInt[int]).atRestart(),
			leaf("head_bytes", "65536", "", &l.HeadBytes, size(1024, 16<<20), showSize),
			leaf("headers", "100", "", &l.Headers, integer(1, 10000), showInt[int]),
			leaf("body_bytes", "256MiB", "", &l.BodyBytes, size(1024, 1<<40), showSize),
			leaf("routing_window", "1MiB", "a larger body may be decided on its first part", &l.RoutingWindowBytes, size(1024, 1<<40), showSize),
			leaf("retry_body_bytes", "4MiB", "a larger body is not kept for a retry", &l.RetryBodyBytes, size(0, 1<<40), showSize),
			leaf("hold_requests", "1000", "that wait for a node the scaler is asking for; 0 = none may", &l.HoldRequests, integer(0, 1000000), showInt[int]),
			leaf("hold_bytes", "0", "of theirs; 0 = a quarter of memory, or 256MiB", &l.HoldBytes, size(0, maxBytes), showSize),
			leaf("memory", "0", "of bodies and answers held, over all connections; 0 = half of what the host or the control group has", &l.MemoryBytes, size(0, maxBytes), showSize)),
		group("retry", "",
			leaf("retries", "2", "tries after the first", &c.Retry.Retries, integer(0, 10), showInt[int]),
			leaf("budget", "0.2", "share of active requests", &c.Retry.Budget, number(0, 1), showNumber),
			leaf("hold_stream_head", "true", "hold the head of a stream until its first event", &c.Retry.HoldStreamHead, boolean, showBool),
			leaf("hedge", "off", "silence after which a stream is sent to a second node too; auto = max(1 s, 2 × predicted)", &c.Retry.Hedge, switchedDuration(50*time.Millisecond, 10*time.Minute), showSwitched)),
		group("health", "the active probe",
			dur("interval", "15s", "", &c.Health.Interval, 100*time.Millisecond, time.Hour, false),
			dur("interval_down", "2s", "while a node does not answer", &c.Health.IntervalDown, 100*time.Millisecond, time.Hour, false),
			dur("timeout", "5s", "", &c.Health.Timeout, 10*time.Millisecond, 5*time.Minute, false),
			leaf("path", "/health", "", &c.Health.Path, route, quote),
			leaf("down_after", "3", "failures in a row", &c.Health.DownAfter, integer(1, 100), showInt[int]),
			leaf("up_after", "2", "good answers in a row", &c.Health.UpAfter, integer(1, 100), showInt[int])),
		group("breaker", "stops requests to a node that answers with failures",
			leaf("failures", "5", "in a row", &c.Breaker.Failures, integer(1, 1000), showInt[int]),
			dur("open", "60s", "", &c.Breaker.Open, 100*time.Millisecond, time.Hour, false),
			dur("probe_timeout", "10s", "", &c.Breaker.ProbeTimeout, 100*time.Millisecond, 10*time.Minute, false),
			leaf("max_ejected", "0.5", "share of a model's nodes", &c.Breaker.MaxEjected, number(0, 1), showNumber),
			group("slow", "",
				leaf("p95_over_baseline", "3", "p95 above this many times the node's baseline is a failure; 0 = off", &c.Breaker.SlowP95OverBaseline, zeroOr(number(1.1, 1000)), showNumber),
				leaf("p99_over_baseline", "2", "and so is p99 above this many times its own", &c.Breaker.SlowP99OverBaseline, zeroOr(number(1.1, 1000)), showNumber))),
		group("index", "the prefix index",
			leaf("memory", "1GiB", "", &c.Index.MemoryBytes, size(index.MinMemoryBytes, maxBytes), showSize).atRestart(),
			leaf("memo", "256MiB", "of texts whose tokens are remembered", &c.Index.MemoBytes, size(1<<20, maxBytes), showSize).atRestart(),
			dur("speculative_ttl", "2s", "after the first token, if no event confirms the entry", &c.Index.SpeculativeTTL, 10*time.Millisecond, time.Hour, false),
			dur("approximate_ttl", "120s", "", &c.Index.ApproximateTTL, time.Second, maxDuration, false),
			leaf("learned_eviction", "lru", "how the engines age their cache", &c.Index.LearnedEviction, choice("lru", "lfu", "fifo", "mru", "filo", "priority"), plain).atRestart(),
			dur("sweep", "120s", "", &c.Index.Sweep, time.Second, maxDuration, false)),
		group("decisions", "", leaf("keep", "10000", "records; of each event loop at least the latest", &c.Decisions.Keep, integer(0, 10000000), showInt[int]).atRestart()),
		group("log", "",
			leaf("level", "info", "debug, info, warn or error", &c.Log.Level, choice("debug", "info", "warn", "error"), plain).atRestart(),
			leaf("format", "text", "text or json", &c.Log.Format, choice("text", "json"), plain).atRestart()),
	}
}

// laterKeys are documented keys of features that this binary does not have.
func laterKeys(c *Config) []entry {
	k, x := &c.Kernel, &c.Kernel.XDP
	return []entry{
		group("kernel", "",
			leaf("mode", "auto", "auto, require, lite, passive or off", &k.Mode, choice("auto", "require", "lite", "passive", "off"), plain).atRestart(),
			leaf("rto_min", "50ms", "", &k.RTOMin, duration(time.Millisecond, time.Minute, false), showDuration),
			leaf("syn_rto", "20ms", "", &k.SynRTO, duration(time.Millisecond, time.Minute, false), showDuration),
			leaf("user_timeout", "0s", "a connection ends whose node acknowledges nothing, or takes nothing, for so long; 0s = the host's", &k.UserTimeout, duration(time.Second, time.Hour, true), showDuration),
			leaf("notsent_lowat", "0", "of a request that may lie unsent in a socket, 4KiB or more; 0 = the host's", &k.NotSentLowatBytes, lowat, showSize),
			dscpKey(&k.Mark, "the host's"),
			priorityKey(&k.Mark, "the host's"),
			leaf("node_load", "false", "read the queue and KV use that agents of nodes put into answers' segments", &k.NodeLoad, boolean, showBool).atRestart(),
			xdpKeys(x)),
		emptyList("classes", "names, shares, queue bounds, deadlines", "request classes"),
		leaf("keys_file", `""`, "API keys, hashed", &c.KeysFile, text("/etc/warmpath/keys"), quote),
		emptyList("tiers", "pools and rules", "model tiers"),
		group("discovery", "where nodes come from beside this file",
			leaf("file", `""`, "of nodes: as here, read again when it changes", &c.Discovery.File, text("/etc/warmpath/nodes.yaml"), quote).atRestart(),
			dnsNames(&c.Discovery),
			kubernetesKeys(&c.Discovery.Kubernetes),
			group("register", "nodes that register themselves on the admin side, as warmpath agent does",
				leaf("enabled", "false", "", &c.Discovery.Register.Enabled, boolean, showBool).atRestart(),
				leaf("token", `""`, "they send it as Authorization: Bearer; it opens nothing else", &c.Discovery.Register.Token, token68, quote).atRestart().hidden(),
				leaf("lease", "30s", "a node that does not renew within it leaves", &c.Discovery.Register.Lease, duration(time.Second, maxDuration, false), showDuration).atRestart())),
		scalerKeys(&c.Scaler),
	}
}

// policyParams takes the keys beside policy.name.
func policyParams(p *Policy) *extra {
	return &extra{
		set: func(key string, v item) complaint {
			value, c := scalar(v)
			if !c.none() {
				return c
			}
			if len(p.Params) >= maxPolicy {
				return complaint{"too many keys", "no policy has this many"}
			}
			if p.Params == nil {
				p.Params = map[string]any{}
			}
			p.Params[key] = value
			return complaint{}
		},
		show: func() [][2]string {
			var out [][2]string
			for _, key := range slices.Sorted(maps.Keys(p.Params)) {
				out = append(out, [2]string{key, showScalar(p.Params[key])})
			}
			return out
		},
	}
}

// pathTimeouts takes request paths and durations.
func pathTimeouts(t *Timeouts) *extra {
	read := duration(time.Second, maxDuration, true)
	return &extra{
		set: func(key string, v item) complaint {
			if _, c := route(item{kind: kindText, text: key}); !c.none() {
				return complaint{"the key is not a path", "write one such as /v1/completions"}
			}
			d, c := read(v)
			if !c.none() {
				return c
			}
			if len(t.Paths) >= maxPaths {
				return complaint{"too many paths", "use at most 256"}
			}
			if t.Paths == nil {
				t.Paths = map[string]time.Duration{}
			}
			t.Paths[key] = d
			return complaint{}
		},
		show: func() [][2]string {
			var out [][2]string
			for _, key := range slices.Sorted(maps.Keys(t.Paths)) {
				out = append(out, [2]string{key, t.Paths[key].String()})
			}
			return out
		},
	}
}

// nothing takes no keys: the feature that would read them is not there.
func nothing(feature string) *extra {
	return &extra{
		set:  func(string, item) complaint { return notAvailable(feature) },
		show: func() [][2]string { return nil },
	}
}

// zmqEndpoint reads "" or an endpoint of ZeroMQ.
func zmqEndpoint(v item) (string, complaint) {
	s, c := text("tcp://10.0.0.11:5557")(v)
	if c.none() && s != "" && !strings.HasPrefix(s, "tcp://") && !strings.HasPrefix(s, "ipc://") {
		c = complaint{"not a ZeroMQ endpoint", "write one such as tcp://10.0.0.11:5557"}
	}
	return s, c
}
