package backend

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// readBufferBytes lets one read take a large body whole; the buffer belongs
// to the loop, so that it costs nothing a connection.
const readBufferBytes = 256 << 10

// Options says where and how a backend serves.
type Options struct {
	Addresses []string // host:port, one listener each; at least one
	Loops     int      // event loops; at least 1
	Model     string   // the one model that /v1/models names
}

// Run serves until ctx ends. It returns nil on a clean end. It sets GOMAXPROCS
// to Loops+1, because with no spare processor the runtime takes the loop's
// away in every blocking wait; so call it from a program that does nothing
// else. ready, when not nil, is called once, when all listeners accept.
func Run(ctx context.Context, o Options, ready func()) error {
	if len(o.Addresses) == 0 || o.Loops < 1 {
		return errors.New("start backend: give at least one address and one loop")
	}
	runtime.GOMAXPROCS(o.Loops + 1)
	addresses := make([]string, len(o.Addresses))
	for i, address := range o.Addresses {
		addresses[i] = "tcp://" + address
	}
	h := &handler{answers: newAnswers(o.Model), ready: ready, booted: make(chan struct{})}
	stopped := context.AfterFunc(ctx, func() { h.stop() })
	defer stopped()
	err := gnet.Rotate(
		h,
		addresses,
		gnet.WithNumEventLoop(o.Loops),
		gnet.WithReusePort(true),
		gnet.WithReadBufferCap(readBufferBytes),
	)
	if err != nil {
		return fmt.Errorf("serve %q: %w", o.Addresses, err)
	}
	return nil
}

// handler is shared by the loops; all it holds is immutable after boot. What
// belongs to a connection is the framer in its context, loop-owned.
type handler struct {
	gnet.BuiltinEventEngine
	answers answers
	ready   func()
	engine  gnet.Engine
	booted  chan struct{}
}

// OnBoot runs before the loops start.
func (h *handler) OnBoot(engine gnet.Engine) gnet.Action {
	h.engine = engine
	close(h.booted)
	if h.ready != nil {
		h.ready()
	}
	return gnet.None
}

// stop waits for the boot, so that a context that ended early still ends the
// engine.
func (h *handler) stop() {
	<-h.booted
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = h.engine.Stop(ctx) // its error only says that the engine is gone already
}

// OnOpen gives the connection its framer.
func (h *handler) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	c.SetContext(&framer{})
	return nil, gnet.None
}

// OnTraffic answers every request that is complete.
func (h *handler) OnTraffic(c gnet.Conn) gnet.Action {
	f, ok := c.Context().(*framer)
	if !ok {
		panic("BUG: connection without a framer")
	}
	buf, err := c.Peek(-1)
	if err != nil {
		return gnet.Close
	}
	used := 0
	for used < len(buf) {
		n, done, err := f.step(buf[used:])
		used += n
		if err != nil {
			_, _ = c.Write(h.answers.malformed)
			return gnet.Close
		}
		if !done {
			break
		}
		if _, err := c.Write(h.answers.of[f.route]); err != nil || f.close {
			return gnet.Close
		}
	}
	if used > 0 { // Discard(0) would throw everything away
		_, _ = c.Discard(used)
	}
	return gnet.None
}
