package kubernetes

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"warmpath/scaler/actuate"
)

// Names of what is written down in the cluster.
const (
	domain          = "warmpath.dev/"
	fleetAnnotation = domain + "fleet" // of a node's pod
	keyAnnotation   = domain + "key"   // of a node's pod
	recordKey       = "record"         // in the ConfigMap's data
)

// stage is how far a node's end is.
type stage string

const (
	wanted  stage = ""        // a replica is for it
	ending  stage = "ending"  // it was told to end; its replica is still asked for
	leaving stage = "leaving" // its replica is no longer asked for; its pod may still be there
)

// node is one key and the pod that has it.
type node struct {
	Key   string    `json:"key"`
	Stage stage     `json:"stage,omitempty"`
	Pod   string    `json:"pod,omitempty"` // its name; "" = none yet
	UID   types.UID `json:"uid,omitempty"` // the pod's
}

// record is what the ConfigMap keeps.
type record struct {
	Fleet    string    `json:"fleet"`
	Workload types.UID `json:"workload"` // another one of its name has other pods
	Baseline int       `json:"baseline"` // replicas that are the user's
	// Own are the pods of the baseline, as far as there are: times of creation are in
	// full seconds, which does not tell them from the first nodes'.
	Own []types.UID `json:"own,omitempty"`
	// Most is the most replicas that a write of ours may have left, or may yet, being
	// still on its way. More than that somebody else asked for.
	Most  int    `json:"most"`
	Nodes []node `json:"nodes"`
}

// target is how many replicas there shall be.
func (r *record) target() int {
	n := r.Baseline
	for i := range r.Nodes {
		if r.Nodes[i].Stage != leaving {
			n++
		}
	}
	return n
}

func (r *record) find(key string) *node {
	for i := range r.Nodes {
		if r.Nodes[i].Key == key {
			return &r.Nodes[i]
		}
	}
	return nil
}

func (r *record) drop(key string) {
	r.Nodes = slices.DeleteFunc(r.Nodes, func(n node) bool { return n.Key == key })
}

// clone shares nothing with r; nil stays nil.
func (r *record) clone() *record {
	if r == nil {
		return nil
	}
	c := *r
	c.Nodes, c.Own = slices.Clone(r.Nodes), slices.Clone(r.Own)
	return &c
}

// equal reports whether two records say the same.
func (r *record) equal(o *record) bool {
	if r == nil || o == nil {
		return r == o
	}
	return r.Fleet == o.Fleet && r.Workload == o.Workload && r.Baseline == o.Baseline && r.Most == o.Most &&
		slices.Equal(r.Nodes, o.Nodes) && slices.Equal(r.Own, o.Own)
}

// recordName names the ConfigMap: as the workload, or by a hash of that if it would not
// fit the 253 bytes of a name.
func recordName(kind, workload string) string {
	const most = 253
	name := "warmpath-" + kind + "-" + workload
	if len(name) > most {
		name = fmt.Sprintf("warmpath-%s-%x", kind, sha256.Sum256([]byte(workload)))
	}
	return name
}

func (r *record) encode() (string, error) {
	data, err := json.Marshal(r)
	return string(data), err
}

// decodeRecord reads a record and checks what people may have written into it.
func decodeRecord(text string) (*record, error) {
	r := &record{}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		return nil, err
	}
	switch {
	case r.Baseline < 0:
		return nil, fmt.Errorf("baseline %d: use 0 or more", r.Baseline)
	case len(r.Nodes) > MaxNodes || len(r.Own) > MaxNodes:
		return nil, fmt.Errorf("%d nodes and %d own pods: at most %d of each fit", len(r.Nodes), len(r.Own), MaxNodes)
	}
	keys, pods := map[string]bool{}, map[types.UID]bool{}
	for _, n := range r.Nodes {
		if err := actuate.CheckKey(n.Key); err != nil {
			return nil, err
		}
		switch {
		case keys[n.Key]:
			return nil, fmt.Errorf("key %q stands twice", n.Key)
		case n.UID != "" && pods[n.UID]:
			return nil, fmt.Errorf("pod %q has two keys", n.Pod)
		case n.Stage != wanted && n.Stage != ending && n.Stage != leaving:
			return nil, fmt.Errorf("stage %q of key %q is not known", n.Stage, n.Key)
		case (n.UID == "") != (n.Pod == ""):
			return nil, errors.New("key " + n.Key + ": pod and uid go together")
		}
		keys[n.Key], pods[n.UID] = true, true
	}
	return r, nil
}
