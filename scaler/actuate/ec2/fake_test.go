package ec2

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"warmpath/scaler/actuate"
)

// fake is EC2 in memory, as far as this package asks it: lists that lag, tokens that do
// not, and instances that take time. It runs in virtual time too, which a server does not.
type fake struct {
	t  testing.TB
	mu sync.Mutex

	instances []*simulated
	tokens    map[string]*simulated
	asked     map[string]string // token → what was asked with it
	// lag is how long what was done does not show in lists.
	lag      time.Duration
	noTokens bool // as moto's server
	// fate is what becomes of a request; nil = all is fine.
	fate  func(action string) fate
	says  func(form url.Values) *http.Response // in place of EC2; nil = EC2
	late  []url.Values                         // requests that are on their way
	calls []string                             // the actions asked for
	forms []url.Values                         // of RunInstances
}

// fate is what becomes of a request.
type fate int

const (
	fine      fate = iota
	lost           // it never arrives
	unheard        // it is done, and the answer is lost
	silent         // it is done, and there is no answer
	late           // it arrives when the caller has gone
	throttled      // it is not done, and told so
	refused        // there is no capacity
	fates
)

// simulated is one instance.
type simulated struct {
	id, token string
	tags      map[string]string
	made      time.Time
	states    []state // in time
}

type state struct {
	name string
	at   time.Time
}

func newFake(t testing.TB) *fake {
	return &fake{t: t, tokens: map[string]*simulated{}, asked: map[string]string{}}
}

// state is an instance's as it was at a time, "" before it was made.
func (s *simulated) state(at time.Time) string {
	name := ""
	for _, one := range s.states {
		if !one.at.After(at) {
			name = one.name
		}
	}
	return name
}

func (s *simulated) become(names ...string) {
	now := time.Now()
	for i, name := range names {
		s.states = append(s.states, state{name, now.Add(time.Duration(i) * 10 * time.Second)})
	}
}

// live reports whether it costs more than a record.
func (s *simulated) live() bool { return s.state(time.Now()) != "terminated" }

// RoundTrip implements http.RoundTripper.
func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	body, _ := io.ReadAll(r.Body)
	form, err := url.ParseQuery(string(body))
	if err != nil {
		f.t.Errorf("form %q: %v", body, err)
	}
	action := form.Get("Action")
	if f.says != nil {
		if resp := f.says(form); resp != nil {
			return resp, nil
		}
	}
	becomes := fine
	if f.fate != nil {
		becomes = f.fate(action)
	}
	switch becomes {
	case lost:
		return nil, errLost
	case unheard:
		f.do(action, form)
		return nil, errLost
	case silent:
		f.do(action, form)
		<-r.Context().Done()
		return nil, r.Context().Err()
	case late:
		f.late = append(f.late, form)
		return nil, errLost
	case throttled:
		return failure(503, "RequestLimitExceeded", "Request limit exceeded."), nil
	case refused:
		return failure(500, "InsufficientInstanceCapacity", "We currently do not have sufficient g6.xlarge capacity in the Availability Zone you requested."), nil
	}
	return f.do(action, form), nil
}

func (f *fake) do(action string, form url.Values) *http.Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, action)
	switch action {
	case "RunInstances":
		f.forms = append(f.forms, form)
		return f.run(form)
	case "DescribeInstances":
		return f.describe(form)
	case "TerminateInstances":
		return f.terminate(form.Get("InstanceId.1"))
	}
	return failure(400, "InvalidAction", action)
}

