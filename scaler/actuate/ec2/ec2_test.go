package ec2

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"warmpath/scaler/actuate"
)

func TestLifeOfANode(t *testing.T) {
	without(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		a := f.open(nil)
		begun := time.Now()
		made := create(t, a, "n1")
		if want := (actuate.Instance{Key: "n1", ID: made.ID, Phase: actuate.Pending, Since: made.Since}); made != want || !made.Since.Equal(begun) {
			t.Errorf("made %+v at %v, want %+v", made, begun, want)
		}
		for _, step := range []struct {
			after  time.Duration
			end    bool
			phase  actuate.Phase
			detail string
			url    bool
		}{
			{after: time.Second, phase: actuate.Pending},
			{after: time.Minute, phase: actuate.Running, url: true},
			{end: true, phase: actuate.Ending, detail: "shutting-down"},
			{after: time.Minute, phase: actuate.Ended, detail: "terminated; Client.UserInitiatedShutdown: User initiated shutdown"},
			{after: time.Hour, end: true, phase: actuate.Ended, detail: "terminated; Client.UserInitiatedShutdown: User initiated shutdown"},
		} {
			pass(step.after)
			if step.end {
				if err := a.Delete(t.Context(), made); err != nil {
					t.Fatal(err)
				}
			}
			i := list(t, a)[made.ID]
			if i.Phase != step.phase || i.Detail != step.detail || (i.URL == "http://10.0.0.1:8000") != step.url {
				t.Errorf("after %v it is %+v, want %+v", step.after, i, step)
			}
		}
		// Its key is used up, with and without EC2's listing it.
		if again := create(t, a, "n1"); again.Phase != actuate.Ended || again.ID != made.ID {
			t.Errorf("made again it is %+v", again)
		}
		f.instances = nil
		if again := create(t, a, "n1"); again.Phase != actuate.Ended || again.Key != "n1" || !strings.Contains(again.Detail, "IdempotentInstanceTerminated") {
			t.Errorf("made again when it was forgotten it is %+v", again)
		}
	})
}

// TestListsLag: what EC2 does not list yet is made once, listed by whoever made it, and
// ended.
func TestListsLag(t *testing.T) {
	without(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.lag = 2 * time.Minute
		a, other := f.open(nil), f.open(nil)
		made := create(t, a, "n1")
		if again := create(t, other, "n1"); again.ID != made.ID {
			t.Errorf("another process got %q, want %q", again.ID, made.ID)
		}
		if again := create(t, a, "n1"); again.ID != made.ID {
			t.Errorf("asked again it got %q, want %q", again.ID, made.ID)
		}
		if got := list(t, a); len(got) != 1 || got[made.ID].Key != "n1" {
			t.Errorf("it lists %+v", got)
		}
		if got := list(t, f.open(nil)); len(got) != 0 {
			t.Errorf("a process that was started now lists %+v before EC2 does", got)
		}
		// EC2 does not know it everywhere: it may live on, and nobody may think it gone.
		for _, i := range []actuate.Instance{made, {Key: "n1"}, {ID: made.ID}} {
			err := a.Delete(t.Context(), i)
			if err == nil || actuate.AsRefusal(err) != nil || !strings.Contains(err.Error(), "InvalidInstanceID.NotFound") {
				t.Errorf("end %+v: %v, want an unknown outcome", i, err)
			}
		}
		pass(3 * time.Minute)
		if err := a.Delete(t.Context(), made); err != nil {
			t.Fatal(err)
		}
		if got := list(t, a)[made.ID]; got.Phase != actuate.Ending {
			t.Errorf("told to end it is %+v, whatever EC2 lists", got)
		}
		pass(10 * time.Minute)
		if got := list(t, a)[made.ID]; got.Phase != actuate.Ended || len(a.recent) != 0 {
			t.Errorf("ten minutes later it is %+v, and %d are remembered", got, len(a.recent))
		}
		if err := f.open(nil).Delete(t.Context(), actuate.Instance{Key: "n1", ID: "i-0123"}); err != nil {
			t.Errorf("end what never was: %v", err)
		}
	})
}

