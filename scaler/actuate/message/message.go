package message

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"warmpath/scaler/actuate"
)

// Limits of what an answer may hold.
const (
	MaxBytes       = 1 << 20 // of an answer
	MaxIDBytes     = 1024
	MaxURLBytes    = 2048
	MaxDetailBytes = 4096 // beyond it a detail or message is cut
)

// The actions of a request.
const (
	Create = "create"
	Delete = "delete"
	List   = "list"
)

// Request is what a provider is asked.
type Request struct {
	Action   string            `json:"action"`
	Fleet    string            `json:"fleet"`
	Key      string            `json:"key,omitempty"`
	Model    string            `json:"model,omitempty"`
	ID       string            `json:"id,omitempty"`
	Callback string            `json:"callback,omitempty"` // where the provider may tell of a node
	Settings map[string]string `json:"settings,omitempty"` // as configured; the provider's own
}

// Bytes is the request as it is sent, on one line.
func (r *Request) Bytes() []byte {
	text, err := json.Marshal(r)
	if err != nil {
		panic("BUG: a request of strings has no JSON: " + err.Error())
	}
	return append(text, '\n')
}

// Node is a node as its provider tells of it.
type Node struct {
	actuate.Instance
	// Sequence grows with each change of the node. It tells which of two that come out
	// of order was said last.
	Sequence uint64
	Ordered  bool // it has a sequence
}

// Answer reads the answer to a request. A *actuate.Refusal is what the provider
// refused; any other error says what is wrong with the answer, and whether anything was done
// is unknown.
func (r *Request) Answer(data []byte) ([]Node, error) {
	nodes, refused, err := parseAnswer(data)
	if err == nil && refused == nil {
		err = r.check(nodes)
	}
	if err != nil {
		return nil, fmt.Errorf("answer to %s: %w", r.Action, err)
	}
	return nodes, refused
}

// check checks that nodes can be an answer.
func (r *Request) check(nodes []Node) error {
	keys, ids := map[string]int{}, map[string]int{}
	for i, n := range nodes {
		if was, twice := keys[n.Key]; twice && n.Key != "" {
			return fmt.Errorf("nodes[%d] and nodes[%d] have the same key %q: a key names one node for ever", was, i, n.Key)
		}
		if was, twice := ids[n.ID]; twice && n.ID != "" {
			return fmt.Errorf("nodes[%d] and nodes[%d] have the same id %q", was, i, n.ID)
		}
		keys[n.Key], ids[n.ID] = i, i
	}
	switch {
	case r.Action == List:
	case len(nodes) == 0 && r.Action == Create:
		return errors.New("nodes is empty: want the node that was made, or that has the key")
	case len(nodes) > 1:
		return fmt.Errorf("%d nodes: want one", len(nodes))
	case len(nodes) == 1 && r.Key != "" && nodes[0].Key != r.Key:
		return fmt.Errorf("nodes[0].key is %q: want %q, which was asked for", nodes[0].Key, r.Key)
	case len(nodes) == 1 && r.Key == "" && nodes[0].ID != r.ID:
		return fmt.Errorf("nodes[0].id is %q: want %q, which was asked for", nodes[0].ID, r.ID)
	}
	return nil
}

// parseAnswer reads the shape of an answer.
func parseAnswer(data []byte) (nodes []Node, refused, err error) {
	has := ""
	one := func(name string) error {
		if has != "" {
			return fmt.Errorf("it has %q and %q: want one of them", has, name)
		}
		has = name
		return nil
	}
	err = object(data, "", fields{
		"nodes": func(value json.RawMessage, at string) error {
			if err := one("nodes"); err != nil {
				return err
			}
			return list(value, at, func(value json.RawMessage, at string) error {
				n, err := parseNode(value, at)
				nodes = append(nodes, n)
				return err
			})
		},
		"refused": func(value json.RawMessage, at string) error {
			if err := one("refused"); err != nil {
				return err
			}
			refused, err = parseRefused(value, at)
			return err
		},
	})
	if err == nil && has == "" {
		err = errors.New(`it has neither "nodes" nor "refused"`)
	}
	return nodes, refused, err
}

