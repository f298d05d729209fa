package ec2

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"warmpath/scaler/actuate"
)

func TestOptionsAreChecked(t *testing.T) {
	without(t)
	good := func() Options {
		return Options{Region: "eu-south-1", Fleet: "blue", Image: "ami-1", InstanceType: "g6.xlarge", Port: 8000}
	}
	long := strings.Repeat("x", 300)
	for _, c := range []struct {
		name   string
		change func(*Options)
		words  []string // nil = it is taken
	}{
		{"least", func(*Options) {}, nil},
		{"a template alone", func(o *Options) { o.Image, o.InstanceType, o.LaunchTemplate = "", "", "lt-0abc" }, nil},
		{"a version", func(o *Options) { o.LaunchTemplate = "vllm/a.b:12" }, nil},
		{"no region", func(o *Options) { o.Region = "" }, []string{"region", `""`, "eu-south-1"}},
		{"a wrong region", func(o *Options) { o.Region = "eu-south-1.evil.org/" }, []string{"region", "evil", "eu-south-1"}},
		{"endpoint", func(o *Options) { o.Endpoint = "localhost:5000" }, []string{"endpoint", "localhost:5000", "https://host"}},
		{"endpoint with secrets", func(o *Options) { o.Endpoint = "https://user:hunter2@h/?key=hunter2" }, []string{`endpoint "https://h/": use`}},
		{"no fleet", func(o *Options) { o.Fleet = "" }, []string{"fleet", "empty"}},
		{"a wrong fleet", func(o *Options) { o.Fleet = "Blue*" }, []string{"fleet", "Blue*", "small letters"}},
		{"half a key", func(o *Options) { o.AccessKey = "k" }, []string{"access key", "secret key", "give both"}},
		{"session alone", func(o *Options) { o.Session = "s" }, []string{"session", "access key"}},
		{"two credentials", func(o *Options) { o.AccessKey, o.SecretKey, o.Profile = "k", "s", "ops" }, []string{"access key", `profile "ops"`, "take one out"}},
		{"no such profile", func(o *Options) { o.Profile = "none-such" }, []string{"none-such", "profile"}},
		{"no image", func(o *Options) { o.Image = "" }, []string{"image", "launch template"}},
		{"no type", func(o *Options) { o.InstanceType = "" }, []string{"instance type", "launch template"}},
		{"template", func(o *Options) { o.LaunchTemplate = "a b" }, []string{"launch template", `"a b"`, "lt-…"}},
		{"version", func(o *Options) { o.LaunchTemplate = "vllm:newest" }, []string{"launch template", `"newest"`, "$Latest"}},
		{"group", func(o *Options) { o.SecurityGroups = []string{"sg-1", "default"} }, []string{"security group 2", `"default"`, "sg-…"}},
		{"price without spot", func(o *Options) { o.MaxPrice = "1" }, []string{"max price", `"1"`, "spot"}},
		{"price", func(o *Options) { o.Spot, o.MaxPrice = true, "$1.20" }, []string{"max price", "$1.20", "1.25"}},
		{"price of nothing", func(o *Options) { o.Spot, o.MaxPrice = true, "0.0" }, []string{"max price", "0.0"}},
		{"placeholder", func(o *Options) { o.UserData = "serve {modle}" }, []string{"user data", "{modle}", "{model}", "spaces"}},
		{"long user data", func(o *Options) { o.UserData = strings.Repeat("x", 16<<10+1) }, []string{"user data", "16385", "16384"}},
		{"address", func(o *Options) { o.Address = "external" }, []string{"address", "external", "private or public"}},
		{"port", func(o *Options) { o.Port = 0 }, []string{"port 0", "65535"}},
		{"nodes", func(o *Options) { o.MaxNodes = 1025 }, []string{"max nodes 1025", "1024"}},
		{"timeout", func(o *Options) { o.Timeout = -time.Second }, []string{"timeout -1s"}},
		{"mark", func(o *Options) { o.Tags = map[string]string{"warmpath:key": "x"} }, []string{"warmpath:key", "take it out"}},
		{"name", func(o *Options) { o.Tags = map[string]string{"Name": "x"} }, []string{"Name", "take it out"}},
		{"AWS's tag", func(o *Options) { o.Tags = map[string]string{"AWS:x": "x"} }, []string{"AWS:x", "AWS's own"}},
		{"long tag", func(o *Options) { o.Tags = map[string]string{long: "x"} }, []string{"300 letters", "128"}},
		{"long value", func(o *Options) { o.Tags = map[string]string{"a": long} }, []string{`"a"`, "300 letters", "256"}},
		{"many tags", func(o *Options) {
			o.Tags = map[string]string{}
			for i := range 48 {
				o.Tags[fmt.Sprint(i)] = ""
			}
		}, []string{"48 tags", "at most 47"}},
	} {
		o := good()
		c.change(&o)
		_, err := New(o)
		if (err == nil) != (c.words == nil) {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		for _, word := range c.words {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v, want the words %q", c.name, err, word)
			}
		}
	}
}

