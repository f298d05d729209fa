package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// rule is one line of the registry. open returns a fresh set of parameters at
// their defaults, and what builds the policy once they are set.
type rule struct {
	name string
	open func() ([]field, func() Policy)
}

// rules lists every policy, the default first, then those this router was
// built for, then those kept for comparison.
var rules = []rule{
	{"cost", openCost},
	{"overlap", openOverlap},
	{"prefix_hash", openPrefixHash},
	{"cache_aware", openCacheAware},
	{"sticky_least_loaded", openSticky},
	{"least_work", openLeastWork},
	{"least_requests", openLeastRequests},
	{"p2c", openP2C},
	{"session", openSession},
	{"round_robin", openRoundRobin},
	{"random", openRandom},
	{"weighted", openWeighted},
	{"lmetric", openLMetric},
	{"dynamo", openDynamo},
	{"bounded_hash", openBoundedHash},
	{"aibrix_prefix", openAIBrixPrefix},
	{"ray_prefix", openRayPrefix},
	{"loadaware", openLoadAware},
	{"least_load", openLeastLoad},
	{"affinity_filter", openAffinityFilter},
}

// Default is the name of the policy used when the configuration names none.
const Default = "cost"

// Names returns the names of all policies, the default first.
func Names() []string {
	names := make([]string, len(rules))
	for i := range rules {
		names[i] = rules[i].name
	}
	return names
}

// Keys describes the parameters of the named policy in the order of their
// declaration; nil if there is no such policy. A policy without parameters
// gives an empty slice that is not nil.
func Keys(name string) []ParamInfo {
	i := indexOf(name)
	if i < 0 {
		return nil
	}
	fields, _ := rules[i].open()
	infos := make([]ParamInfo, len(fields))
	for j := range fields {
		infos[j] = fields[j].info
	}
	return infos
}

// New builds the named policy. Every unknown key and every bad value is
// reported: errors.As finds the first *ParamError, and the joined error
// unwraps to all of them in the order of their keys.
func New(name string, params Params) (Policy, error) {
	i := indexOf(name)
	if i < 0 {
		return nil, fmt.Errorf("find policy %q: no such policy; use one of %s", name, strings.Join(Names(), ", "))
	}
	fields, build := rules[i].open()
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(params)) {
		if err := assign(name, fields, key, params[key]); err != nil {
			problems = append(problems, err)
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return build(), nil
}

// assign puts one value into the field that bears its key.
func assign(name string, fields []field, key string, value any) error {
	known := make([]string, len(fields))
	for i := range fields {
		if fields[i].info.Name != key {
			known[i] = fields[i].info.Name
			continue
		}
		if fields[i].set(value) {
			return nil
		}
		return &ParamError{Policy: name, Key: key, Value: value, Remedy: "use " + fields[i].info.Want()}
	}
	remedy := "unknown key; remove it: the policy takes no parameters"
	if len(known) > 0 {
		remedy = "unknown key; use one of " + strings.Join(known, ", ")
	}
	return &ParamError{Policy: name, Key: key, Value: value, Remedy: remedy}
}

func indexOf(name string) int {
	return slices.IndexFunc(rules, func(r rule) bool { return r.name == name })
}
