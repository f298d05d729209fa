package dataplane

import (
	"errors"

	"warmpath/dataplane/wire"
)

// ErrNoLoops says that the data plane has ended.
var ErrNoLoops = errors.New("the data plane has ended")

// Explain decides a request without sending it: the same code as for a real
// one, on a loop, with the counters as they are. What this loop has sent on
// counts at once, what others have once the index knows. path is the route the
// body would go to. The error is the one a client would get. The decision is also
// kept as a record, like any other. What is long of it is done by the caller's
// goroutine.
func (d *Dataplane) Explain(path string, body []byte) (rec Record, err error) {
	err = ErrNoLoops
	l := d.loops[0]
	var x *exchange
	var a *answer
	d.on(l, func() { x, a, err = l.beginExplain(path) })
	if err != nil {
		return rec, err
	}
	if a == nil {
		a = x.takeBody(body)
	}
	for later := a == nil; later; {
		err = ErrNoLoops
		d.on(l, func() {
			if a, later = l.decide(x); a == nil && !later {
				rec = l.explained(x)
			}
			err = nil
		})
		if err != nil {
			return rec, err
		}
		for later && !x.ident.work() { // a loop leaves it to a worker; here that is us
			continue
		}
	}
	tokens := 0
	if a == nil {
		tokens = x.countAll()
	}
	d.on(l, func() {
		if tokens > 0 {
			rec.PromptTokens = tokens
			if r := l.records.at(x.record); r != nil {
				r.promptTokens = tokens
			}
		}
		l.forgetExplained(x)
	})
	if a != nil {
		return rec, &ExplainError{Status: a.status, Message: a.message, Code: a.code}
	}
	return rec, nil
}

// beginExplain makes an exchange that has no connection.
func (l *loop) beginExplain(path string) (*exchange, *answer, error) {
	x := l.newExchange(&client{loop: l})
	head := "POST " + path + " HTTP/1.1\r\nHost: explain\r\nContent-Type: application/json\r\n\r\n"
	x.head = append(x.head[:0], head...)
	if _, err := x.req.Parse(x.head, &x.set.Head); err != nil {
		l.forgetExplained(x)
		return nil, nil, err
	}
	x.req.Body = wire.BodyLength
	a := l.headRead(x)
	if a == nil && !x.class.prompt {
		a = &errNoSuchPath
	}
	return x, a, nil
}

// takeBody takes a body that is to be explained.
func (x *exchange) takeBody(body []byte) *answer {
	x.data = append(x.data[:0], body...)
	if err := x.scan(true); err != nil {
		return scanAnswer(err)
	}
	return nil
}

// countAll counts the tokens of a prompt that a decision has only looked at as
// far as anybody holds it; 0 if they are not known.
func (x *exchange) countAll() int {
	if id := x.ident; id != nil && x.exact == ExactTokens {
		for !id.walk.Complete() {
			id.finish(sliceNs, true)
		}
	}
	return x.counted()
}

// explained returns the record of what was just decided for x.
func (l *loop) explained(x *exchange) Record {
	r := l.records.at(x.record)
	if slot := x.decision.Slot; slot >= 0 {
		r.node = x.snap.Nodes[slot].Name
	}
	return l.d.expand(r)
}

func (l *loop) forgetExplained(x *exchange) {
	x.client.x = nil
	l.freeExchange(x)
}

// ExplainError is the error that a client would have got.
type ExplainError struct {
	Status        int
	Message, Code string
}

func (e *ExplainError) Error() string { return e.Message }
