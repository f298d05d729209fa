package scaler

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"warmpath/scaler/actuate"
)

// cloud is a provider that goes wrong: calls that it carried out and did not
// answer, nodes that appear late or never come up, lists that fail or lag, nodes
// that end by themselves.
type cloud struct {
	t     *rapid.T
	nowNs int64
	next  int
	nodes []*vm
	calm  bool // nothing goes wrong any more
}

type vm struct {
	key, id  string
	bornNs   int64 // before it the provider itself knows nothing of it
	listedNs int64
	upNs     int64
	phase    actuate.Phase
	inFlight int64
	draining bool
	known    bool // to the router
}

func (c *cloud) live() (n int) {
	for _, v := range c.nodes {
		if c.nowNs >= v.bornNs && (v.phase == actuate.Pending || v.phase == actuate.Running) {
			n++
		}
	}
	return n
}

// asked finds a node that was asked for, be it made yet or not.
func (c *cloud) asked(key string) *vm {
	for _, v := range c.nodes {
		if v.key == key && v.phase != actuate.Ended {
			return v
		}
	}
	return nil
}

func (c *cloud) find(key string) *vm {
	for _, v := range c.nodes {
		if v.key == key && v.phase != actuate.Ended && c.nowNs >= v.bornNs {
			return v
		}
	}
	return nil
}

// create is idempotent by key, as the contract has it, and may not answer.
func (c *cloud) create(key string) (actuate.Instance, error) {
	if !c.calm && rapid.IntRange(0, 9).Draw(c.t, "refuse") == 0 {
		if c.find(key) == nil {
			return actuate.Instance{}, actuate.Refused(actuate.Quota, errors.New("VcpuLimitExceeded: no more"))
		}
	}
	fate := c.fate("create")
	if fate == "lost before" {
		return actuate.Instance{}, errors.New("time-out")
	}
	v := c.asked(key)
	if v == nil {
		c.next++
		v = &vm{key: key, id: fmt.Sprint("i-", c.next), phase: actuate.Pending}
		v.upNs = c.nowNs + int64(rapid.IntRange(0, 300).Draw(c.t, "up"))*1e9
		v.listedNs = c.nowNs + int64(rapid.SampledFrom([]int{0, 0, 0, 20}).Draw(c.t, "lag"))*1e9
		if fate == "late" {
			v.bornNs = c.nowNs + int64(rapid.IntRange(1, 50).Draw(c.t, "born"))*1e9
		}
		c.nodes = append(c.nodes, v)
	} else if fate != "late" {
		v.bornNs = 0 // the second request found the first
	}
	if fate == "lost after" || fate == "late" {
		return actuate.Instance{}, errors.New("time-out")
	}
	return c.instance(v), nil
}

func (c *cloud) fate(of string) string {
	if c.calm {
		return "ok"
	}
	return rapid.SampledFrom([]string{"ok", "ok", "ok", "lost before", "lost after", "late"}).Draw(c.t, of)
}

func (c *cloud) instance(v *vm) actuate.Instance {
	if v.phase == actuate.Pending && c.nowNs >= v.upNs {
		v.phase = actuate.Running
	}
	i := actuate.Instance{Key: v.key, ID: v.id, Phase: v.phase}
	if v.phase == actuate.Running {
		i.URL = "http://" + v.id
	}
	return i
}

func (c *cloud) delete(i actuate.Instance) error {
	fate := c.fate("delete")
	if fate == "lost before" {
		return errors.New("time-out")
	}
	for _, v := range c.nodes {
		if v.phase != actuate.Ended && c.nowNs >= v.bornNs && (i.ID != "" && v.id == i.ID || i.ID == "" && v.key == i.Key) {
			if v.inFlight > 0 {
				c.t.Fatalf("node %s was ended with %d requests on it", v.key, v.inFlight)
			}
			v.phase = actuate.Ended
		}
	}
	if fate == "lost after" || fate == "late" {
		return errors.New("time-out")
	}
	return nil
}