func parseRefused(data json.RawMessage, at string) (refused, err error) {
	var reason, message string
	err = object(data, at, fields{"reason": text(&reason), "message": text(&message)})
	if err != nil {
		return nil, err
	}
	for _, r := range []actuate.Reason{actuate.Settings, actuate.Credential, actuate.Quota, actuate.Capacity} {
		if reason == r.String() {
			if message == "" {
				message = "the provider does not say more"
			}
			return actuate.Refused(r, errors.New(Cut(message, MaxDetailBytes))), nil
		}
	}
	return nil, fmt.Errorf("%s.reason is %q: use settings, credential, quota or capacity", at, reason)
}

// ParseNode reads what a provider tells of one node by itself, with names besides those
// of a node's.
func ParseNode(data []byte, besides map[string]*string) (Node, error) {
	return parseNodeWith(data, "", besides)
}

func parseNode(data json.RawMessage, at string) (Node, error) {
	return parseNodeWith(data, at, nil)
}

func parseNodeWith(data json.RawMessage, at string, besides map[string]*string) (Node, error) {
	var n Node
	var phase, since string
	names := fields{
		"key": text(&n.Key), "id": text(&n.ID), "phase": text(&phase), "url": text(&n.URL), "detail": text(&n.Detail), "since": text(&since),
		"sequence": func(value json.RawMessage, at string) error {
			n.Ordered = true
			if err := json.Unmarshal(value, &n.Sequence); err != nil || string(value) == "null" {
				return fmt.Errorf("%s is %s: want a whole number from 0", at, short(value))
			}
			return nil
		},
	}
	for name, to := range besides {
		names[name] = text(to)
	}
	if err := object(data, at, names); err != nil {
		return Node{}, err
	}
	return n, n.finish(phase, since, at)
}

// finish checks a node and turns its texts into what they mean.
func (n *Node) finish(phase, since, at string) error {
	known := false
	for _, p := range []actuate.Phase{actuate.Pending, actuate.Running, actuate.Ending, actuate.Ended} {
		if phase == p.String() {
			n.Phase, known = p, true
		}
	}
	switch {
	case !known:
		return fmt.Errorf("%s is %q: use pending, running, ending or ended", under(at, "phase"), phase)
	case n.ID == "" && n.Phase != actuate.Ended:
		return fmt.Errorf("%s is missing: it is how the node is told from others", under(at, "id"))
	case len(n.ID) > MaxIDBytes:
		return fmt.Errorf("%s has %d bytes: use at most %d", under(at, "id"), len(n.ID), MaxIDBytes)
	case n.ID == "" && n.Key == "":
		return fmt.Errorf("%s is missing, and so is its id", under(at, "key"))
	}
	if n.Key != "" {
		if err := actuate.CheckKey(n.Key); err != nil {
			return fmt.Errorf("%s: %w", under(at, "key"), err)
		}
	}
	if n.URL != "" {
		if err := checkURL(n.URL); err != nil {
			return fmt.Errorf("%s: %w", under(at, "url"), err)
		}
	}
	if since != "" {
		t, err := time.Parse(time.RFC3339, since)
		if err != nil {
			return fmt.Errorf("%s is %q: write it as 2006-01-02T15:04:05Z", under(at, "since"), Cut(since, 64))
		}
		n.Since = t
	}
	n.Detail = Cut(n.Detail, MaxDetailBytes)
	return nil
}

func checkURL(s string) error {
	if len(s) > MaxURLBytes {
		return fmt.Errorf("it has %d bytes: use at most %d", len(s), MaxURLBytes)
	}
	u, err := url.Parse(s)
	if err != nil {
		return err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return fmt.Errorf("%q: use http://host:port", s)
	}
	return nil
}

// Cut returns s, its end cut off so that it has at most so many bytes, with no half
// characters in it.
func Cut(s string, most int) string {
	if len(s) <= most {
		return strings.ToValidUTF8(s, "�")
	}
	return strings.ToValidUTF8(strings.ToValidUTF8(s[:most], ""), "�") + "…"
}

// CheckSettings bounds what is handed through in each request.
func CheckSettings(settings map[string]string) error {
	const most = 32 << 10
	size := 0
	for name, value := range settings {
		size += len(name) + len(value)
	}
	if size > most {
		return fmt.Errorf("settings have %d bytes: use at most %d", size, most)
	}
	return nil
}

// Instances are the nodes without what only their order is known by.
func Instances(nodes []Node) []actuate.Instance {
	all := make([]actuate.Instance, 0, len(nodes))
	for n := range slices.Values(nodes) {
		all = append(all, n.Instance)
	}
	return all
}