func TestUserData(t *testing.T) {
	without(t)
	f := newFake(t)
	for _, c := range []struct{ text, model, words string }{
		{"serve {model}", "", "no model was named"},
		{"serve {model}", "a; rm -rf /", `"a; rm -rf /"`},
		{strings.Repeat("{model}", 1000), "12345678901234567890", "20000 bytes"},
	} {
		a := f.open(func(o *Options) { o.UserData = c.text })
		_, err := a.Create(t.Context(), actuate.Wanted{Key: "n1", Model: c.model})
		if r := actuate.AsRefusal(err); r == nil || r.Reason != actuate.Settings || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%.20q, model %q: %v, want a refusal for settings, %q", c.text, c.model, err, c.words)
		}
	}
	if len(f.calls) != 0 {
		t.Errorf("it asked %q", f.calls)
	}
}

func TestReasons(t *testing.T) {
	for reason, codes := range map[string]string{
		"credential": "AuthFailure UnauthorizedOperation InvalidClientTokenId SignatureDoesNotMatch ExpiredToken RequestExpired OptInRequired PendingVerification Blocked AccessDenied",
		"quota":      "InstanceLimitExceeded VcpuLimitExceeded MaxSpotInstanceCountExceeded VolumeLimitExceeded",
		"capacity":   "InsufficientInstanceCapacity InsufficientHostCapacity InsufficientFreeAddressesInSubnet SpotMaxPriceTooLow UnfulfillableCapacity",
		"settings": "InvalidAMIID.NotFound InvalidAMIID.Malformed InvalidParameterValue InvalidParameterCombination InvalidSubnetID.NotFound InvalidGroup.NotFound " +
			"InvalidKeyPair.NotFound InvalidLaunchTemplateId.NotFound InvalidLaunchTemplateName.NotFoundException InvalidInstanceType Unsupported UnsupportedOperation " +
			"MissingParameter VPCIdNotSpecified OperationNotPermitted TagLimitExceeded TagPolicyViolation",
		"none": "RequestLimitExceeded Throttling BandwidthLimitExceeded IdempotentParameterMismatch InternalError InternalFailure Unavailable ServiceUnavailable IncorrectInstanceState InvalidPaginationToken Whatever",
	} {
		for _, code := range strings.Fields(codes) {
			err := fmt.Errorf("operation error: %w", &smithy.GenericAPIError{Code: code, Message: "in its words"})
			got := "none"
			if r := actuate.AsRefusal(verdict(err)); r != nil {
				got = r.Reason.String()
			}
			if got != reason || !strings.Contains(verdict(err).Error(), "api error "+code+": in its words") {
				t.Errorf("%s: %s, %v, want %s", code, got, verdict(err), reason)
			}
		}
	}
	for code, refused := range map[string]bool{"InsufficientInstanceCapacity": true, "InvalidParameterValue": false, "AuthFailure": false, "VcpuLimitExceeded": false} {
		err := &smithyhttp.ResponseError{
			Response: &smithyhttp.Response{Response: &http.Response{StatusCode: http.StatusInternalServerError}},
			Err:      &smithy.GenericAPIError{Code: code},
		}
		if r := actuate.AsRefusal(verdict(err)); (r != nil) != refused {
			t.Errorf("%s with status 500: %v, want a refusal: %v", code, verdict(err), refused)
		}
	}
	if err := errors.New("connection refused"); verdict(err) != err {
		t.Errorf("%v is %v", err, verdict(err))
	}
}

