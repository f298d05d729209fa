package ec2

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warmpath/scaler/actuate"
)

// TestSameWords: what goes wrong again has EC2's words, and the same words again; the id of
// the request is in the log.
func TestSameWords(t *testing.T) {
	without(t)
	f := newFake(t)
	asked := 0
	f.says = func(url.Values) *http.Response {
		asked++
		return respond(401, fmt.Sprintf("<Response><Errors><Error><Code>AuthFailure</Code><Message>AWS was not able to validate the provided access credentials</Message></Error></Errors><RequestID>id-%d</RequestID></Response>", asked))
	}
	var log bytes.Buffer
	a := f.open(func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	const want = `list the nodes of fleet "blue" in eu-south-1: refused for credential: operation error EC2: DescribeInstances, ` +
		"https response error StatusCode: 401, api error AuthFailure: AWS was not able to validate the provided access credentials"
	for range 2 {
		if _, err := a.List(t.Context()); err == nil || err.Error() != want {
			t.Errorf("%v\nwant\n%s", err, want)
		}
	}
	for n := range asked {
		if id := fmt.Sprint("request_id=id-", n+1); !strings.Contains(log.String(), id) {
			t.Errorf("the log lacks %s: %s", id, log.String())
		}
	}
}

// TestSomeAreEnded: a refusal says that nothing was ended, so that of one of several is
// none.
func TestSomeAreEnded(t *testing.T) {
	without(t)
	for _, c := range []struct {
		name    string
		says    [2]func() *http.Response // to the first and to the second; nil = it is ended
		refused bool
		words   []string
	}{
		{"neither", [2]func() *http.Response{denied, denied}, true, []string{"refused for credential", "i-1: ", "i-2: ", "UnauthorizedOperation: not you"}},
		{"the first", [2]func() *http.Response{nil, denied}, false, []string{"i-2: ", "UnauthorizedOperation: not you"}},
		{"the second", [2]func() *http.Response{denied, nil}, false, []string{"i-1: ", "UnauthorizedOperation: not you"}},
		{"perhaps one", [2]func() *http.Response{broken, denied}, false, []string{"i-1: ", "InternalError: oh", "i-2: ", "UnauthorizedOperation: not you"}},
		{"both", [2]func() *http.Response{nil, nil}, false, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			for i := range 2 {
				s := &simulated{id: fmt.Sprint("i-", i+1), tags: map[string]string{tagFleet: "blue", tagKey: "n1"}, made: time.Now()}
				s.become("running")
				f.instances = append(f.instances, s)
			}
			f.says = func(form url.Values) *http.Response {
				for i, say := range c.says {
					if say != nil && form.Get("InstanceId.1") == f.instances[i].id {
						return say()
					}
				}
				return nil
			}
			err := f.open(nil).Delete(t.Context(), actuate.Instance{Key: "n1"})
			if (err == nil) != (c.words == nil) || (actuate.AsRefusal(err) != nil) != c.refused {
				t.Errorf("%s: %v, want a refusal: %v", c.name, err, c.refused)
			}
			for _, word := range c.words {
				if err == nil || !strings.Contains(err.Error(), word) {
					t.Errorf("%s: %v, want the words %q", c.name, err, word)
				}
			}
		})
	}
}

func denied() *http.Response { return failure(403, "UnauthorizedOperation", "not you") }
func broken() *http.Response { return failure(500, "InternalError", "oh") }

// TestCredentialsFromElsewhere: that there are none is a refusal; that nobody says whether
// there are any, in time, is none.
func TestCredentialsFromElsewhere(t *testing.T) {
	without(t)
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-hang
		http.Error(w, `{"code":"Nobody","message":"who are you"}`, http.StatusForbidden)
	}))
	defer server.Close()
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", server.URL)
	f := newFake(t)
	for _, c := range []struct {
		timeout time.Duration
		refused bool
		words   string
	}{{100 * time.Millisecond, false, "no answer within 100ms"}, {time.Minute, true, "who are you"}} {
		if c.refused {
			close(hang) // the SDK goes on asking for whoever asked before
		}
		a := f.open(func(o *Options) { o.AccessKey, o.SecretKey, o.Timeout = "", "", c.timeout })
		_, err := a.Create(t.Context(), actuate.Wanted{Key: "n1"})
		r := actuate.AsRefusal(err)
		if (r != nil) != c.refused || r != nil && r.Reason != actuate.Credential || err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%v, want a refusal: %v, %q", err, c.refused, c.words)
		}
	}
	if len(f.calls) != 0 {
		t.Errorf("without credentials it asked %q", f.calls)
	}
}
