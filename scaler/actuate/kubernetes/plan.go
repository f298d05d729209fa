package kubernetes

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"warmpath/scaler/actuate"
)

// step is the next thing to do. With none of it, all is done that can be.
type step struct {
	scale int           // replicas to ask for, -1 = none
	end   *pod          // to delete
	mark  *pod          // to give the lowest cost
	note  *pod          // to annotate with key
	key   string        // of note
	wait  time.Duration // until the next step can be taken
	stuck string        // what must change first, and not by us
}

// planner holds what the plan needs besides the cluster's state.
type planner struct {
	fleet string
	now   time.Time
	since map[types.UID]time.Time // when a pod was first seen with its cost
	sure  bool                    // no write of the scale can be on its way
	skip  map[types.UID]bool      // pods that cannot be annotated
}

// tidy returns what the record shall be for what is seen; nil if there is none and none
// is needed.
func (p *planner) tidy(v *view) *record {
	r := v.rec.clone()
	if r == nil {
		if r = p.recovered(v); r == nil {
			return nil
		}
	}
	was := r.target()
	switch {
	case v.work.replicas > max(was, r.Most): // somebody asked for more
		r.Baseline += v.work.replicas - was
	case v.work.replicas < was && len(r.Nodes) == 0: // or for less, and there is no node to take it from
		r.Baseline = v.work.replicas
	}
	p.part(v, r)
	p.adopt(v, r)
	p.leave(v, r)
	return r
}

// retarget notes which replicas a write may leave, if the record asks for others than
// before.
func (p *planner) retarget(v *view, r *record) {
	switch {
	case v.rec == nil:
		r.Most = max(r.Most, v.work.replicas)
	case r.target() != v.rec.target():
		was := v.rec.target()
		most := max(was, v.work.replicas)
		if !p.sure || v.work.replicas != was {
			most = max(most, v.rec.Most)
		}
		r.Most = most
	}
}

// fresh is the record of a fleet that has no node yet.
func (p *planner) fresh(v *view) *record {
	r := &record{Fleet: p.fleet, Workload: v.work.uid, Baseline: v.work.replicas, Most: v.work.replicas}
	p.free(v, r)
	return r
}

// recovered is a record made of what the pods carry; nil if they carry nothing.
func (p *planner) recovered(v *view) *record {
	r := p.fresh(v)
	r.Own = nil
	for i := range v.pods {
		key := v.pods[i].Annotations[keyAnnotation]
		if !v.pods[i].active() || v.pods[i].Annotations[fleetAnnotation] != p.fleet || actuate.CheckKey(key) != nil || r.find(key) != nil || len(r.Nodes) == MaxNodes {
			continue
		}
		r.Nodes = append(r.Nodes, node{Key: key, Pod: v.pods[i].Name, UID: v.pods[i].UID})
	}
	if len(r.Nodes) == 0 {
		return nil
	}
	r.Baseline = max(v.work.replicas-len(r.Nodes), 0)
	return r
}

// part takes nodes and the pods apart that they have no more. A node that left is
// forgotten with its pod.
func (p *planner) part(v *view, r *record) {
	kept := r.Nodes[:0]
	for _, n := range r.Nodes {
		pod := v.find(n.UID)
		if n.Stage == leaving && (pod == nil || pod.over()) {
			continue
		}
		if n.Stage == wanted && (pod == nil || !pod.active()) {
			n.Pod, n.UID = "", ""
		}
		kept = append(kept, n)
	}
	r.Nodes = kept
}

// free makes the baseline whole, which comes before nodes, and returns the pods that are
// nobody's, the oldest first.
func (p *planner) free(v *view, r *record) (free []pod) {
	r.Own = slices.DeleteFunc(r.Own, func(uid types.UID) bool {
		pod := v.find(uid)
		return pod == nil || !pod.active()
	})
	r.Own = r.Own[:min(len(r.Own), r.Baseline)]
	taken := map[types.UID]bool{}
	for _, n := range r.Nodes {
		taken[n.UID] = true
	}
	for _, uid := range r.Own {
		taken[uid] = true
	}
	for _, pod := range v.pods {
		if pod.active() && !taken[pod.UID] {
			free = append(free, pod)
		}
	}
	more := min(r.Baseline-len(r.Own), len(free))
	for _, pod := range free[:min(more, MaxNodes-len(r.Own))] {
		r.Own = append(r.Own, pod.UID)
	}
	return free[more:]
}

// adopt gives pods to nodes that have none.
func (p *planner) adopt(v *view, r *record) {
	free := p.free(v, r)
	give := func(n *node) {
		n.Pod, n.UID = free[0].Name, free[0].UID
		free = free[1:]
	}
	for i := range r.Nodes {
		if n := &r.Nodes[i]; n.Stage == wanted && n.UID == "" && len(free) > 0 {
			give(n)
		}
	}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		if n.Stage != ending {
			continue
		}
		// In place of a pod that went by itself the cluster made another. If that is ready
		// already, a lowering would take any.
		if pod := v.find(n.UID); (pod == nil || !pod.active()) && len(free) > 0 && free[0].ready() {
			give(n)
		}
	}
}