func TestView(t *testing.T) {
	made := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tag := func(fleet, key string) []types.Tag {
		return []types.Tag{{Key: aws.String("team"), Value: aws.String("x")}, {Key: aws.String(tagFleet), Value: &fleet}, {Key: aws.String(tagKey), Value: &key}}
	}
	in := func(name types.InstanceStateName) *types.InstanceState { return &types.InstanceState{Name: name} }
	for _, c := range []struct {
		name string
		o    Options
		i    types.Instance
		want actuate.Instance
	}{
		{
			"private",
			Options{Address: Private, Port: 8000},
			types.Instance{InstanceId: aws.String("i-1"), State: in("running"), Tags: tag("f", "n1"), LaunchTime: &made, PrivateIpAddress: aws.String("10.1.2.3"), PublicIpAddress: aws.String("5.6.7.8")},
			actuate.Instance{Key: "n1", ID: "i-1", Phase: actuate.Running, URL: "http://10.1.2.3:8000", Since: made},
		},
		{
			"public",
			Options{Address: Public, Port: 80},
			types.Instance{InstanceId: aws.String("i-1"), State: in("running"), Tags: tag("f", "n1"), PrivateIpAddress: aws.String("10.1.2.3"), PublicIpAddress: aws.String("5.6.7.8")},
			actuate.Instance{Key: "n1", ID: "i-1", Phase: actuate.Running, URL: "http://5.6.7.8:80"},
		},
		{
			"no address yet",
			Options{Address: Public, Port: 80},
			types.Instance{InstanceId: aws.String("i-1"), State: in("pending"), Tags: tag("f", "n1"), PrivateIpAddress: aws.String("10.1.2.3")},
			actuate.Instance{Key: "n1", ID: "i-1", Phase: actuate.Pending},
		},
		{
			"stopped",
			Options{},
			types.Instance{InstanceId: aws.String("i-1"), State: in("stopped"), Tags: tag("f", "n1"), StateTransitionReason: aws.String("User initiated (2026-03-01 12:00:00 GMT)")},
			actuate.Instance{Key: "n1", ID: "i-1", Phase: actuate.Ending, Detail: "stopped, and its disks cost until it is ended; User initiated (2026-03-01 12:00:00 GMT)"},
		},
		{
			"taken back",
			Options{},
			types.Instance{InstanceId: aws.String("i-1"), State: in("terminated"), Tags: tag("f", "n1"), StateReason: &types.StateReason{Code: aws.String("Server.SpotInstanceTermination"), Message: aws.String("Spot instance termination")}},
			actuate.Instance{Key: "n1", ID: "i-1", Phase: actuate.Ended, Detail: "terminated; Server.SpotInstanceTermination: Spot instance termination"},
		},
		{
			"a key that is none",
			Options{},
			types.Instance{InstanceId: aws.String("i-1"), State: in("running"), Tags: tag("f", "My Node")},
			actuate.Instance{ID: "i-1", Phase: actuate.Running, Detail: `its tag warmpath:key is "My Node", which is no key`},
		},
		{
			"an orphan in a new state",
			Options{},
			types.Instance{InstanceId: aws.String("i-1"), State: in("hibernating")},
			actuate.Instance{ID: "i-1", Phase: actuate.Running, Detail: "hibernating"},
		},
		{"nothing", Options{}, types.Instance{}, actuate.Instance{Phase: actuate.Running}},
	} {
		if got := c.o.instance(&c.i); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
	long := types.Instance{StateReason: &types.StateReason{Message: aws.String("x" + strings.Repeat("ö", 1000))}}
	if got := (&Options{}).instance(&long).Detail; len(got) > mostDetail || !strings.HasPrefix(got, "xöö") || !utf8.ValidString(got) {
		t.Errorf("detail of %d bytes", len(got))
	}
}

// TestRecentIsBounded: what is remembered is bounded by number and by time.
func TestRecentIsBounded(t *testing.T) {
	r, now := recent{}, time.Now()
	for i := range mostRecent + 10 {
		r.add(actuate.Instance{ID: fmt.Sprint(i)}, now.Add(time.Duration(i)*time.Millisecond))
	}
	if len(r) != mostRecent || r["0"] != nil || r[fmt.Sprint(mostRecent+9)] == nil {
		t.Errorf("%d are remembered", len(r))
	}
	if got := r.merge(nil, now.Add(listsLag+time.Minute)); len(got) != 0 || len(r) != 0 {
		t.Errorf("%d are remembered for ever", len(got))
	}
}
