package dataplane

import (
	"encoding/json"
	"fmt"
	"strconv"

	"warmpath/dataplane/backend"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/scan"
	"warmpath/dataplane/wire"
)

// answer is an error that the router answers itself, in the shape of OpenAI's
// API. Code and kind are stable names.
type answer struct {
	status            int
	message           string
	kind              string // error.type
	code              string // error.code
	param             string // error.param, "" = null
	retryAfterSeconds int
	allow             string // field Allow, with 405
}

const (
	kindRequest = "invalid_request_error"
	kindServer  = "server_error"
)

// holdRetrySeconds is when a client may ask again whom no place was found for while
// nodes start, which takes longer than that.
const holdRetrySeconds = 10

var (
	errTooManyConnections = answer{status: 503, message: "too many connections (limits.connections)", kind: kindServer, code: "too_many_connections", retryAfterSeconds: 1}
	errSlowRequest        = answer{status: 408, message: "the request did not arrive in time (timeouts.head)", kind: kindRequest, code: "request_timeout"}
	errRequestTimeout     = answer{status: 504, message: "the request took longer than allowed (timeouts.request)", kind: kindServer, code: "timeout"}
	errNoNode             = answer{status: 503, message: "no node can take the request now", kind: kindServer, code: "no_node_available", retryAfterSeconds: 1}
	errHoldFull           = answer{status: 503, message: "nodes are on their way, and as many requests wait for them as may (limits.hold_requests, limits.hold_bytes)", kind: kindServer, code: "hold_full", retryAfterSeconds: holdRetrySeconds}
	errHoldLate           = answer{status: 503, message: "nodes are on their way, and none was ready in time (timeouts.hold)", kind: kindServer, code: "no_node_in_time", retryAfterSeconds: holdRetrySeconds}
	errModelsNotAsked     = answer{status: 503, message: "the nodes have not yet said which models they serve", kind: kindServer, code: "starting", retryAfterSeconds: 1}
	errModelMissing       = answer{status: 400, message: "the body names no model, and several are served", kind: kindRequest, code: "model_required", param: "model"}
	errWantsPost          = answer{status: 405, message: "this route takes POST", kind: kindRequest, code: "method_not_allowed", allow: "POST"}
	errWantsGet           = answer{status: 405, message: "this route takes GET", kind: kindRequest, code: "method_not_allowed", allow: "GET, HEAD"}
	errNoTrace            = answer{status: 405, message: "TRACE is not served", kind: kindRequest, code: "method_not_allowed", allow: "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"}
	errPathNotPlain       = answer{status: 400, message: "the path has escapes, empty or dot segments, or a slash at its end; write it plainly", kind: kindRequest, code: "bad_path"}
	errStopping           = answer{status: 503, message: "the router is being stopped", kind: kindServer, code: "stopping", retryAfterSeconds: 1}
	errNoSuchPath         = answer{status: 404, message: "no such route", kind: kindRequest, code: "not_found"}
)

func wireAnswer(err *wire.Error) *answer {
	a := &answer{status: err.Status, message: err.What, kind: kindRequest, code: err.Code}
	if err.Status == 405 {
		a.allow = "GET, HEAD, POST, OPTIONS"
	}
	return a
}

func scanAnswer(err *scan.Error) *answer {
	return &answer{status: 400, message: err.Error(), kind: kindRequest, code: "invalid_json"}
}

func errBodyTooLarge(limit int64) *answer {
	return &answer{status: 413, message: "the body is longer than " + strconv.FormatInt(limit, 10) + " bytes (limits.body_bytes)", kind: kindRequest, code: "body_too_large"}
}

func errUnknownModel(name []byte) *answer {
	const shown = 256
	return &answer{status: 404, message: fmt.Sprintf("The model `%s` does not exist.", name[:min(len(name), shown)]), kind: "NotFoundError", code: "model_not_found", param: "model"}
}

func errTooLong(x *exchange) *answer {
	return &answer{
		status: 400, kind: kindRequest, code: "context_length_exceeded", param: "messages",
		message: fmt.Sprintf("the prompt has at least %d tokens; with max_tokens that is more than any node of the model takes", x.polReq.LeastTokens),
	}
}

var classWhat = map[backend.Class]string{
	backend.Refused:    "could not be reached",
	backend.Stale:      "closed the connection",
	backend.Reset:      "closed the connection before it answered",
	backend.Malformed:  "answered with something that is not HTTP",
	backend.Status:     "answered with a server error",
	backend.ErrorEvent: "failed before its first event",
	backend.Silent:     "did not answer in time",
	backend.Dead:       "is dead",
	backend.Local:      "could not be connected to for want of descriptors, ports or memory here",
}

