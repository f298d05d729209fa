package httputilproxy

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestPassesOnWhole(t *testing.T) {
	hits := map[string]int{}
	var addresses []string
	for range 2 {
		server := httptest.NewServer(nil)
		defer server.Close()
		address := server.Listener.Addr().String()
		server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			hits[address]++
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			_, _ = w.Write(body)
		})
		addresses = append(addresses, address)
	}
	front := httptest.NewServer(newHandler(addresses))
	defer front.Close()
	sent := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	for range 4 {
		res, err := http.Post(front.URL+"/v1/chat/completions", "application/json", bytes.NewReader(sent))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || !bytes.Equal(got, sent) {
			t.Fatalf("status %d, %d bytes, %v", res.StatusCode, len(got), err)
		}
	}
	for _, address := range addresses {
		if hits[address] != 2 {
			t.Errorf("nodes were hit %v times, want 2 each", hits)
		}
	}
}

func TestLeast(t *testing.T) {
	nodes := []*node{{}, {}, {}}
	nodes[0].inFlight.Store(2)
	nodes[1].inFlight.Store(1)
	nodes[2].inFlight.Store(1)
	for from, want := range map[int]*node{0: nodes[1], 1: nodes[1], 2: nodes[2]} {
		if least(nodes, from) != want {
			t.Errorf("from %d another node than the first with the fewest", from)
		}
	}
}

// TestEventsComeAtOnce: an event is not held back until the next.
func TestEventsComeAtOnce(t *testing.T) {
	goOn := make(chan struct{})
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-goOn
		_, _ = io.WriteString(w, "data: 2\n\n")
	}))
	defer node.Close()
	front := httptest.NewServer(newHandler([]string{node.Listener.Addr().String()}))
	defer front.Close()
	res, err := http.Get(front.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	first := make([]byte, len("data: 1\n\n"))
	if _, err := io.ReadFull(res.Body, first); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	rest, err := io.ReadAll(res.Body)
	if err != nil || string(first)+string(rest) != "data: 1\n\ndata: 2\n\n" {
		t.Errorf("got %q, %q, %v", first, rest, err)
	}
}

func TestRunEnds(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	ln.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, address, []string{"127.0.0.1:1"}) }()
	for {
		res, err := http.Get("http://" + address)
		if err == nil {
			res.Body.Close()
			if res.StatusCode != http.StatusBadGateway {
				t.Errorf("no node, status %d", res.StatusCode)
			}
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := Run(t.Context(), address, nil); err == nil || !strings.Contains(err.Error(), "at least one node") {
		t.Errorf("got %v", err)
	}
}