// TestOtherSettings: a key that was asked for with other settings is not known to have
// made nothing.
func TestOtherSettings(t *testing.T) {
	without(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.lag = time.Minute
		made := create(t, f.open(nil), "n1")
		a := f.open(func(o *Options) { o.InstanceType = "g6.2xlarge" })
		_, err := a.Create(t.Context(), actuate.Wanted{Key: "n1"})
		if err == nil || actuate.AsRefusal(err) != nil || !strings.Contains(err.Error(), "IdempotentParameterMismatch") {
			t.Errorf("%v, want an unknown outcome", err)
		}
		pass(2 * time.Minute)
		if i := create(t, a, "n1"); i.ID != made.ID || len(f.instances) != 1 {
			t.Errorf("it made %+v, want %q again", i, made.ID)
		}
	})
}

// TestAnswersLost: RunInstances is not repeated when its answer is lost, as the server may
// not know tokens.
func TestAnswersLost(t *testing.T) {
	without(t)
	for _, c := range []struct {
		becomes fate
		words   string
		took    time.Duration
	}{{unheard, errLost.Error(), 0}, {silent, "no answer within 30s", defaultTimeout}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t)
			f.noTokens = true
			a := f.open(nil)
			f.fate = func(action string) fate {
				if action == "RunInstances" {
					return c.becomes
				}
				return fine
			}
			begun := time.Now()
			_, err := a.Create(t.Context(), actuate.Wanted{Key: "n1"})
			if err == nil || actuate.AsRefusal(err) != nil || !strings.Contains(err.Error(), c.words) || time.Since(begun) != c.took {
				t.Errorf("%v after %v, want an unknown outcome, %q, after %v", err, time.Since(begun), c.words, c.took)
			}
			f.fate = nil
			if got := list(t, a); len(got) != 1 || len(f.instances) != 1 {
				t.Fatalf("%d instances, listed %+v", len(f.instances), got)
			}
			if again := create(t, a, "n1"); again.ID != f.instances[0].id || len(f.instances) != 1 {
				t.Errorf("asked again it is %+v, of %d", again, len(f.instances))
			}
		})
	}
}

// TestThrottled: the SDK asks again when it was told that nothing was done.
func TestThrottled(t *testing.T) {
	without(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		a := f.open(nil)
		left := 2
		f.fate = func(action string) fate {
			if action == "RunInstances" && left > 0 {
				left--
				return throttled
			}
			return fine
		}
		create(t, a, "n1")
		left = 3
		_, err := a.Create(t.Context(), actuate.Wanted{Key: "n2"})
		if left != 0 || err == nil || actuate.AsRefusal(err) != nil || !strings.Contains(err.Error(), "Request limit exceeded.") {
			t.Errorf("%v, want an unknown outcome in EC2's words", err)
		}
	})
}

// TestTwoOfOneKey: both are listed, each can be ended by its id, and all of them by the
// key.
func TestTwoOfOneKey(t *testing.T) {
	without(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		a := f.open(nil)
		for range 3 {
			s := &simulated{id: fmt.Sprintf("i-%017x", len(f.instances)+1), tags: map[string]string{tagFleet: "blue", tagKey: "n1"}, made: time.Now()}
			s.become("pending", "running")
			f.instances = append(f.instances, s)
		}
		if got := list(t, a); len(got) != 3 {
			t.Errorf("listed %+v", got)
		}
		if i := create(t, a, "n1"); i.ID != f.instances[0].id || len(f.instances) != 3 {
			t.Errorf("made %+v, of %d", i, len(f.instances))
		}
		if err := a.Delete(t.Context(), actuate.Instance{ID: f.instances[0].id}); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if got := f.live("n1"); !slices.Equal(got, []string{f.instances[1].id, f.instances[2].id}) {
			t.Errorf("left are %q", got)
		}
		if i := create(t, a, "n1"); i.ID != f.instances[1].id {
			t.Errorf("asked again it is %+v, want one that lives", i)
		}
		if err := a.Delete(t.Context(), actuate.Instance{Key: "n1"}); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if got := f.live("n1"); len(got) != 0 {
			t.Errorf("left are %q", got)
		}
	})
}

