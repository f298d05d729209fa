package dataplane_test

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"warmpath/dataplane"
)

// sendAhead sends requests as fast as the router takes them.
func sendAhead(c *client, request string, many int) (done chan int) {
	done = make(chan int, 1)
	go func() {
		sent := 0
		for ; sent < many; sent++ {
			if _, err := io.WriteString(c, request); err != nil {
				break
			}
		}
		done <- sent
	}()
	return done
}

// TestRequestsSentAhead: a client that sends ten megabytes of requests while
// its first one waits is not read, and is served in order later.
func TestRequestsSentAhead(t *testing.T) {
	wait := make(chan struct{})
	a := startNode(t, "a", func(c *conn) {
		for {
			if _, more := c.request(); !more {
				return
			}
			<-wait
			c.send(ok("{}"))
		}
	})
	r := start(t, setup{}, a)
	c := r.dial()
	const many = 1000
	ahead := post("ahead", `{"model":"m","prompt":"`+strings.Repeat("x", 10_000)+`"}`)
	done := sendAhead(c, ahead, many)
	eventually(t, "reading to pause", func() bool { return r.d.Held().SentAhead > 64<<10 })
	then, most := r.d.NowNs()+int64(100e6), 0
	eventually(t, "some time to pass", func() bool { most = max(most, r.d.Held().SentAhead); return r.d.NowNs() > then })
	if most > 700<<10 {
		t.Errorf("%d bytes sent ahead were held", most)
	}
	close(wait)
	for i := range many {
		if got := c.answer("POST"); got.StatusCode != 200 {
			t.Fatalf("request %d sent ahead got %d %s", i, got.StatusCode, got.body)
		}
	}
	if sent := <-done; sent != many {
		t.Errorf("%d requests were taken, want %d", sent, many)
	}
	r.settled()
}

