package state

import "slices"

// ExpectSeen says which nodes are on their way, whole each time: requests that no
// node takes now wait for them in the router, instead of being refused. Whoever
// makes nodes sends it, as soon as it would make one for the next request, and
// until the node is ready: a node that has joined but is still loading is on its
// way too. Nobody checks that it comes; the router bounds who waits and for how
// long.
type ExpectSeen struct {
	NowNs  int64
	Models []string // names or aliases; those beyond MaxModels are dropped
	Any    bool     // nodes of which is not known what they will serve
}

func (e ExpectSeen) at() int64 { return e.NowNs }

// Expected is which nodes are on their way.
type Expected struct {
	Models []string // ascending
	Any    bool
}

// expectSeen publishes at once what has changed: a request may come any moment.
func (t *step) expectSeen(e ExpectSeen) {
	models := slices.DeleteFunc(slices.Clone(e.Models), func(name string) bool { return name == "" })
	slices.Sort(models)
	models = slices.Compact(models)
	models = models[:min(len(models), MaxModels)]
	was := &t.s.Expected
	if was.Any == e.Any && slices.Equal(was.Models, models) {
		return
	}
	t.s.Expected, t.publish = Expected{models, e.Any}, true
}