func (c *cloud) list() ([]actuate.Instance, error) {
	if !c.calm && rapid.IntRange(0, 5).Draw(c.t, "list") == 0 {
		return nil, errors.New("time-out")
	}
	var list []actuate.Instance
	for _, v := range c.nodes {
		if c.nowNs >= v.listedNs && c.nowNs >= v.bornNs && v.phase != actuate.Ended {
			list = append(list, c.instance(v))
		}
	}
	slices.SortFunc(list, func(a, b actuate.Instance) int { return len(a.ID)*1000 - len(b.ID)*1000 + cmpString(a.ID, b.ID) })
	return list, nil
}

func cmpString(a, b string) int {
	if a < b {
		return -1
	}
	return 1
}

// world is a Book, its journal, a provider and a router.
type world struct {
	t       *rapid.T
	cloud   *cloud
	book    *Book
	set     BookSettings
	journal []Record
	nowNs   int64
	offset  int64 // of the Book's clock, which begins anew with each restart
	crash   int   // effects until the process dies; below 0 = it does not
	queue   []BookEvent
}

func (w *world) now() int64 { return w.nowNs - w.offset + 1 }

// step gives the Book an event and carries out its effects, in their order, until
// the process dies.
func (w *world) step(e BookEvent) {
	for _, effect := range w.book.Step(e) {
		if w.crash == 0 {
			w.restart()
			return
		}
		if w.crash > 0 {
			w.crash--
		}
		w.carryOut(effect)
	}
}

func (w *world) carryOut(effect BookEffect) {
	switch e := effect.(type) {
	case Record:
		w.journal = append(w.journal, e)
	case CallCreate:
		i, err := w.cloud.create(e.Key)
		w.answer(Created{NowNs: w.now(), Offer: e.Offer, Key: e.Key, Instance: i, Err: err})
	case CallDelete:
		w.answer(Deleted{NowNs: w.now(), Key: e.Instance.Key, Err: w.cloud.delete(e.Instance)})
	case CallList:
		asked := w.now()
		list, err := w.cloud.list()
		w.answer(Listed{NowNs: w.now(), Offer: e.Offer, AskedNs: asked, Instances: list, Err: err})
	case DrainNode:
		if v := w.cloud.find(e.Key); v != nil && v.known {
			v.draining = !e.Back
		}
	case PublishNodes:
		published := map[string]bool{}
		for _, n := range w.book.Published() {
			published[n.Key] = true
		}
		for _, v := range w.cloud.nodes {
			if published[v.key] {
				v.known = true
			} else if v.known && v.inFlight == 0 {
				v.known, v.draining = false, false
			}
		}
	}
}

// answer comes later, perhaps twice; not at all if the process dies before.
func (w *world) answer(e BookEvent) {
	w.queue = append(w.queue, e)
	if !w.cloud.calm && rapid.IntRange(0, 9).Draw(w.t, "answer") == 0 {
		w.queue = append(w.queue, e)
	}
}

func (w *world) restart() {
	w.crash, w.queue = -1, nil
	w.offset = w.nowNs - int64(rapid.IntRange(0, 1000).Draw(w.t, "origin"))
	for _, v := range w.cloud.nodes { // requests end with the router that sent them
		v.inFlight, v.draining, v.known = 0, false, false
	}
	w.book = NewBook(w.set, w.journal)
}

// traffic moves requests: a node that the router knows and that does not drain may
// get some; those on it may end.
func (w *world) traffic() {
	for _, v := range w.cloud.nodes {
		if v.phase == actuate.Running && v.known && !v.draining && rapid.Bool().Draw(w.t, "arrive") {
			v.inFlight++
		}
		if v.inFlight > 0 && rapid.IntRange(0, 2).Draw(w.t, "end") > 0 {
			v.inFlight--
		}
	}
}

func (w *world) watch() {
	var seen []Watch
	for _, v := range w.cloud.nodes {
		if !v.known || v.phase == actuate.Ended {
			continue
		}
		phase := Starting
		switch {
		case v.draining:
			phase = Draining
		case v.phase == actuate.Running:
			phase = Ready
		}
		seen = append(seen, Watch{Key: v.key, Phase: phase, Draining: v.draining, InFlight: v.inFlight})
	}
	w.step(Watched{w.now(), seen})
}

