package engine

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// rankHeader names the data-parallel rank that is to answer a request.
const rankHeader = "X-data-parallel-rank"

// process is one process life of a simulated engine: a life for each
// data-parallel rank, at least one. Ranks share the port, the model and the
// faults, and nothing else: each has its cache, its steps and its events.
type process []*life

// startProcess starts all ranks; events may be empty.
func startProcess(cfg *Config, faults *faultSet, events []*publisher) *process {
	p := make(process, cfg.Ranks)
	for rank := range p {
		var own *publisher
		if rank < len(events) {
			own = events[rank]
		}
		p[rank] = startLife(cfg, faults, own, rank)
	}
	return &p
}

func (p process) stop() {
	for _, l := range p {
		l.stop()
	}
}

// pick chooses the rank for a request: the one that the header names, else, as
// vLLM's balancer, the first with the least 4 × waiting + running. A header
// that is no number is ignored; one that names no rank gives rank 0 and what to
// answer.
func (p process) pick(r *http.Request) (*life, *apiError) {
	if rank, err := strconv.Atoi(strings.TrimSpace(r.Header.Get(rankHeader))); err == nil {
		if rank < 0 || rank >= len(p) {
			return p[0], badRequest("data_parallel_rank", "data_parallel_rank %d is out of range [0, %d).", rank, len(p))
		}
		return p[rank], nil
	}
	best, least := p[0], -1
	for _, l := range p {
		if len(p) == 1 {
			break
		}
		g := l.look()
		if load := 4*g.waiting + g.running; least < 0 || load < least {
			best, least = l, load
		}
	}
	return best, nil
}

// look sums the figures of all ranks.
func (p process) look() gauges {
	var sum gauges
	for _, l := range p {
		sum.add(l.look())
	}
	return sum
}

// clearCache empties the caches of the ranks that no request uses, and reports
// whether those were all.
func (p process) clearCache() bool {
	all := true
	for _, l := range p {
		all = l.clearCache() && all
	}
	return all
}

// gatherer has the metrics of all ranks, apart by their label "engine".
func (p process) gatherer() prometheus.Gatherer {
	var g prometheus.Gatherers
	for _, l := range p {
		g = append(g, l.stats.registry)
	}
	return g
}

// openPublishers opens the event streams of all ranks: that of rank r on port
// + r, as vLLM does. A port 0 takes a free row of ports.
func openPublishers(cfg *Config, events, replay string) ([]*publisher, error) {
	const tries = 20
	for try := 1; ; try++ {
		if cfg.Ranks == 1 {
			return openRow(cfg, events, replay)
		}
		opened, err := openRow(cfg, rowOf(events), rowOf(replay))
		if err == nil || !anyPort(events) && !anyPort(replay) || try == tries {
			return opened, err
		}
	}
}

// rowOf puts a port in the place of port 0 that may have free ones behind it. Beside those
// that the kernel gives away by itself, by default from 32768 on (ip_local_port_range in
// ip(7)), all may be taken: on a busy machine by the clients' ends of connections.
func rowOf(endpoint string) string {
	const first, last = 20000, 32000
	host, found := strings.CutSuffix(endpoint, ":0")
	if !found {
		return endpoint
	}
	return fmt.Sprintf("%s:%d", host, first+rand.IntN(last-first))
}

func openRow(cfg *Config, events, replay string) ([]*publisher, error) {
	var opened []*publisher
	for rank := range cfg.Ranks {
		p, err := openPublisher(cfg, behind(events, rank), behind(replay, rank))
		if err != nil {
			for _, other := range opened {
				other.close()
			}
			return nil, fmt.Errorf("rank %d: %w", rank, err)
		}
		opened = append(opened, p)
		if rank == 0 {
			events, replay = endpoint(events, p.pub), endpoint(replay, p.router)
		}
	}
	return opened, nil
}

// anyPort reports whether an endpoint leaves its port to the machine.
func anyPort(endpoint string) bool { return strings.HasSuffix(endpoint, ":0") }

// behind is an endpoint with its port raised by n; "" stays so.
func behind(endpoint string, n int) string {
	host, port, err := net.SplitHostPort(strings.TrimPrefix(endpoint, "tcp://"))
	number, bad := strconv.Atoi(port)
	if err != nil || bad != nil || n == 0 {
		return endpoint // for openPublisher to bind or to refuse
	}
	return "tcp://" + net.JoinHostPort(host, strconv.Itoa(number+n))
}