// TestRequestsSentAheadHaveABound: the same while a long answer goes out,
// whose writes make the poller read again and again. What is held has a bound,
// and the client is cut off beyond it.
func TestRequestsSentAheadHaveABound(t *testing.T) {
	const answerBytes = 64 << 20
	wait := make(chan struct{})
	a := startNode(t, "a", func(c *conn) {
		c.request()
		<-wait
		c.send(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", answerBytes))
		piece := strings.Repeat("z", 64<<10)
		for range answerBytes / len(piece) {
			c.send(piece)
		}
		answers(ok("{}"))(c)
	})
	r := start(t, setup{}, a)
	c := r.dial()
	ahead := post("ahead", `{"model":"m","prompt":"`+strings.Repeat("x", 10_000)+`"}`)
	done := sendAhead(c, ahead, 10_000)
	eventually(t, "reading to pause", func() bool { return r.d.Held().SentAhead > 64<<10 })
	close(wait)
	most := 0
	buffer := make([]byte, 32<<10)
	for got := 0; got < answerBytes; {
		n, err := c.r.Read(buffer)
		if err != nil {
			break
		}
		if got += n; got>>18 != (got-n)>>18 {
			most = max(most, r.d.Held().SentAhead)
		}
	}
	if most > dataplane.AheadBytesMax+512<<10 {
		t.Errorf("%d bytes sent ahead were held, want at most the bound and a read buffer", most)
	}
	_ = c.Close()
	<-done
	r.settled()
}

// TestBackPressure: a node sends 64 MB as fast as it can to a client that
// reads slowly. The node is paused, memory stays flat, every byte arrives.
func TestBackPressure(t *testing.T) {
	const total = 64 << 20
	for name, head := range map[string]string{
		"length":  fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", total),
		"chunked": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
		"close":   "HTTP/1.1 200 OK\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) { backPressure(t, total, head, name == "chunked") })
	}
}

func backPressure(t *testing.T, total int, head string, chunked bool) {
	piece := make([]byte, 64<<10)
	for i := range piece {
		piece[i] = byte(i * 7)
	}
	wire, last := piece, ""
	if chunked { // made once, so that the heap grows by what the router holds
		wire, last = []byte(chunk(string(piece))), "0\r\n\r\n"
	}
	a := startNode(t, "a", func(c *conn) {
		c.request()
		c.send(head)
		for range total / len(piece) {
			if _, err := c.Write(wire); err != nil {
				return
			}
		}
		c.send(last)
	})
	r := start(t, setup{alone: true}, a)
	var then, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&then)
	c := r.dial()
	_ = c.SetReadBuffer(64 << 10)
	c.send(post("slow", chatBody))
	eventually(t, "the node to be paused", func() bool { return r.d.Totals().Pauses > 0 })
	most := 0
	body := c.stream(t)
	got := make([]byte, len(piece))
	for i := range total / len(piece) {
		if _, err := io.ReadFull(body, got); err != nil || !bytes.Equal(got, piece) {
			t.Fatalf("piece %d differs, or %v", i, err)
		}
		if i%16 == 0 {
			most = max(most, r.d.Held().Outbound)
		}
	}
	if n, err := body.Read(got); n > 0 || err != io.EOF {
		t.Fatalf("%d bytes too many, %v", n, err)
	}
	runtime.ReadMemStats(&now)
	if most > 1<<20 {
		t.Errorf("%d bytes waited for the client, want less than 1 MiB", most)
	}
	if grown := int64(now.HeapSys) - int64(then.HeapSys); grown > 32<<20 && !raceEnabled {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	r.settled()
	t.Logf("at most %d bytes waited for the client; %d pauses", most, r.d.Totals().Pauses)
}

// TestSlowClient: a client that takes its answer for longer than the node may
// be silent gets the whole of it; one that takes nothing for so long is let go,
// and the node is not blamed.
func TestSlowClient(t *testing.T) {
	const total, step = 16 << 20, 256 << 10
	for _, reads := range []bool{true, false} {
		t.Run(fmt.Sprintf("reads=%v", reads), func(t *testing.T) {
			text := strings.Repeat("z", total)
			a := startNode(t, "a", func(c *conn) {
				c.request()
				c.send(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", total), text)
				c.gone()
			})
			r := start(t, setup{set: func(s *dataplane.Settings) { s.IdleStreamNs = int64(400e6) }}, a)
			c := r.dial()
			_ = c.SetReadBuffer(64 << 10)
			c.send(post("slow", chatBody))
			eventually(t, "the node to be paused", func() bool { return r.d.Totals().Pauses > 0 })
			if !reads {
				eventually(t, "the client to be let go", func() bool { return r.d.Active() == 0 })
				r.settled()
				if rec := r.record("slow"); tries(rec) != "a:client_gone" || r.nodes[0].Load.Failures.Load() != 0 {
					t.Errorf("tries %s, %d failures", tries(rec), r.nodes[0].Load.Failures.Load())
				}
				return
			}
			body, tick := c.stream(t), time.NewTicker(15*time.Millisecond)
			defer tick.Stop()
			buffer := make([]byte, step)
			for got := 0; got < total; got += step {
				if _, err := io.ReadFull(body, buffer); err != nil {
					t.Fatalf("after %d bytes: %v", got, err)
				}
				<-tick.C
			}
			r.settled()
		})
	}
}

// TestClientLeavesWhilePaused: the node of a slow client is let go with it.
func TestClientLeavesWhilePaused(t *testing.T) {
	closed := make(chan struct{})
	a := startNode(t, "a", func(c *conn) {
		c.request()
		c.send(streamHead)
		for {
			if _, err := io.WriteString(c, chunk(event(strings.Repeat("x", 32<<10)))); err != nil {
				break
			}
		}
		close(closed)
	})
	r := start(t, setup{}, a)
	c := r.dial()
	c.send(post("slow", streamed))
	eventually(t, "the node to be paused", func() bool { return r.d.Totals().Pauses > 0 })
	_ = c.Close()
	<-closed
	r.settled()
}

// TestAnswersNobodyTakes: a client that asks on and on and takes no answer is
// not read further; what it is owed has a bound.
func TestAnswersNobodyTakes(t *testing.T) {
	r := start(t, setup{set: func(s *dataplane.Settings) { s.IdleStreamNs = int64(400e6) }}, startNode(t, "a", answers(ok("{}"))))
	c := r.dial()
	done := sendAhead(c, strings.Repeat("GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", 100), 5000)
	most := 0
	eventually(t, "the client to be let go", func() bool {
		held := r.d.Held()
		most = max(most, held.Outbound+held.SentAhead)
		return r.d.Totals().Clients == 0
	})
	if most > 8<<20 {
		t.Errorf("%d bytes were held for a client that takes nothing", most)
	}
	t.Logf("at most %d bytes were held", most)
	<-done
	r.settled()
}