func (w *world) advance(seconds int) {
	w.nowNs += int64(seconds) * 1e9
	w.cloud.nowNs = w.nowNs
	w.step(Elapsed{w.now()})
	for len(w.queue) > 0 {
		e := w.queue[0]
		w.queue = w.queue[1:]
		w.step(retime(e, w.now()))
	}
	w.traffic()
	w.watch()
}

// retime delivers an answer at a later time, which may lie before an earlier one's.
func retime(e BookEvent, now int64) BookEvent {
	switch e := e.(type) {
	case Created:
		e.NowNs = now
		return e
	case Deleted:
		e.NowNs = now
		return e
	}
	return e
}

// check is what holds at any time.
func (w *world) check(quota int) {
	byKey := map[string]int{}
	for _, v := range w.cloud.nodes {
		if v.phase != actuate.Ended {
			byKey[v.key]++
		}
	}
	for key, n := range byKey {
		if n > 1 {
			w.t.Fatalf("node %s exists %d times", key, n)
		}
	}
	if live := w.cloud.live(); live > quota {
		w.t.Fatalf("%d nodes live, the quota is %d", live, quota)
	}
}

// TestBookLosesNothing drives a Book, over random sequences of faults, crashes and
// orders: no node is doubled, none is ended with a request on it, the quota holds,
// and once the faults end every node that lives is owned and every one that was
// given back is gone.
func TestBookLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const quota = 6
		set := BookSettings{
			Epoch: "x", Orphans: rapid.SampledFrom([]string{"report", "adopt", "remove"}).Draw(t, "orphans"),
			StartUpSeconds: 60, Offers: []Offer{{Name: "a", Quota: quota}},
		}
		w := &world{t: t, set: set, cloud: &cloud{t: t}, crash: -1, nowNs: 1e9}
		w.cloud.nowNs = w.nowNs
		w.book = NewBook(set, nil)
		for range rapid.IntRange(5, 40).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"up", "down", "wait", "wait", "wait", "crash", "die", "jump"}).Draw(t, "what") {
			case "up":
				w.step(Ordered{NowNs: w.now(), Start: []Start{{"a", rapid.IntRange(1, 4).Draw(t, "n")}}, Why: "test"})
			case "down":
				if list := w.book.Nodes(); len(list) > 0 {
					n := rapid.SampledFrom(list).Draw(t, "victim")
					w.step(Ordered{NowNs: w.now(), Drain: []string{n.Key}, Why: "test"})
				}
			case "crash":
				w.crash = rapid.IntRange(0, 5).Draw(t, "after")
			case "die":
				for _, v := range w.cloud.nodes {
					v.phase, v.inFlight, v.known = actuate.Ended, 0, false
					break
				}
			case "jump":
				w.step(Elapsed{w.now() - int64(rapid.IntRange(0, 1e6).Draw(t, "back"))})
			}
			w.advance(rapid.IntRange(1, 40).Draw(t, "seconds"))
			w.check(quota)
		}
		w.settle(t, quota)
	})
}

// settle lets faults end: then books and provider agree.
func (w *world) settle(t *rapid.T, quota int) {
	w.cloud.calm, w.crash = true, -1
	for range 60 {
		w.advance(20)
		w.check(quota)
	}
	owned := map[string]Stage{}
	for _, n := range w.book.Nodes() {
		owned[n.Key] = n.Stage
	}
	for _, v := range w.cloud.nodes {
		if v.phase == actuate.Ended {
			continue
		}
		if _, ok := owned[v.key]; !ok {
			t.Fatalf("node %s (%s) lives and nobody knows it", v.key, v.phase)
		}
	}
	for key, stage := range owned {
		if w.cloud.find(key) == nil || stage == StageEnding || stage == StageAsked || stage == StageLeaving && w.cloud.find(key).inFlight == 0 {
			t.Fatalf("node %s is owned as %s long after", key, stage)
		}
	}
}
