package agent

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"warmpath/controlplane/kvevent"
	"warmpath/controlplane/report/message"
	"warmpath/dataplane/index"
)

func newTestCore(routers int) *Core {
	epochs := 0
	return NewCore(CoreOptions{
		WorkerID: "gpu", Model: "m", Ranks: 2, Routers: routers, MaxBlocks: 1 << 16, QueueMost: 200, PartMost: 4,
		Epoch: func() string { epochs++; return fmt.Sprint("e", epochs) }, Jitter: rand.New(rand.NewPCG(1, 2)),
	})
}

// stored is a run of n blocks of one token, named from first on.
func stored(first uint64, n int) *kvevent.Batch {
	e := kvevent.Event{Kind: kvevent.Stored, BlockTokens: 1, Group: kvevent.NotSaid}
	for i := range n {
		e.Hashes, e.Tokens = append(e.Hashes, first+uint64(i)), append(e.Tokens, uint32(i))
	}
	return &kvevent.Batch{Events: []kvevent.Event{e}}
}

// drain answers all that a router has to be told, in order, and says what it
// was.
func drain(t *testing.T, c *Core, router int) (told []string) {
	t.Helper()
	for {
		out, _ := c.Next(router, 1<<60)
		if out == nil {
			return told
		}
		r := &out.Report
		line := fmt.Sprintf("%d %s %d %s %s", r.Rank, r.Epoch, r.Seq, r.Tier, r.Route)
		switch {
		case r.Parts > 1:
			line += fmt.Sprintf(" full %d of %d: %d", r.Part, r.Parts, r.Active.Len())
		case r.Full:
			line += fmt.Sprintf(" full: %d", r.Active.Len())
		case r.HasDigest:
			line += fmt.Sprintf(" digest of %d", r.Digest.Count)
		default:
			line += fmt.Sprintf(" %d", len(r.Blocks)+r.Evicted.Len())
		}
		told = append(told, line)
		seq := r.Seq
		if r.Part < r.Parts {
			seq--
		}
		c.Answered(router, out, &message.Answer{Seq: seq})
		if len(told) > 100 {
			t.Fatal("no end of it")
		}
	}
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s:\ngot  %q\nwant %q", what, got, want)
	}
}

func TestCore(t *testing.T) {
	c := newTestCore(1)
	want(t, "begin", drain(t, c, 0), "0 e1 1 device sync full: 0", "1 e2 1 device sync full: 0")
	want(t, "nothing", drain(t, c, 0))
	c.Events(0, stored(1, 5))
	want(t, "before the flush", drain(t, c, 0))
	c.Flush()
	want(t, "flush", drain(t, c, 0), "0 e1 2 device stored 5")
	c.Digests()
	want(t, "digests", drain(t, c, 0), "0 e1 3 device sync digest of 5", "1 e2 2 device sync digest of 0")
	c.Digests()
	c.Events(1, stored(1, 1))
	c.Digests()
	want(t, "the latest digests only", drain(t, c, 0), "1 e2 3 device stored 1", "0 e1 4 device sync digest of 5", "1 e2 4 device sync digest of 1")
	c.Events(0, &kvevent.Batch{Events: []kvevent.Event{{Kind: kvevent.Removed, Hashes: []uint64{5}}}})
	c.Void(0)
	c.Events(0, stored(1, 9))
	c.Flush()
	want(t, "void, in parts", drain(t, c, 0), "0 e1 5 device sync full 1 of 3: 4", "0 e1 5 device sync full 2 of 3: 4", "0 e1 5 device sync full 3 of 3: 1")
	c.Restarted(0)
	want(t, "restart", drain(t, c, 0), "0 e3 1 device sync full: 0")
	c.Quiet(1, true)
	c.Digests()
	want(t, "quiet", drain(t, c, 0), "0 e3 2 device sync digest of 0")
}

