package httputilproxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	copyBufferBytes = 64 << 10
	idlePerNode     = 4096 // connections that are kept
	dialWait        = 5 * time.Second
	endWait         = time.Second
)

// node is one of those that requests are spread over.
type node struct {
	proxy    *httputil.ReverseProxy
	inFlight atomic.Int64
}

// Run serves on listen (host:port) until ctx ends, with GOMAXPROCS 1, and
// returns nil on a clean end. nodes are host:port, at least one.
func Run(ctx context.Context, listen string, nodes []string) error {
	if len(nodes) == 0 {
		return errors.New("start reverse proxy: give at least one node")
	}
	runtime.GOMAXPROCS(1)
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("start reverse proxy: %w", err)
	}
	server := &http.Server{
		Handler: newHandler(nodes), ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	ended := make(chan struct{})
	stopped := context.AfterFunc(ctx, func() {
		defer close(ended)
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
		defer cancel()
		if server.Shutdown(patience) != nil {
			_ = server.Close() // connections that are still busy are cut
		}
	})
	err = server.Serve(ln)
	if !stopped() {
		<-ended
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve on %q: %w", listen, err)
	}
	return nil
}

// newHandler sends each request to the node with the fewest under way.
func newHandler(addresses []string) http.Handler {
	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: dialWait}).DialContext,
		MaxIdleConns:        0, // no bound
		MaxIdleConnsPerHost: idlePerNode,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
		WriteBufferSize:     copyBufferBytes,
		ReadBufferSize:      copyBufferBytes,
	}
	pool := &buffers{}
	nodes := make([]*node, len(addresses))
	for i, address := range addresses {
		nodes[i] = &node{proxy: &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", address, ""
			},
			Transport:     transport,
			FlushInterval: -1,
			BufferPool:    pool,
			ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		}}
	}
	var turn atomic.Uint64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := least(nodes, int(turn.Add(1)%uint64(len(nodes))))
		n.inFlight.Add(1)
		defer n.inFlight.Add(-1)
		n.proxy.ServeHTTP(w, r)
	})
}

// least begins at another node each time, so that equals take turns.
func least(nodes []*node, from int) *node {
	best := nodes[from]
	for i := 1; i < len(nodes); i++ {
		if n := nodes[(from+i)%len(nodes)]; n.inFlight.Load() < best.inFlight.Load() {
			best = n
		}
	}
	return best
}

// buffers is a pool of the buffers that bodies are copied through.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if buf, ok := b.pool.Get().(*[copyBufferBytes]byte); ok {
		return buf[:]
	}
	return make([]byte, copyBufferBytes)
}

func (b *buffers) Put(buf []byte) { b.pool.Put((*[copyBufferBytes]byte)(buf)) }