// TestNothingElseIsEnded: not what has another key or fleet, not what a server lists
// that does not know filters.
func TestNothingElseIsEnded(t *testing.T) {
	without(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		theirs := create(t, f.open(func(o *Options) { o.Fleet = "red" }), "n1")
		a := f.open(nil)
		mine, second := create(t, a, "n1"), create(t, a, "n2")
		for _, i := range []actuate.Instance{theirs, {Key: "n1", ID: theirs.ID}, {ID: theirs.ID}, {ID: "i-*"}, {Key: "n3"}} {
			if err := a.Delete(t.Context(), i); err != nil {
				t.Errorf("end %+v: %v", i, err)
			}
		}
		for _, i := range []actuate.Instance{{Key: "n2", ID: mine.ID}, {Key: "*"}, {}} {
			if err := a.Delete(t.Context(), i); actuate.AsRefusal(err) == nil {
				t.Errorf("end %+v: %v, want a refusal", i, err)
			}
		}
		f.says = func(form url.Values) *http.Response {
			for name := range form {
				if strings.HasPrefix(name, "Filter.") {
					form.Del(name)
				}
			}
			return nil
		}
		if err := a.Delete(t.Context(), actuate.Instance{Key: "n2"}); err != nil {
			t.Error(err)
		}
		if err := a.Delete(t.Context(), actuate.Instance{ID: theirs.ID}); err != nil {
			t.Error(err)
		}
		if got := list(t, a); len(got) != 2 || got[second.ID].Phase != actuate.Ending {
			t.Errorf("listed %+v", got)
		}
		pass(time.Minute)
		if got := f.live("n1"); len(got) != 2 || len(f.live("n2")) != 0 {
			t.Errorf("n1 left are %q, n2 %q", got, f.live("n2"))
		}
	})
}

func TestMostNodes(t *testing.T) {
	without(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.lag = time.Minute
		a := f.open(func(o *Options) { o.MaxNodes = 2 })
		first := create(t, a, "n1")
		create(t, a, "n2")
		_, err := a.Create(t.Context(), actuate.Wanted{Key: "n3"})
		if r := actuate.AsRefusal(err); r == nil || r.Reason != actuate.Quota || !strings.Contains(err.Error(), `"blue" has 2 nodes`) {
			t.Errorf("%v, want a refusal for quota", err)
		}
		create(t, a, "n1") // is there, and makes none
		pass(2 * time.Minute)
		if err := a.Delete(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Minute)
		create(t, a, "n3")
	})
}

// TestManyAtOnce: calls that are under way count, and a key is not asked for twice.
func TestManyAtOnce(t *testing.T) {
	without(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		f.says = func(url.Values) *http.Response { pass(time.Second); return nil }
		a := f.open(func(o *Options) { o.MaxNodes = 3 })
		var wait sync.WaitGroup
		var made, quota, busy atomic.Int32
		for i := range 10 {
			wait.Go(func() {
				_, err := a.Create(t.Context(), actuate.Wanted{Key: fmt.Sprint("n", i/2)})
				switch r := actuate.AsRefusal(err); {
				case err == nil:
					made.Add(1)
				case r != nil && r.Reason == actuate.Quota:
					quota.Add(1)
				default:
					busy.Add(1)
				}
			})
		}
		wait.Wait()
		if len(f.instances) != 3 || made.Load() != 3 || quota.Load()+busy.Load() != 7 || busy.Load() == 0 {
			t.Errorf("%d instances, %d made, %d over quota, %d busy", len(f.instances), made.Load(), quota.Load(), busy.Load())
		}
	})
}

// TestEndlessList: a list that does not end is an error, and so is half of one.
func TestEndlessList(t *testing.T) {
	without(t)
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		a := f.open(nil)
		for i := range 12 {
			create(t, a, fmt.Sprint("n", i))
		}
		if got := list(t, a); len(got) != 12 {
			t.Errorf("%d of 12 are listed", len(got))
		}
		pages := 0
		f.says = func(url.Values) *http.Response {
			if pages++; pages == 2 {
				return failure(400, "InvalidPaginationToken", "expired")
			}
			return nil
		}
		if got, err := a.List(t.Context()); err == nil {
			t.Errorf("half of a list is %+v", got)
		}
		f.says = func(url.Values) *http.Response { return answer("DescribeInstances", "<nextToken>more</nextToken>") }
		if got, err := a.List(t.Context()); err == nil || !strings.Contains(err.Error(), "100 pages") {
			t.Errorf("an endless list is %+v, %v", got, err)
		}
	})
}

func TestNoCredentials(t *testing.T) {
	without(t)
	f := newFake(t)
	a := f.open(func(o *Options) { o.AccessKey, o.SecretKey = "", "" })
	for name, call := range map[string]func() error{
		"create": func() error { _, err := a.Create(t.Context(), actuate.Wanted{Key: "n1"}); return err },
		"list":   func() error { _, err := a.List(t.Context()); return err },
		"delete": func() error { return a.Delete(t.Context(), actuate.Instance{Key: "n1"}) },
	} {
		err := call()
		if r := actuate.AsRefusal(err); r == nil || r.Reason != actuate.Credential || !strings.Contains(err.Error(), "no EC2 IMDS role found") {
			t.Errorf("%s: %v, want a refusal for the credential in the SDK's words", name, err)
		}
	}
	if len(f.calls) != 0 {
		t.Errorf("without credentials it asked %q", f.calls)
	}
}