// leave moves nodes on whose replicas need no longer be asked for: with the next
// lowering goes their pod.
func (p *planner) leave(v *view, r *record) {
	if v.rollout {
		return
	}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		if n.Stage != ending {
			continue
		}
		pod := v.find(n.UID)
		switch {
		case v.work.kind == StatefulSet:
			if v.canEnd(n) {
				n.Stage = leaving
			}
		case pod == nil || !pod.active():
			n.Stage = leaving
		case pod.cost() == lowestCost && p.settles(pod.UID) <= 0 && p.outranked(v, r, pod) == nil:
			n.Stage = leaving
		}
	}
	p.part(v, r) // those that left without a pod
}

// last is the ordinal that a StatefulSet ends first.
func (w *workload) last() int { return w.first + w.replicas - 1 }

// canEnd reports whether the workload, lowered by one, ends that node and no other.
func (v *view) canEnd(n *node) bool {
	if v.work.kind != StatefulSet {
		return true
	}
	i := slices.IndexFunc(v.pods, func(p pod) bool { return p.active() && p.ordinal() == v.work.last() })
	if i < 0 {
		p := v.find(n.UID)
		return p == nil || !p.active()
	}
	return v.pods[i].UID == n.UID
}

// settles is how long the controller still gets to see a pod's cost.
func (p *planner) settles(uid types.UID) time.Duration {
	since, seen := p.since[uid]
	if !seen {
		return costSettles
	}
	return costSettles - p.now.Sub(since)
}

// outranked returns a pod that might be ended before the one given although that has
// the lowest cost, nil if there is none.
func (p *planner) outranked(v *view, r *record, victim *pod) *pod {
	doomed := map[types.UID]bool{}
	for _, n := range r.Nodes {
		doomed[n.UID] = n.Stage != wanted
	}
	for i := range v.pods {
		if q := &v.pods[i]; q.active() && !doomed[q.UID] && !victim.endsBefore(*q) {
			return q
		}
	}
	return nil
}

// next returns what to do for a record that is tidy.
func (p *planner) next(v *view) step {
	s := step{scale: -1}
	r, target := v.rec, v.rec.target()
	switch {
	case v.work.replicas > target && v.rollout:
		s.stuck = "a rollout is under way, and a lowering would be shared out between its revisions: finish it or roll it back"
	case v.work.replicas != target:
		if pod := p.inTheWay(v); pod != nil {
			return step{scale: -1, end: pod}
		}
		return step{scale: target}
	}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		pod := v.find(n.UID)
		if pod == nil || !pod.active() {
			continue
		}
		if (pod.Annotations[keyAnnotation] != n.Key || pod.Annotations[fleetAnnotation] != p.fleet) && !p.skip[pod.UID] {
			return step{scale: -1, note: pod, key: n.Key}
		}
		switch n.Stage {
		case ending:
			if next := p.nextEnding(v, pod); next.end != nil || next.mark != nil {
				return next
			} else if s.stuck == "" && (s.wait == 0 || next.stuck != "") {
				s.stuck, s.wait = next.stuck, next.wait
			}
		case leaving:
			// The lowering has taken another, or none. What is ended now is made up for by
			// the controller if it has too few then.
			if v.work.replicas == target && v.active() <= target {
				return step{scale: -1, end: pod}
			}
		}
	}
	return s
}

// inTheWay returns a pod that may go and that a lowering would spare for one that may not,
// nil if there is none. Where one is ended by itself, the controller makes another, which
// is neither placed nor ready and so goes first.
func (p *planner) inTheWay(v *view) *pod {
	if target := v.rec.target(); v.work.kind == StatefulSet || v.work.replicas <= target || v.active() <= target {
		return nil
	}
	stages := map[types.UID]stage{}
	for _, uid := range v.rec.Own {
		stages[uid] = wanted
	}
	for _, n := range v.rec.Nodes {
		stages[n.UID] = n.Stage
	}
	for i := range v.pods {
		may := &v.pods[i]
		stage, known := stages[may.UID]
		if !may.active() || known && stage != leaving {
			continue
		}
		for _, q := range v.pods {
			stage, ours := stages[q.UID]
			if !q.active() || !ours || stage != wanted {
				continue
			}
			class := may.class(q)
			if class > 0 || class == 0 && (known && may.cost() >= q.cost() || !known && q.ready()) {
				return may
			}
		}
	}
	return nil
}

// nextEnding returns what to do for a pod that shall end and whose replica still counts.
func (p *planner) nextEnding(v *view, pod *pod) step {
	switch {
	case v.work.kind == StatefulSet:
		return step{scale: -1, stuck: fmt.Sprintf("a StatefulSet ends ordinal %d first", v.work.last())}
	case v.rollout:
		return step{scale: -1, stuck: "a rollout is under way, and a lowering would be shared out between its revisions: finish it or roll it back"}
	case p.outranked(v, v.rec, pod) != nil:
		return step{scale: -1, end: pod}
	case pod.cost() != lowestCost:
		return step{scale: -1, mark: pod}
	}
	return step{scale: -1, wait: max(p.settles(pod.UID), time.Millisecond)}
}
