package stormbench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// clients send requests at a steady rate, whatever becomes of those before
// (open loop), over connections that they keep.
type clients struct {
	address  string
	requests [][]byte
	idle     chan net.Conn

	mu   sync.Mutex
	took []float64 // seconds to the answer's end, from when the request was due
	errs int
	err  error // the last one
}

func newClients(address string, conversations, bytes int) *clients {
	c := &clients{address: address, idle: make(chan net.Conn, 4096)}
	r := rand.New(rand.NewPCG(1, 1))
	for range conversations {
		var text strings.Builder
		for text.Len() < bytes {
			fmt.Fprintf(&text, "word%d and ", r.IntN(5000))
		}
		body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}]}`, model, text.String())
		c.requests = append(c.requests, fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body))
	}
	return c
}

// run sends requests for a while and waits for their answers.
func (c *clients) run(ctx context.Context, perSecond int, duration time.Duration) {
	var under sync.WaitGroup
	start := time.Now()
	for i := 0; ctx.Err() == nil; i++ {
		due := start.Add(time.Duration(i) * time.Second / time.Duration(perSecond))
		if due.Sub(start) >= duration {
			break
		}
		time.Sleep(time.Until(due))
		request := c.requests[i%len(c.requests)]
		under.Go(func() { c.one(due, request) })
	}
	under.Wait()
}

// one sends a request on a connection that is idle, or on a new one.
func (c *clients) one(due time.Time, request []byte) {
	err := c.exchange(request)
	took := time.Since(due).Seconds()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.errs, c.err = c.errs+1, err
		return
	}
	c.took = append(c.took, took)
}

func (c *clients) exchange(request []byte) (err error) {
	var conn net.Conn
	select {
	case conn = <-c.idle:
	default:
		if conn, err = net.Dial("tcp", c.address); err != nil {
			return err
		}
	}
	if _, err = conn.Write(request); err == nil {
		err = readAnswer(conn)
	}
	if err != nil {
		_ = conn.Close()
		return err
	}
	c.idle <- conn
	return nil
}

func readAnswer(conn net.Conn) error {
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("answer %s", resp.Status)
	}
	return nil
}

// taken returns the times of the requests since the last call, and how many
// have failed.
func (c *clients) taken() (took []float64, errs int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	took, errs, err = c.took, c.errs, c.err
	c.took, c.errs = nil, 0
	return took, errs, err
}

func (c *clients) close() {
	close(c.idle)
	for conn := range c.idle {
		_ = conn.Close()
	}
}
