package dataplane_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"warmpath/dataplane"
	"warmpath/dataplane/wire"
)

// answersToMutate are answers of nodes that the mutations start from.
var answersToMutate = []string{
	"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 11\r\n\r\nhello world",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n5\r\nhello\r\n6;x=\"y;z\";a\r\n world\r\n0\r\n\r\n",
	"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}",
	"HTTP/1.1 200 OK\r\nConnection: X-Hop, keep-alive\r\nX-Hop: a\r\nKeep-Alive: 5\r\nTransfer-Encoding: chunked\r\n\r\n" +
		"1c\r\nHTTP/1.1 200 OK\r\nX: 0\r\n\r\n12\r\n0\r\n\r\n",
	"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\r\nX-A: b\r\n\r\nuntil the close",
	"HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n",
	"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" +
		"b\r\ndata: {}\n\n\n\r\ne\r\ndata: [DONE]\n\n\r\n0\r\n\r\n",
}

// readFinal reads the answer behind interim ones that a node sent before it
// closed. Framing fields have to be good even where there is no body.
func readFinal(b string) (m *strictMessage, err error) {
	for {
		m, err = readAnswer(b, "GET", true)
		if m.headBytes > 0 && err == nil {
			framed := *m
			if err = framed.readBody(b[:m.headBytes], ""); err == errMore {
				err = nil
			}
		}
		if m.status == 101 && err == nil {
			err = strictFault("a switch of protocols")
		}
		if err != nil || m.status >= 200 {
			return m, err
		}
		b = b[m.bytes:]
	}
}

// TestConformanceMutatedAnswers lets a node send mutated answers and close. Its
// client must get what a strict reading of them gives, as a whole; or see that
// it has not: an error, or a reset behind a part of it.
func TestConformanceMutatedAnswers(t *testing.T) {
	count := 3000
	if raceEnabled {
		count = 1000
	}
	node := startStrictNode(t)
	r := start(t, setup{set: func(s *dataplane.Settings) { s.Head = wire.Limits{} }}, node.node)
	rng := rand.New(rand.NewPCG(9112, 9111))
	kinds := map[string]int{}
	for i := range count {
		text := mutate(rng, answersToMutate[i%len(answersToMutate)])
		kind, err := sendAnswer(t, r, node, text)
		if err != nil {
			m, e := readFinal(text)
			t.Errorf("%q: %v; read strictly: %d %q, %v", text, err, m.status, m.body, e)
		}
		kinds[kind]++
	}
	r.settled()
	t.Logf("%d answers: %v", count, kinds)
	if kinds["whole"] < count/8 || kinds["refused"] < count/8 || kinds["cut"] < count/100 {
		t.Errorf("%v: the mutations are too mild or too harsh", kinds)
	}
}

// sendAnswer lets the node answer a request with text, and says what came of it.
func sendAnswer(t *testing.T, r *router, node *strictNode, text string) (kind string, err error) {
	p := &nodePlan{replies: []nodeReply{{text: text, close: true}}}
	node.begin(p)
	c := dialRaw(t, r)
	defer c.conn.Close()
	if _, err := io.WriteString(c.conn, "GET /v1/files HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		return "", err
	}
	got, err := c.answer("GET")
	for err == nil && got.status < 200 {
		got, err = c.answer("GET")
	}
	want, wrong := readFinal(text)
	kind, err = judge(got, err, want, wrong, c.ended)
	x := &conformRun{r: r, node: node, plan: p, c: c}
	if err == nil && kind != "cut" && got.persists && !got.untilClose {
		x.goodClient(c)
	}
	_ = c.conn.Close()
	x.goodClient(dialRaw(t, r))
	r.settled()
	if faults := node.complaints(); err == nil && len(faults) > 0 {
		err = errors.New(strings.Join(faults, "; "))
	}
	if err == nil {
		err = x.complaint()
	}
	return kind, err
}

// judge compares what a client got, and how that ended, with the strict reading.
func judge(got *strictMessage, gotErr error, want *strictMessage, wrong, ended error) (kind string, err error) {
	switch {
	case got == nil:
		return "nothing", fmt.Errorf("no answer: %w", gotErr)
	case errors.As(gotErr, new(strictFault)):
		return "malformed", fmt.Errorf("a malformed answer: %w", gotErr)
	case gotErr == nil && got.status == 502 && len(got.values("X-Routed-To")) == 0:
		if wrong == nil {
			return "refused", errors.New("refused, though it is good")
		}
		return "refused", nil
	case gotErr == nil && wrong != nil:
		return "whole", errors.New("passed on as a whole, though it is not")
	case gotErr == nil:
		if got.status != want.status || got.body != want.body && !(got.status == 204 || got.status == 304) {
			return "whole", fmt.Errorf("got %d %q", got.status, got.body)
		}
		return "whole", nil
	case wrong == nil:
		return "cut", errors.New("cut, though it is good")
	case !errors.Is(ended, syscall.ECONNRESET):
		return "cut", fmt.Errorf("a part of an answer, then %w and no reset", ended)
	case got.status != want.status || !strings.HasPrefix(want.body, got.body):
		return "cut", fmt.Errorf("a part of another answer: %d %q", got.status, got.body)
	}
	return "cut", nil
}