// A router that is away costs a bounded queue, then a full sync; the other one
// does not notice.
func TestRouterAway(t *testing.T) {
	c := newTestCore(2)
	drain(t, c, 0)
	drain(t, c, 1)
	for i := range 40 {
		c.Events(0, stored(uint64(10*i)+1, 2))
		c.Flush()
		drain(t, c, 1)
		if w := c.links[0].weight; w > 200 {
			t.Fatalf("%d wait", w)
		}
	}
	if n := c.links[0].counts.Collapses; n != 1 {
		t.Errorf("%d collapses", n)
	}
	told := drain(t, c, 0)
	if len(told) != 21 || told[0] != "0 e1 2 device sync full 1 of 20: 4" || told[20] != "1 e2 2 device sync full: 0" {
		t.Errorf("%q", told)
	}
	if s := c.Status(); s.Live != 80 || s.Cache.Stored != 80 || s.Routers[1].Collapses != 0 {
		t.Errorf("%+v", s)
	}
}

// A report is sent until it is answered, ever more rarely, and with the same
// content and seq.
func TestRetry(t *testing.T) {
	c := newTestCore(1)
	drain(t, c, 0)
	c.Events(0, stored(1, 3))
	c.Flush()
	first, _ := c.Next(0, 0)
	now, last := int64(0), int64(0)
	for range 12 {
		c.Failed(0, first, Unanswered, now)
		out, wait := c.Next(0, now)
		if out != nil || wait <= last/8 || wait > int64(backoffMost)*3/2 {
			t.Fatalf("again at once, or after %v", time.Duration(wait))
		}
		last = wait
		now += wait
		if out, _ = c.Next(0, now); out != first {
			t.Fatal("another report")
		}
	}
	c.Answered(0, first, &message.Answer{Seq: first.Report.Seq})
	if out, wait := c.Next(0, now); out != nil || wait != 0 {
		t.Errorf("%v %v", out, wait)
	}
	// What is refused is not repeated: all is told anew, after a while.
	c.Events(0, stored(11, 3))
	c.Flush()
	out, _ := c.Next(0, now)
	c.Failed(0, out, Refused, now)
	if out, wait := c.Next(0, now); out != nil || wait < int64(refusedPause)/2 {
		t.Errorf("after %v", time.Duration(wait))
	}
	want(t, "refused", drain(t, c, 0), "0 e1 4 device sync full 1 of 2: 4", "0 e1 4 device sync full 2 of 2: 2", "1 e2 2 device sync full: 0")
	// An ended epoch is replaced, for this rank.
	c.Digests()
	out, _ = c.Next(0, now)
	c.Failed(0, out, WrongEpoch, now)
	want(t, "wrong epoch", drain(t, c, 0), "0 e3 1 device sync full 1 of 2: 4", "0 e3 1 device sync full 2 of 2: 2", "1 e2 3 device sync full: 0")
}

func TestAnswers(t *testing.T) {
	c := newTestCore(1)
	drain(t, c, 0)
	answer := func(a message.Answer) {
		t.Helper()
		c.Digests()
		out, _ := c.Next(0, 0)
		if a.Seq == 0 {
			a.Seq = out.Report.Seq
		}
		c.Answered(0, out, &a)
	}
	c.Events(0, stored(1, 3))
	c.Flush()
	drain(t, c, 0)
	answer(message.Answer{WantBlocks: []uint64{3, 99, 1}})
	told := drain(t, c, 0)
	if len(told) != 2 || told[0] != "0 e1 4 device sync 2" {
		t.Errorf("%q", told)
	}
	answer(message.Answer{Want: message.WantFull, WantBlocks: []uint64{1}})
	if told = drain(t, c, 0); told[0] != "0 e1 6 device sync full: 3" {
		t.Errorf("%q", told)
	}
	answer(message.Answer{Seq: 1}) // it knows less than we told it
	if told = drain(t, c, 0); told[0] != "0 e1 8 device sync full: 3" {
		t.Errorf("%q", told)
	}
	// An answer to what has been given up changes nothing.
	c.Digests()
	out, _ := c.Next(0, 0)
	c.Void(0)
	c.Answered(0, out, &message.Answer{Seq: out.Report.Seq, WantBlocks: []uint64{1}})
	if told = drain(t, c, 0); told[0] != "0 e1 10 device sync full: 0" {
		t.Errorf("%q", told)
	}
}

