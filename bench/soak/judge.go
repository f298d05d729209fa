package soak

import (
	"fmt"
	"strings"
)

// facts is all that is known of a request that is over.
type facts struct {
	plan    *plan
	tries   []try
	outcome *outcome
	stopped []int // nodes that were stopped meanwhile, or shortly before
}

// Classes of requests that are over, as they are counted.
const (
	classOK         = "ok"           // answered at the first try
	classRetried    = "retried"      // answered at a later one
	classError      = "error_event"  // answered by a stream with an error in it
	classPassedOn   = "passed_on"    // a node's 5xx, as nobody else could be asked
	classOwnError   = "router_error" // an error of the router
	classCut        = "cut"          // cut off within the answer
	classCutBehind  = "cut_behind"   // sent ahead, and lost with the cut of a later answer
	classLeft       = "left"         // the client left
	classLocal      = "local"        // answered by the router
	classRefused    = "refused"      // refused by the router
	classStalled    = "stalled"      // given up by the router
	classUnanswered = "unanswered"   // sent ahead on a connection that ended before its turn
)

// judge says which class the request is of, or why what its client saw is
// explained by nothing that its nodes did.
func (f *facts) judge() (class string, err error) {
	o, p := f.outcome, f.plan
	switch {
	case o.end == endWrong:
		return "", o.err
	case p.kind == kindRefused, p.kind == kindLocal, p.kind == kindStalled:
		return f.judgeOwn()
	case o.end == endLeft, p.leave == leaveHalfway && (o.end == endCut || o.end == endWhole):
		return classLeft, nil
	case o.end == endNever:
		return "", fmt.Errorf("no answer within %v", requestLimit)
	case o.end == endCut:
		return f.judgeCut()
	case o.ofNode:
		return f.judgeAnswer()
	default:
		return f.judgeError()
	}
}

// judgeOwn judges what no node has to do with.
func (f *facts) judgeOwn() (string, error) {
	o := f.outcome
	if o.end != endWhole {
		return "", fmt.Errorf("no answer of the router: %w", o.err)
	}
	if len(f.tries) > 0 {
		return "", fmt.Errorf("a node was asked")
	}
	switch f.plan.kind {
	case kindRefused:
		return classRefused, nil // its status was checked when it was read
	case kindStalled:
		if o.status != 408 {
			return "", fmt.Errorf("a request that does not end is answered %d, want 408", o.status)
		}
		return classStalled, nil
	}
	if o.status != 200 {
		return "", fmt.Errorf("%s is answered %d, want 200", f.plan.path, o.status)
	}
	return classLocal, nil
}

// last is the last try, nil if there was none.
func (f *facts) last() *try {
	if len(f.tries) == 0 {
		return nil
	}
	return &f.tries[len(f.tries)-1]
}

// judgeCut judges an answer that did not come, or not whole: its node's must
// not have been whole either.
func (f *facts) judgeCut() (string, error) {
	o, last := f.outcome, f.last()
	switch {
	case last == nil:
		return "", fmt.Errorf("the connection ended before an answer, and no node was asked: %w", o.err)
	case !o.got && !last.begun:
		return "", fmt.Errorf("the connection ended before an answer, of which no node had sent a byte: %w", o.err)
	case o.got && !o.ofNode:
		return "", fmt.Errorf("an answer of the router was cut: %w", o.err)
	case o.got && o.try != len(f.tries)-1:
		return "", fmt.Errorf("an answer was cut, and another try made after it")
	case last.broken == "":
		return "", fmt.Errorf("an answer was cut that its node did not cut: %w", o.err)
	}
	return classCut, nil
}

// judgeAnswer judges a whole answer of a node; its bytes were compared when they
// were read.
func (f *facts) judgeAnswer() (string, error) {
	o, last := f.outcome, f.last()
	switch {
	case o.try != len(f.tries)-1:
		return "", fmt.Errorf("the answer of try %d, and another try was made after it", o.try)
	case !last.whole:
		return "", fmt.Errorf("a whole answer from a node that has not answered whole")
	case last.fault.kind == errorFirst, last.fault.kind == errorWithin:
		return classError, nil
	case o.status >= 500:
		return classPassedOn, nil
	case o.try > 0:
		return classRetried, nil
	}
	return classOK, nil
}

// ownErrors are the statuses of the router's own errors that faults of nodes can
// lead to.
var ownErrors = map[string]int{"node_failed": 502, "node_silent": 504, "timeout": 504, "no_node_available": 503}

// judgeUnseen judges the tries that the router names and no node has seen: only
// a node that was stopped does not see a try.
func (f *facts) judgeUnseen() error {
	o := f.outcome
	_, names, _ := strings.Cut(o.says, "tried: ")
	if names == "" && len(f.tries) == 0 && len(f.stopped) == 0 {
		return fmt.Errorf("answered %d %s, and no node was asked", o.status, o.code)
	}
	for name := range strings.SplitSeq(names, ", ") {
		known := name == ""
		for i := range f.tries {
			known = known || name == nodeName(f.tries[i].node)
		}
		for _, n := range f.stopped {
			known = known || name == nodeName(n)
		}
		if !known {
			return fmt.Errorf("answered %d %s: %s was tried, was not stopped and has seen nothing", o.status, o.code, name)
		}
	}
	return nil
}

// judgeError judges an error of the router: every try has to have failed, and
// one that was lost to a dead node has to have been moved.
func (f *facts) judgeError() (string, error) {
	o := f.outcome
	status, known := ownErrors[o.code]
	if f.plan.method == "HEAD" {
		status, known = o.status, o.status >= 502 && o.status <= 504
	}
	if !known || status != o.status {
		return "", fmt.Errorf("answered %d %s, which nothing explains", o.status, o.code)
	}
	moved := len(f.stopped) == 0 // else the node after it may have been lost too
	for i := range f.tries {
		t := &f.tries[i]
		if !t.fault.kind.retried() && t.broken == "" {
			return "", fmt.Errorf("answered %d %s, and nothing was wrong with try %d", o.status, o.code, i)
		}
		moved = moved && t.fault.kind.moved() && t.node == f.tries[0].node
	}
	if err := f.judgeUnseen(); err != nil {
		return "", err
	}
	if moved && f.plan.textLen < retryBytes-systemMaxBytes-1024 {
		return "", fmt.Errorf("answered %d %s, though a request that a dead node lost is moved once", o.status, o.code)
	}
	if o.code == "node_silent" && len(f.tries) > 0 && !strings.HasPrefix(f.last().fault.kind.String(), "hang") {
		return "", fmt.Errorf("answered %d %s, and no node was silent", o.status, o.code)
	}
	return classOwnError, nil
}