// nodeAnswer says that the request's nodes failed, naming them.
func nodeAnswer(class backend.Class, x *exchange) *answer {
	names := ""
	for i, t := range x.tried[:x.tries] {
		if i > 0 {
			names += ", "
		}
		names += t.name
	}
	status := class.ClientStatus()
	code := "node_failed"
	if status == 504 {
		code = "node_silent"
	}
	return &answer{status: status, kind: kindServer, code: code, message: "node " + classWhat[class] + "; tried: " + names}
}

// fail answers the client with an error and ends the exchange. A request that
// was not read to its end leaves the connection in a state that two parsers
// could take differently: it is closed.
func (l *loop) fail(x *exchange, a *answer) {
	c := x.client
	x.clientKeep = x.clientKeep && c.state == stBusy
	l.answerError(x, a)
}

func (l *loop) answerError(x *exchange, a *answer) {
	x.status = a.status
	if x.outcome == backend.OK && x.tries > 0 {
		x.outcome = x.tried[x.tries-1].class
	}
	if x.idLen == 0 {
		x.idLen = l.ids.next(x.id[:])
	}
	l.answerWith(x, a.status, errorBody(a, x.requestID()), a)
}

// answerWith writes a whole answer of the router's own and ends the exchange.
func (l *loop) answerWith(x *exchange, status int, body []byte, a *answer) {
	c := x.client
	o := wire.SimpleOptions{
		ContentType: "application/json",
		Body:        body,
		RequestID:   x.requestID(),
		Minor:       x.req.Minor,
		KeepAlive:   x.clientKeep && !l.d.draining.Load(),
		Head:        x.req.Method == wire.MethodHead,
	}
	if a != nil {
		o.RetryAfterSeconds, o.Allow = a.retryAfterSeconds, a.allow
	}
	if len(body) == 0 {
		o.ContentType = ""
	}
	l.out = wire.AppendSimple(l.out[:0], status, &o)
	x.status = status
	l.over(x)
	if l.write(c, l.out) {
		l.requestDone(c, o.KeepAlive)
	}
}

// refuse answers a client that is not served at all.
func (l *loop) refuse(c *client, a *answer) {
	x := l.newExchange(c)
	x.clientKeep = false
	l.answerError(x, a)
}

// errorBody is the JSON of an error, in the shape of OpenAI's API.
func errorBody(a *answer, id []byte) []byte {
	type inner struct {
		Message   string  `json:"message"`
		Type      string  `json:"type"`
		Param     *string `json:"param"`
		Code      string  `json:"code"`
		RequestID string  `json:"request_id"`
	}
	e := inner{Message: a.message, Type: a.kind, Code: a.code, RequestID: string(id)}
	if a.param != "" {
		e.Param = &a.param
	}
	body, err := json.Marshal(map[string]inner{"error": e})
	if err != nil {
		panic("BUG: dataplane: error body: " + err.Error())
	}
	return body
}

// answerCache holds the answer of GET /v1/models for one snapshot.
type answerCache struct {
	snap   *fleet.Snapshot
	models []byte
}

// answerModels lists the models that nodes serve, each once.
func (l *loop) answerModels(x *exchange) {
	snap := l.d.opt.Fleet.Load()
	if l.answers.snap != snap {
		l.answers = answerCache{snap: snap, models: modelList(snap)}
	}
	l.answerWith(x, 200, l.answers.models, nil)
}

func modelList(snap *fleet.Snapshot) []byte {
	type model struct {
		ID          string `json:"id"`
		Object      string `json:"object"`
		Created     int64  `json:"created"`
		OwnedBy     string `json:"owned_by"`
		MaxModelLen *int   `json:"max_model_len"`
	}
	list := struct {
		Object string  `json:"object"`
		Data   []model `json:"data"`
	}{Object: "list", Data: []model{}}
	for i := range snap.Models {
		m := &snap.Models[i]
		e := model{ID: m.Name, Object: "model", OwnedBy: "warmpath"}
		if n := longestModelLen(snap, m); n > 0 {
			e.MaxModelLen = &n
		}
		list.Data = append(list.Data, e)
	}
	b, err := json.Marshal(list)
	if err != nil {
		panic("BUG: dataplane: model list: " + err.Error())
	}
	return b
}

func longestModelLen(snap *fleet.Snapshot, m *fleet.Model) int {
	longest := 0
	for _, slot := range m.Slots {
		if n := snap.Nodes[slot]; n != nil {
			longest = max(longest, n.MaxModelLen)
		}
	}
	return longest
}

// answerHealth says whether requests are taken: by a node, or to wait for one. A
// balancer that sent none while there is no node would never see one come.
func (l *loop) answerHealth(x *exchange) {
	snap := l.d.opt.Fleet.Load()
	if snap.Expects(-1) {
		l.answerWith(x, 200, nil, nil)
		return
	}
	for _, n := range snap.Nodes {
		if n.Available() {
			l.answerWith(x, 200, nil, nil)
			return
		}
	}
	l.fail(x, &errNoNode)
}
