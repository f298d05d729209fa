package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"warmpath/controlplane/state"
	"warmpath/dataplane/policy"
)

// together checks what no key can be checked for alone.
func (d *decoder) together(check PolicyCheck) {
	d.listeners()
	d.modelNames()
	d.nodeNames()
	d.discovering()
	d.exactness()
	d.policy(check)
	d.bounds()
	d.hedging()
	d.guarding()
	d.treating()
	d.scaling()
}

// exactness refuses halves of what only works whole.
func (d *decoder) exactness() {
	c := d.config
	half := func(key, value, what, remedy string) {
		d.refuse(key, d.places[key], quoteShort(value), complaint{what, remedy})
	}
	for i := range c.Models {
		if m := &c.Models[i]; m.ChatTemplate != "" && m.Tokenizer == "" {
			half(fmt.Sprintf("models[%d].chat_template", i), m.ChatTemplate, "a chat template serves nothing without a tokenizer", "give the model's tokenizer.json too")
		}
	}
	for i := range c.Nodes {
		n, path := &c.Nodes[i], fmt.Sprintf("nodes[%d].", i)
		d.halfOfEvents(path, &n.KVEvents)
		switch {
		case n.HashScheme == "":
		case c.Reports.Listen == "":
			half(path+"hash_scheme", n.HashScheme, "nobody can report", "set reports.listen, or remove hash_scheme")
		case n.KVEvents.Endpoint != "" || n.KVEvents.Listen != "":
			half(path+"hash_scheme", n.HashScheme, "the node's events are followed, so its reports are refused", "remove hash_scheme or kv_events")
		case n.HashScheme == state.SchemePrefix && n.PrefixTokens < state.MinPrefixTokens:
			key := path + "prefix_tokens"
			d.refuse(key, d.places[key], strconv.Itoa(n.PrefixTokens), complaint{
				"fewer tokens than an index entry has, so that no prompt would be known by them",
				fmt.Sprintf("use %d or more, here and in the reporter", state.MinPrefixTokens),
			})
		}
	}
	switch {
	case c.Reports.Listen == "" && c.Reports.TokensFile != "":
		half("reports.tokens_file", c.Reports.TokensFile, "nobody can report", "set reports.listen, or remove reports.tokens_file")
	case c.Reports.Listen != "" && c.Reports.TokensFile == "":
		half("reports.listen", c.Reports.Listen, "reports need a token for each node", "set reports.tokens_file")
	}
}

// checkPolicy is the check of the policies in this binary.
func checkPolicy(name string, params map[string]any) error {
	_, err := policy.New(name, policy.Params(params))
	return err
}

// at is the place of the first of keys that was given, and that key. Keys at
// their default have no place; a contradiction is between keys of which at
// least one was given.
func (d *decoder) at(keys ...string) (string, place) {
	for _, key := range keys {
		if p := d.places[key]; p.known() {
			return key, p
		}
	}
	return keys[0], place{file: "default", line: 0}
}

// origin says where the value of key comes from.
func (d *decoder) origin(key string) string {
	if p := d.places[key]; p.known() {
		if p.line > 0 {
			return fmt.Sprintf("line %d", p.line)
		}
		return p.file
	}
	return "default"
}

// contradiction refuses two keys whose values cannot both hold.
func (d *decoder) contradiction(key, other, what, remedy string) {
	name, at := d.at(key, other)
	second := other
	if name == other {
		second = key
	}
	e := find(schema(d.config), name)
	value := e.show()
	if e.secret {
		value = "(hidden)"
	}
	what += fmt.Sprintf(" (%s = %s, %s)", second, find(schema(d.config), second).show(), d.origin(second))
	d.refuse(name, at, value, complaint{what, remedy})
}

func (d *decoder) listeners() {
	c := d.config
	if !isLoopback(c.Admin.Listen) && c.Admin.Token == "" {
		key, at := d.at("admin.listen", "admin.token")
		d.refuse(key, at, quote(c.Admin.Listen), complaint{"the admin API would listen beyond loopback without a token", "set admin.token, or listen on 127.0.0.1"})
	}
	for _, pair := range []struct{ a, b, one, other string }{
		{c.Admin.Listen, c.Listen, "admin.listen", "listen"},
		{c.Reports.Listen, c.Listen, "reports.listen", "listen"},
		{c.Reports.Listen, c.Admin.Listen, "reports.listen", "admin.listen"},
	} {
		if pair.a == pair.b && pair.a != "" && !strings.HasSuffix(pair.a, ":0") {
			d.contradiction(pair.one, pair.other, "two listeners have the same address", "give each its own port")
		}
	}
	if isPublic(c.Reports.Listen) {
		key, at := d.at("reports.listen")
		d.refuse(key, at, quote(c.Reports.Listen), complaint{"tokens would cross a public network in plain text, so every report would be refused", "listen on loopback or on a private address, and let other nodes come through a tunnel"})
	}
}

