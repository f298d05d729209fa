package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"strings"
	"sync"

	"github.com/go-zeromq/zmq4"
)

// eventsHWM is how many batches may wait for slow subscribers before batches
// are dropped, as vLLM's default hwm.
const eventsHWM = 100_000

// endOfReplay is the sequence number that ends a replay: −1.
const endOfReplay = ^uint64(0)

// publisher is one engine life's event stream: a PUB socket for live batches
// and a ROUTER that answers from the last batches. The sequence starts at 0
// with every publisher.
type publisher struct {
	topic  []byte
	pub    zmq4.Socket
	router zmq4.Socket // nil without replay
	cancel context.CancelFunc
	served sync.WaitGroup

	mu   sync.Mutex
	next uint64   // sequence of the next batch
	ring [][]byte // payload of sequence n at n modulo its length
}

// openPublisher binds the sockets. Its endpoints may have port 0; eventsAddr
// and replayAddr then tell what was bound.
func openPublisher(cfg *Config, events, replay string) (*publisher, error) {
	ctx, cancel := context.WithCancel(context.Background())
	quiet := zmq4.WithLogger(log.New(io.Discard, "", 0)) // a scanner of ports is no news
	p := &publisher{topic: []byte(cfg.EventsTopic), cancel: cancel, ring: make([][]byte, cfg.ReplayBatches)}
	p.pub = zmq4.NewPub(ctx, quiet)
	if err := p.pub.SetOption(zmq4.OptionHWM, eventsHWM); err != nil {
		p.close()
		return nil, fmt.Errorf("set event queue length %d: %w", eventsHWM, err)
	}
	if err := p.pub.Listen(events); err != nil {
		p.close()
		return nil, fmt.Errorf("bind event socket %q: %w", events, err)
	}
	if replay == "" {
		return p, nil
	}
	p.router = zmq4.NewRouter(ctx, quiet)
	if err := p.router.Listen(replay); err != nil {
		p.close()
		return nil, fmt.Errorf("bind replay socket %q: %w", replay, err)
	}
	p.served.Go(p.serveReplay)
	return p, nil
}

// endpoint turns a bound socket into the endpoint that clients dial: the
// configured host with the port that was got.
func endpoint(configured string, s zmq4.Socket) string {
	if s == nil || s.Addr() == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(strings.TrimPrefix(configured, "tcp://"))
	if err != nil {
		return configured
	}
	_, port, err := net.SplitHostPort(s.Addr().String())
	if err != nil {
		return configured
	}
	return "tcp://" + net.JoinHostPort(host, port)
}

// publish gives a batch the next sequence number, keeps it for replay, and
// sends it to the subscribers unless it is to be lost on the way. It does not
// wait for subscribers. The payload must not change afterwards.
func (p *publisher) publish(payload []byte, lost bool) error {
	p.mu.Lock()
	seq := p.next
	p.next++
	p.ring[seq%uint64(len(p.ring))] = payload
	p.mu.Unlock()
	if lost {
		return nil
	}
	if err := p.pub.SendMulti(zmq4.NewMsgFrom(p.topic, sequenceFrame(seq), payload)); err != nil {
		return fmt.Errorf("publish event batch %d: %w", seq, err)
	}
	return nil
}

// sequence returns the number of the next batch.
func (p *publisher) sequence() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

// kept returns a batch if it is still in the replay buffer. first is the
// oldest sequence that is.
func (p *publisher) kept(seq uint64) (payload []byte, first uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if size := uint64(len(p.ring)); p.next > size {
		first = p.next - size
	}
	if seq < first || seq >= p.next {
		return nil, first, false
	}
	return p.ring[seq%uint64(len(p.ring))], first, true
}

// serveReplay answers replay requests, one after the other. A request is an
// identity, an empty frame and the first wanted sequence number; the answers
// are those of vLLM 0.32: identity, empty, topic, sequence, payload for each
// batch, and an end marker with sequence −1.
func (p *publisher) serveReplay() {
	for {
		msg, err := p.router.Recv()
		if err != nil {
			return
		}
		if len(msg.Frames) != 3 || len(msg.Frames[2]) != 8 {
			continue // as vLLM: a malformed request gets no answer
		}
		p.replay(msg.Frames[0], binary.BigEndian.Uint64(msg.Frames[2]))
	}
}

// replay sends what is kept from a sequence number on.
func (p *publisher) replay(identity []byte, from uint64) {
	_, first, _ := p.kept(from)
	for seq := max(from, first); ; seq++ {
		payload, _, ok := p.kept(seq)
		if !ok {
			break
		}
		if p.router.SendMulti(zmq4.NewMsgFrom(identity, nil, p.topic, sequenceFrame(seq), payload)) != nil {
			return // the peer is gone
		}
	}
	_ = p.router.SendMulti(zmq4.NewMsgFrom(identity, nil, nil, sequenceFrame(endOfReplay), nil))
}

// close ends both sockets; subscribers see their connections closed.
func (p *publisher) close() {
	p.cancel()
	_ = p.pub.Close() // closing twice or a dead peer: nothing left to do
	if p.router != nil {
		_ = p.router.Close()
	}
	p.served.Wait()
}

func sequenceFrame(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }
