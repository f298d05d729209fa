package dataplane

import (
	"errors"

	"warmpath/dataplane/wire"
)

// ErrNoLoops says that the data plane has ended.
var ErrNoLoops = errors.New("the data plane has ended")

// Explain decides a request without sending it: the same code as for a real
// one, on a loop, with the counters as they are. path is the route the body
// would go to. The error is the one a client would get. The decision is also
// kept as a record, like any other.
func (d *Dataplane) Explain(path string, body []byte) (rec Record, err error) {
	err = ErrNoLoops
	l := d.loops[0]
	d.on(l, func() { rec, err = l.explain(path, body) })
	return rec, err
}

func (l *loop) explain(path string, body []byte) (Record, error) {
	x := l.newExchange(&client{loop: l})
	defer func() {
		x.client.x = nil
		l.freeExchange(x)
	}()
	head := "POST " + path + " HTTP/1.1\r\nHost: explain\r\nContent-Type: application/json\r\n\r\n"
	x.head = append(x.head[:0], head...)
	if _, err := x.req.Parse(x.head, &x.set.Head); err != nil {
		return Record{}, err
	}
	x.req.Body = wire.BodyLength
	x.data = append(x.data[:0], body...)
	a := l.headRead(x)
	if a == nil && !x.class.prompt {
		a = &errNoSuchPath
	}
	if a == nil {
		if err := x.scan(true); err != nil {
			a = scanAnswer(err)
		}
	}
	if a == nil {
		a = l.decide(x)
	}
	if a != nil {
		return Record{}, &ExplainError{Status: a.status, Message: a.message, Code: a.code}
	}
	r := l.records.at(x.record)
	if slot := x.decision.Slot; slot >= 0 {
		r.node = x.snap.Nodes[slot].Name
	}
	return l.d.expand(r), nil
}

// ExplainError is the error that a client would have got.
type ExplainError struct {
	Status        int
	Message, Code string
}

func (e *ExplainError) Error() string { return e.Message }