func (d *decoder) modelNames() {
	owner, first := map[string]string{}, ""
	claim := func(key, name string, at place) {
		if other, taken := owner[name]; taken {
			d.refuse(key, at, quoteShort(name), complaint{fmt.Sprintf("the name is taken by %s (%s)", other, d.origin(other)), "give every model and alias its own name"})
			return
		}
		owner[name] = key
	}
	for i := range d.config.Models {
		m, path := &d.config.Models[i], fmt.Sprintf("models[%d]", i)
		if m.Name != "" {
			_, at := d.at(path+".name", path)
			claim(path+".name", m.Name, at)
		}
		for _, alias := range m.Aliases {
			_, at := d.at(path+".aliases", path)
			claim(path+".aliases", alias, at)
		}
		if !m.Default {
			continue
		}
		if first != "" {
			d.refuse(path+".default", d.places[path+".default"], "true", complaint{fmt.Sprintf("two models are the default; the first is %s (%s)", first, d.origin(first+".default")), "keep one default"})
			continue
		}
		first = path
	}
}

func (d *decoder) nodeNames() {
	names, urls := map[string]string{}, map[string]string{}
	for i := range d.config.Nodes {
		n, path := &d.config.Nodes[i], fmt.Sprintf("nodes[%d]", i)
		unique := func(key, value string, taken map[string]string) {
			if value == "" { // missing or refused before
				return
			}
			key = path + "." + key
			if other, ok := taken[value]; ok {
				d.refuse(key, d.places[key], quoteShort(value), complaint{fmt.Sprintf("the same as %s (%s)", other, d.origin(other)), "give every node its own, or remove one of the two"})
				return
			}
			taken[value] = key
		}
		unique("name", n.Name, names)
		unique("url", n.URL, urls)
	}
}

// policy asks the check, and shows what it says at the keys it names.
func (d *decoder) policy(check PolicyCheck) {
	p := &d.config.Policy
	err := check(p.Name, maps.Clone(p.Params))
	if err == nil {
		return
	}
	for _, err := range unwrapAll(err) {
		var pe *policy.ParamError
		if errors.As(err, &pe) {
			key, at := d.at("policy."+pe.Key, "policy")
			what, remedy := "not a value of this key of policy "+p.Name, pe.Remedy
			if rest, unknown := strings.CutPrefix(pe.Remedy, "unknown key; "); unknown {
				what, remedy = "unknown key of policy "+p.Name, rest
			}
			d.refuse(key, at, showScalar(p.Params[pe.Key]), complaint{what, remedy})
			continue
		}
		key, at := d.at("policy.name", "policy")
		c := complaint{what: err.Error()}
		if i := slices.Index(policy.Names(), p.Name); i < 0 {
			c.remedy = "use one of " + strings.Join(policy.Names(), ", ")
			c.what = "no such policy"
			if near := nearest(p.Name, policy.Names()); near != "" {
				c.remedy = "did you mean " + near + "? " + c.remedy
			}
		}
		d.refuse(key, at, quoteShort(p.Name), c)
	}
}

// bounds checks keys that bound each other.
func (d *decoder) bounds() {
	t, l, r, h := &d.config.Timeouts, &d.config.Limits, &d.config.Retry, &d.config.Health
	over := func(bad bool, key, other, what string) {
		// Against a default no one contradicted himself: the narrower bound holds.
		if bad && d.places[key].known() && d.places[other].known() {
			d.contradiction(key, other, what, "lower the one or raise the other")
		}
	}
	on := t.Request > 0
	over(on && t.Connect > t.Request, "timeouts.connect", "timeouts.request", "a part of a request may take longer than the whole")
	over(on && t.FirstEvent.Value > t.Request, "timeouts.first_event", "timeouts.request", "a part of a request may take longer than the whole")
	over(on && t.IdleStream > t.Request, "timeouts.idle_stream", "timeouts.request", "a part of a request may take longer than the whole")
	over(t.FirstEvent.Value > 0 && r.Hedge.Value >= t.FirstEvent.Value, "retry.hedge", "timeouts.first_event", "a silent request is taken elsewhere before it would be hedged")
	over(l.RetryBodyBytes > l.BodyBytes, "limits.retry_body_bytes", "limits.body_bytes", "the body kept for a retry is larger than the largest body")
	over(h.IntervalDown > h.Interval, "health.interval_down", "health.interval", "a node that is down would be probed more rarely than one that is up")
}

// hedging checks what a second try at the same time as the first needs.
func (d *decoder) hedging() {
	r := &d.config.Retry
	if r.Hedge == (AutoDuration{}) {
		return
	}
	if !r.HoldStreamHead {
		d.contradiction("retry.hedge", "retry.hold_stream_head", "the head of one node's stream would go out before it is known which node is first", "set retry.hold_stream_head to true, or retry.hedge to off")
	}
	if r.Retries == 0 {
		d.contradiction("retry.hedge", "retry.retries", "a hedge is a try after the first, and none is allowed", "set retry.retries to 1 or more, or retry.hedge to off")
	}
}
