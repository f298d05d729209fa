package scaler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
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
	more  bool // more goes wrong than the contract of List allows, and nodes come in halves
	twice bool // a Create that is asked again may make another node
	past  map[string]snapshot
}

// snapshot is a list that was true once.
type snapshot struct {
	nowNs int64
	list  []actuate.Instance
}

type vm struct {
	key, id  string
	bornNs   int64 // before it the provider itself knows nothing of it
	listedNs int64
	upNs     int64
	phase    actuate.Phase
	inFlight int64
	draining bool
	known    bool  // to the router
	sickNs   int64 // since when the router finds it down; 0 = it does not
	endsNs   int64 // its provider takes it back then; 0 = it does not
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
	if v == nil || c.twice && !c.calm && rapid.IntRange(0, 3).Draw(c.t, "double") == 0 {
		c.next++
		v = &vm{key: key, id: fmt.Sprint("i-", c.next), phase: actuate.Pending}
		v.upNs = c.nowNs + int64(rapid.IntRange(0, 300).Draw(c.t, "up"))*1e9
		v.listedNs = c.nowNs + int64(rapid.SampledFrom([]int{0, 0, 0, 20}).Draw(c.t, "lag"))*1e9
		if fate == "half" {
			v.upNs = 1 << 62 // no engine ever comes up
		}
		if fate == "late" {
			v.bornNs = c.nowNs + int64(rapid.IntRange(1, 50).Draw(c.t, "born"))*1e9
		}
		c.nodes = append(c.nodes, v)
	} else if fate != "late" {
		v.bornNs = 0 // the second request found the first
	}
	if fate == "lost after" || fate == "late" || fate == "half" {
		return actuate.Instance{}, errors.New("time-out")
	}
	return c.instance(v), nil
}

func (c *cloud) fate(of string) string {
	if c.calm {
		return "ok"
	}
	fates := []string{"ok", "ok", "ok", "lost before", "lost after", "late", "half"}
	if !c.more {
		fates = fates[:6]
	}
	return rapid.SampledFrom(fates).Draw(c.t, of)
}

func (c *cloud) instance(v *vm) actuate.Instance {
	if v.phase == actuate.Pending && c.nowNs >= v.upNs {
		v.phase = actuate.Running
	}
	if v.endsNs != 0 && v.phase == actuate.Running {
		v.phase = actuate.Ending
	}
	i := actuate.Instance{Key: v.key, ID: v.id, Phase: v.phase}
	if v.phase == actuate.Running || v.phase == actuate.Ending {
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
	if fate != "ok" {
		return errors.New("time-out")
	}
	return nil
}

// list is what there is at an offer, whose name all keys begin with: at worst what there
// was a moment ago, or one node twice.
func (c *cloud) list(offer string) ([]actuate.Instance, error) {
	how := 1
	if !c.calm {
		how = rapid.IntRange(0, 5).Draw(c.t, "list")
	}
	if how == 0 {
		return nil, errors.New("time-out")
	}
	if was := c.past[offer]; how == 5 && c.more && !c.twice && was.nowNs != 0 && c.nowNs-was.nowNs <= 20e9 {
		return was.list, nil
	}
	var list []actuate.Instance
	for _, v := range c.nodes {
		if !strings.HasPrefix(v.key, offer+"-") {
			continue
		}
		if c.twice {
			v.listedNs = 0
		}
		if c.nowNs >= v.listedNs && c.nowNs >= v.bornNs && v.phase != actuate.Ended {
			list = append(list, c.instance(v))
		}
	}
	slices.SortFunc(list, func(a, b actuate.Instance) int { return len(a.ID)*1000 - len(b.ID)*1000 + cmpString(a.ID, b.ID) })
	if how == 4 && c.more && len(list) > 0 {
		list = append(list, list[0])
	}
	if c.more {
		c.past[offer] = snapshot{c.nowNs, list}
	}
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
	deaf    bool   // the router cannot be asked
	died    func() // called after each restart; nil = nothing
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
		w.answer(Deleted{NowNs: w.now(), Offer: e.Offer, Key: e.Instance.Key, ID: e.Instance.ID, Err: w.cloud.delete(e.Instance)})
	case CallList:
		asked := w.now()
		list, err := w.cloud.list(e.Offer)
		w.answer(Listed{NowNs: w.now(), Offer: e.Offer, AskedNs: asked, Instances: list, Err: err})
	case DrainNode:
		for _, v := range w.cloud.nodes {
			if v.key == e.Key && v.known {
				v.draining = !e.Back
			}
		}
	case PublishNodes:
		published := map[string]string{}
		for _, n := range w.book.Published() {
			published[n.Key] = n.URL
		}
		for _, v := range w.cloud.nodes {
			// What is on it goes on; nothing new is sent.
			v.known = published[v.key] == "http://"+v.id
			v.draining = v.draining && v.known
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
	if w.died != nil {
		w.died()
	}
}

// traffic moves requests: a node that the router knows and that does not drain may
// get some; those on it may end.
func (w *world) traffic() {
	for _, v := range w.cloud.nodes {
		if v.endsNs != 0 && w.nowNs >= v.endsNs { // with all that is on it
			v.phase, v.inFlight = actuate.Ended, 0
		}
		up := v.phase == actuate.Running || v.phase == actuate.Ending
		if up && v.known && !v.draining && v.sickNs == 0 && rapid.Bool().Draw(w.t, "arrive") {
			v.inFlight++
		}
		if v.inFlight > 0 && rapid.IntRange(0, 2).Draw(w.t, "end") > 0 {
			v.inFlight--
		}
	}
}

// watched is what the router finds it to be.
func (v *vm) watched() Phase {
	switch {
	case v.sickNs != 0 || v.phase == actuate.Ended:
		return Down
	case v.draining:
		return Draining
	case v.phase == actuate.Pending:
		return Starting
	}
	return Ready
}

func (w *world) watch() {
	if w.deaf {
		return
	}
	var seen []Watch
	for _, v := range w.cloud.nodes {
		if !v.known {
			continue
		}
		seen = append(seen, Watch{Key: v.key, Phase: v.watched(), Draining: v.draining, InFlight: v.inFlight})
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