// TestCallerLeft: that is no refusal, whatever else there is to complain about.
func TestCallerLeft(t *testing.T) {
	without(t)
	f := newFake(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, a := range map[string]*Actuator{
		"with credentials": f.open(nil),
		"without":          f.open(func(o *Options) { o.AccessKey, o.SecretKey = "", "" }),
	} {
		_, err := a.Create(gone, actuate.Wanted{Key: "n1"})
		if !errors.Is(err, context.Canceled) || actuate.AsRefusal(err) != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWhatIsAskedFor looks at the request that reaches EC2.
func TestWhatIsAskedFor(t *testing.T) {
	without(t)
	f := newFake(t)
	a := f.open(func(o *Options) {
		o.LaunchTemplate, o.Subnet, o.SecurityGroups = "vllm.tmpl:$Latest", "subnet-1", []string{"sg-1", "sg-2"}
		o.KeyName, o.InstanceProfile, o.Spot, o.MaxPrice = "ops", "vllm-node", true, "1.25"
		o.UserData = "#!/bin/sh\nrun --key {key} --model '{model}' --fleet {fleet} ${model} $HOME { key } {}"
		o.Tags = map[string]string{"team": "a <b> & c"}
	})
	if _, err := a.Create(t.Context(), actuate.Wanted{Key: "n1", Model: "org/Model-8B"}); err != nil {
		t.Fatal(err)
	}
	form := f.forms[0]
	data, _ := base64.StdEncoding.DecodeString(form.Get("UserData"))
	if want := "#!/bin/sh\nrun --key n1 --model 'org/Model-8B' --fleet blue ${model} $HOME { key } {}"; string(data) != want {
		t.Errorf("user data %q, want %q", data, want)
	}
	form.Del("UserData")
	want := url.Values{}
	for name, value := range map[string]string{
		"Action": "RunInstances", "Version": "2016-11-15", "MinCount": "1", "MaxCount": "1",
		"ClientToken":                       token("blue", "n1"),
		"LaunchTemplate.LaunchTemplateName": "vllm.tmpl", "LaunchTemplate.Version": "$Latest",
		"ImageId": "ami-0abc", "InstanceType": "g6.xlarge", "SubnetId": "subnet-1", "SecurityGroupId.1": "sg-1", "SecurityGroupId.2": "sg-2",
		"KeyName": "ops", "IamInstanceProfile.Name": "vllm-node", "InstanceInitiatedShutdownBehavior": "terminate",
		"InstanceMarketOptions.MarketType": "spot", "InstanceMarketOptions.SpotOptions.MaxPrice": "1.25",
		"InstanceMarketOptions.SpotOptions.SpotInstanceType": "one-time", "InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior": "terminate",
		"TagSpecification.1.ResourceType": "instance", "TagSpecification.2.ResourceType": "volume",
	} {
		want.Set(name, value)
	}
	for i, tag := range [][2]string{{"Name", "n1"}, {"team", "a <b> & c"}, {"warmpath:fleet", "blue"}, {"warmpath:key", "n1"}} {
		for _, spec := range []int{1, 2} {
			want.Set(fmt.Sprintf("TagSpecification.%d.Tag.%d.Key", spec, i+1), tag[0])
			want.Set(fmt.Sprintf("TagSpecification.%d.Tag.%d.Value", spec, i+1), tag[1])
		}
	}
	if form.Encode() != want.Encode() {
		t.Errorf("asked for\n%s\nwant\n%s", strings.ReplaceAll(form.Encode(), "&", "\n"), strings.ReplaceAll(want.Encode(), "&", "\n"))
	}
}

func TestTokens(t *testing.T) {
	if got := token("blue", "n1"); got != token("blue", "n1") || len(got) != 64 {
		t.Errorf("token %q", got)
	}
	seen := map[string]string{}
	for _, pair := range [][2]string{{"a", "b"}, {"ab", ""}, {"", "ab"}, {"a", "b1"}, {"b", "a"}} {
		if other, twice := seen[token(pair[0], pair[1])]; twice {
			t.Errorf("%q and %q have one token", pair, other)
		}
		seen[token(pair[0], pair[1])] = fmt.Sprint(pair)
	}
}