func (f *fake) run(form url.Values) *http.Response {
	if form.Get("MinCount") != "1" || form.Get("MaxCount") != "1" {
		f.t.Errorf("asked for %s to %s instances", form.Get("MinCount"), form.Get("MaxCount"))
	}
	token := form.Get("ClientToken")
	if len(token) != 64 {
		f.t.Errorf("token %q has %d bytes, want 64", token, len(token))
	}
	if s := f.tokens[token]; s != nil && !f.noTokens {
		switch {
		case f.asked[token] != form.Encode():
			return failure(400, "IdempotentParameterMismatch", "The request uses the same client token as a previous, but non-identical request.")
		case s.state(time.Now()) == "terminated":
			return failure(400, "IdempotentInstanceTerminated", "The client token belongs to an instance that has been terminated.")
		}
		return answer("RunInstances", "<instancesSet>"+s.xml(time.Now())+"</instancesSet>")
	}
	s := &simulated{id: fmt.Sprintf("i-%017x", len(f.instances)+1), token: token, tags: tags(form), made: time.Now()}
	s.become("pending", "running")
	f.instances, f.tokens[token], f.asked[token] = append(f.instances, s), s, form.Encode()
	return answer("RunInstances", "<instancesSet>"+s.xml(time.Now())+"</instancesSet>")
}

// tags are those of the first specification, which must be an instance's.
func tags(form url.Values) map[string]string {
	all := map[string]string{}
	for i := 1; form.Has(fmt.Sprintf("TagSpecification.1.Tag.%d.Key", i)); i++ {
		all[form.Get(fmt.Sprintf("TagSpecification.1.Tag.%d.Key", i))] = form.Get(fmt.Sprintf("TagSpecification.1.Tag.%d.Value", i))
	}
	if form.Get("TagSpecification.1.ResourceType") != "instance" {
		return nil
	}
	return all
}

func (f *fake) describe(form url.Values) *http.Response {
	at := time.Now().Add(-f.lag)
	var fit []*simulated
	for _, s := range f.instances {
		if s.state(at) != "" && s.matches(form) {
			fit = append(fit, s)
		}
	}
	size, _ := strconv.Atoi(form.Get("MaxResults"))
	if size < 5 || size > 1000 {
		return failure(400, "InvalidParameterValue", "Value ( "+form.Get("MaxResults")+" ) for parameter maxResults is invalid. Expecting a value greater than or equal to 5 and less than or equal to 1000.")
	}
	from, _ := strconv.Atoi(form.Get("NextToken"))
	to, next := min(from+size, len(fit)), ""
	if to < len(fit) {
		next = "<nextToken>" + strconv.Itoa(to) + "</nextToken>"
	}
	var set strings.Builder
	for _, s := range fit[min(from, to):to] {
		set.WriteString("<item><instancesSet>" + s.xml(at) + "</instancesSet></item>")
	}
	return answer("DescribeInstances", "<reservationSet>"+set.String()+"</reservationSet>"+next)
}

func (s *simulated) matches(form url.Values) bool {
	for i := 1; form.Has(fmt.Sprintf("Filter.%d.Name", i)); i++ {
		name, value := form.Get(fmt.Sprintf("Filter.%d.Name", i)), form.Get(fmt.Sprintf("Filter.%d.Value.1", i))
		if tag, ok := strings.CutPrefix(name, "tag:"); ok && s.tags[tag] != value || name == "instance-id" && s.id != value {
			return false
		}
	}
	return true
}

// xml is the instance as it was at that time.
func (s *simulated) xml(at time.Time) string {
	var out strings.Builder
	name := s.state(at)
	fmt.Fprintf(&out, "<item><instanceId>%s</instanceId><launchTime>%s</launchTime>", s.id, s.made.UTC().Format(time.RFC3339))
	fmt.Fprintf(&out, "<instanceState><name>%s</name></instanceState><tagSet>", name)
	for key, value := range s.tags {
		fmt.Fprintf(&out, "<item><key>%s</key><value>", key)
		_ = xml.EscapeText(&out, []byte(value))
		out.WriteString("</value></item>")
	}
	out.WriteString("</tagSet>")
	if name == "running" {
		out.WriteString("<privateIpAddress>10.0.0." + strings.TrimLeft(s.id, "i-0") + "</privateIpAddress>")
	}
	if name == "terminated" {
		out.WriteString("<stateReason><code>Client.UserInitiatedShutdown</code><message>Client.UserInitiatedShutdown: User initiated shutdown</message></stateReason>")
	}
	out.WriteString("</item>")
	return out.String()
}