// A router that knows nothing of a large cache is told all of it, however little
// the queue may hold, and the changes meanwhile do not wait for that.
func TestDescribeMoreThanTheQueue(t *testing.T) {
	const blocks = 40
	c := NewCore(CoreOptions{
		WorkerID: "gpu", Ranks: 1, Routers: 1, MaxBlocks: blocks, QueueMost: 100,
		Epoch: func() string { return "e1" }, Jitter: rand.New(rand.NewPCG(1, 2)),
	})
	c.Events(0, stored(1, blocks))
	full, _ := c.Next(0, 0)
	wanted := full.Report.Active.Short
	c.Answered(0, full, &message.Answer{Seq: 1, WantBlocks: wanted})
	c.Events(0, &kvevent.Batch{Events: []kvevent.Event{{Kind: kvevent.Removed, Hashes: []uint64{blocks}, Group: kvevent.NotSaid}}})
	c.Flush()
	want(t, "all", drain(t, c, 0), fmt.Sprintf("0 e1 2 device sync %d", blocks-1), "0 e1 3 device eviction 1")
	if n := c.Status().Routers[0].Collapses; n != 0 {
		t.Errorf("the queue was given up %d times", n)
	}
	// One that is given up half way is made again.
	c.want(c.links[0], 0, index.Device, wanted)
	c.Next(0, 0)
	c.collapse(c.links[0])
	want(t, "given up", drain(t, c, 0), fmt.Sprintf("0 e1 5 device sync full: %d", blocks-1), fmt.Sprintf("0 e1 6 device sync %d", blocks-1))
}

// Reports stay below what a router takes, whatever blocks are in them.
func TestReportsBound(t *testing.T) {
	var blocks []message.Block
	name := string(make([]byte, message.MaxAdapterBytes)) // each byte is six of JSON
	salt := string(make([]byte, message.MaxSaltBytes))
	for i := range 600 {
		b := message.Block{Hash: 1 << 63, Parent: 1 << 63, HasParent: true, Tokens: make([]uint32, 256), BlockTokens: 256}
		for j := range b.Tokens {
			b.Tokens[j] = 1<<32 - 1
		}
		if i%2 == 0 {
			b.Adapter, b.Salt, b.Extra = name, salt, make([]byte, message.MaxExtraBytes)
		}
		blocks = append(blocks, b)
	}
	blocks = append(blocks, message.Block{Tokens: make([]uint32, message.MaxBlockTokens), BlockTokens: message.MaxBlockTokens})
	for len(blocks) > 0 {
		n, _ := fitting(blocks)
		r := message.Report{WorkerID: "gpu", Epoch: "e", Seq: 1, Blocks: blocks[:n]}
		if size := len(r.AppendJSON(nil)); size > message.MaxBodyBytes {
			t.Errorf("%d blocks have %d bytes", n, size)
		}
		blocks = blocks[n:]
	}
	r := message.Report{Route: message.Sync, WorkerID: "gpu", Epoch: "e", Seq: 1, Full: true, Active: message.Hashes{Short: make([]uint64, fullHashes)}}
	if size := len(r.AppendJSON(nil)); size > message.MaxBodyBytes || fullHashes > message.MaxHashes {
		t.Errorf("a part of a full sync has %d bytes", size)
	}
	r = message.Report{Route: message.Eviction, WorkerID: "gpu", Epoch: "e", Seq: 1, Evicted: message.Hashes{Short: make([]uint64, reportWeight)}}
	if size := len(r.AppendJSON(nil)); size > message.MaxBodyBytes {
		t.Errorf("an eviction has %d bytes", size)
	}
}

// Extra keys that are too long for a report still tell blocks apart.
func TestBoundExtra(t *testing.T) {
	long := make([]byte, message.MaxExtraBytes+1)
	a := boundExtra(long)
	long[0] = 1
	if b := boundExtra(long); len(a) > message.MaxExtraBytes || string(a) == string(b) || len(boundExtra(long[1:])) != message.MaxExtraBytes {
		t.Errorf("%d bytes", len(a))
	}
}