func (f *fake) terminate(id string) *http.Response {
	i := slices.IndexFunc(f.instances, func(s *simulated) bool { return s.id == id })
	if i < 0 || f.instances[i].state(time.Now().Add(-f.lag)) == "" {
		return failure(400, "InvalidInstanceID.NotFound", "The instance ID '"+id+"' does not exist")
	}
	if name := f.instances[i].state(time.Now()); name != "terminated" && name != "shutting-down" {
		f.instances[i].become("shutting-down", "terminated")
	}
	return answer("TerminateInstances", "<instancesSet/>")
}

func answer(action, body string) *http.Response {
	return respond(200, "<"+action+"Response>"+body+"<requestId>r-1</requestId></"+action+"Response>")
}

// failure is an answer with an error, in EC2's form.
func failure(status int, code, message string) *http.Response {
	var said strings.Builder
	_ = xml.EscapeText(&said, []byte(message))
	return respond(status, "<Response><Errors><Error><Code>"+code+"</Code><Message>"+said.String()+"</Message></Error></Errors><RequestID>r-1</RequestID></Response>")
}

func respond(status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"text/xml;charset=UTF-8"}},
		Body: io.NopCloser(strings.NewReader(`<?xml version="1.0" encoding="UTF-8"?>` + body)), ContentLength: -1,
	}
}

// open returns an actuator of the fleet at the fake.
func (f *fake) open(change func(*Options)) *Actuator {
	f.t.Helper()
	o := Options{
		Region: "eu-south-1", Endpoint: "http://ec2.test", Fleet: "blue", AccessKey: "key", SecretKey: "secret",
		Image: "ami-0abc", InstanceType: "g6.xlarge", Port: 8000, Client: &http.Client{Transport: f},
	}
	if change != nil {
		change(&o)
	}
	return open(f.t, o)
}

// open returns an actuator, whatever the SDK would read on this host.
func open(t testing.TB, o Options) *Actuator {
	t.Helper()
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	a.page = 5
	return a
}

// live returns the ids of a key's instances that are not terminated.
func (f *fake) live(key string) (ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.instances {
		if s.tags[tagKey] == key && s.live() {
			ids = append(ids, s.id)
		}
	}
	return ids
}

// without runs a test in an environment that tells the SDK nothing.
func without(t *testing.T) {
	t.Helper()
	nowhere := t.TempDir() + "/none"
	for name, value := range map[string]string{
		"AWS_CONFIG_FILE": nowhere, "AWS_SHARED_CREDENTIALS_FILE": nowhere, "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "", "AWS_DEFAULT_PROFILE": "",
		"AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_EC2": "", "AWS_USE_FIPS_ENDPOINT": "", "AWS_USE_DUALSTACK_ENDPOINT": "", "AWS_CA_BUNDLE": "",
		"AWS_MAX_ATTEMPTS": "", "AWS_RETRY_MODE": "", "AWS_DEFAULTS_MODE": "",
		"AWS_WEB_IDENTITY_TOKEN_FILE": "", "AWS_CONTAINER_CREDENTIALS_FULL_URI": "", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "",
	} {
		t.Setenv(name, value)
	}
}

func create(t testing.TB, a *Actuator, key string) actuate.Instance {
	t.Helper()
	i, err := a.Create(t.Context(), actuate.Wanted{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func list(t testing.TB, a *Actuator) map[string]actuate.Instance {
	t.Helper()
	all, err := a.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	byID := map[string]actuate.Instance{}
	for _, i := range all {
		byID[i.ID] = i
	}
	if len(byID) != len(all) {
		t.Fatalf("an instance is listed twice: %+v", all)
	}
	return byID
}

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.After(d) }

var errLost = errors.New("connection reset by peer")
