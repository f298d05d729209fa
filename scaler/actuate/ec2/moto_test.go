package ec2

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"pgregory.net/rapid"

	"warmpath/scaler/actuate"
	"warmpath/scaler/actuate/actuatetest"
)

// TestMoto is what the SDK and a server that somebody else wrote make of this package.
// The server knows no tokens, and its lists do not lag.
func TestMoto(t *testing.T) {
	without(t)
	m := startMoto(t)
	for _, one := range []struct {
		name string
		test func(*testing.T, *moto)
	}{
		{"conforms", motoConforms},
		{"pages", motoPages},
		{"what it runs", motoRuns},
		{"stopped", motoStopped},
		{"twice", motoTwice},
		{"wrong credentials", motoCredentials},
		{"the answer is lost", motoLost},
		{"any order", motoAnyOrder},
	} {
		t.Run(one.name, func(t *testing.T) { one.test(t, m) })
	}
}

func motoConforms(t *testing.T, m *moto) {
	opens := func(fleet string, change func(*Options)) actuatetest.New {
		return func(t *testing.T) actuate.Actuator { return m.open(t, fleet, change) }
	}
	actuatetest.Conforms(t, opens("blue", nil),
		actuatetest.OtherFleet(opens("red", nil)),
		actuatetest.Patience(30*time.Second, 50*time.Millisecond),
		actuatetest.Model("m"),
		actuatetest.Refuses("no such image", actuate.Settings, opens("blue", func(o *Options) { o.Image = "ami-00000000" }),
			"us-east-1", "api error InvalidAMIID.NotFound: The image id '[ami-00000000]' does not exist"),
		actuatetest.Refuses("no such type", actuate.Settings, opens("blue", func(o *Options) { o.InstanceType = "g0.none" }),
			"api error InvalidInstanceType.NotFound: The instance type 'g0.none' does not exist"),
		actuatetest.Refuses("no such subnet", actuate.Settings, opens("blue", func(o *Options) { o.Subnet = "subnet-0000" }),
			"api error InvalidSubnetID.NotFound: ", "subnet-0000"),
		actuatetest.Refuses("no such template", actuate.Settings, opens("blue", func(o *Options) { o.LaunchTemplate = "no-such" }),
			"api error InvalidLaunchTemplateName.NotFoundException: At least one of the launch templates specified in the request does not exist."),
		actuatetest.Refuses("no room", actuate.Quota, opens("full", func(o *Options) { o.MaxNodes = m.full(t) }), "has 1 nodes"),
	)
}

// full makes the node that the fleet full may have.
func (m *moto) full(t *testing.T) int {
	create(t, m.open(t, "full", nil), "n1")
	return 1
}

func motoPages(t *testing.T, m *moto) {
	f := m.front(t)
	a := m.open(t, "paged", func(o *Options) { o.Endpoint = f.URL })
	for i := range 12 {
		create(t, a, fmt.Sprint("n", i))
	}
	later := m.open(t, "paged", func(o *Options) { o.Endpoint = f.URL })
	before := f.count("DescribeInstances")
	if got := list(t, later); len(got) != 12 {
		t.Errorf("%d of 12 are listed", len(got))
	}
	if pages := f.count("DescribeInstances") - before; pages != 3 {
		t.Errorf("the list had %d pages, want 3", pages)
	}
	create(t, later, "n11")
	if got := list(t, later); len(got) != 12 {
		t.Errorf("%d are listed after the last was asked for again", len(got))
	}
}

// motoRuns looks at the instance that is made from a template.
func motoRuns(t *testing.T, m *moto) {
	client := m.open(t, "runs", nil).client
	_, err := client.CreateLaunchTemplate(t.Context(), &sdk.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String("vllm"),
		LaunchTemplateData: &types.RequestLaunchTemplateData{ImageId: aws.String(motoImage), InstanceType: "g5.2xlarge"},
	})
	if err != nil {
		t.Fatal(err)
	}
	a := m.open(t, "runs", func(o *Options) {
		o.LaunchTemplate, o.Image, o.InstanceType, o.Spot, o.MaxPrice = "vllm:1", "", "", true, "0.5"
		o.UserData, o.Tags = "serve {model} as {key} of {fleet}", map[string]string{"team": "a & b"}
	})
	begun := time.Now()
	made, err := a.Create(t.Context(), actuate.Wanted{Key: "n1", Model: "org/m"})
	if err != nil {
		t.Fatal(err)
	}
	if since := made.Since.Sub(begun); since.Abs() > time.Minute {
		t.Errorf("made at %v, asked for at %v", made.Since, begun)
	}
	out, err := client.DescribeInstances(t.Context(), &sdk.DescribeInstancesInput{InstanceIds: []string{made.ID}})
	if err != nil {
		t.Fatal(err)
	}
	i := out.Reservations[0].Instances[0]
	if i.InstanceType != "g5.2xlarge" || aws.ToString(i.ImageId) != motoImage || i.InstanceLifecycle != "spot" {
		t.Errorf("it is %v of %v, %v", i.InstanceType, aws.ToString(i.ImageId), i.InstanceLifecycle)
	}
	for name, want := range map[string]string{"Name": "n1", "team": "a & b", tagFleet: "runs", tagKey: "n1"} {
		if got := tagOf(&i, name); got != want {
			t.Errorf("tag %s is %q, want %q", name, got, want)
		}
	}
	if got := list(t, a)[made.ID]; got.URL != "http://"+aws.ToString(i.PrivateIpAddress)+":8000" || got.Phase != actuate.Running {
		t.Errorf("listed as %+v", got)
	}
	for name, want := range map[types.InstanceAttributeName]string{
		types.InstanceAttributeNameUserData:                          "serve org/m as n1 of runs",
		types.InstanceAttributeNameInstanceInitiatedShutdownBehavior: "terminate",
	} {
		said, err := client.DescribeInstanceAttribute(t.Context(), &sdk.DescribeInstanceAttributeInput{InstanceId: &made.ID, Attribute: name})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if said.InstanceInitiatedShutdownBehavior != nil {
			got = aws.ToString(said.InstanceInitiatedShutdownBehavior.Value)
		}
		if said.UserData != nil && got == "" {
			text, _ := base64.StdEncoding.DecodeString(aws.ToString(said.UserData.Value))
			got = string(text)
		}
		if got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	volumes, err := client.DescribeVolumes(t.Context(), &sdk.DescribeVolumesInput{Filters: []types.Filter{{Name: aws.String("tag:" + tagKey), Values: []string{"n1"}}, {Name: aws.String("tag:" + tagFleet), Values: []string{"runs"}}}})
	if err != nil || len(volumes.Volumes) != 1 {
		t.Errorf("%d disks carry the marks: %v", len(volumes.Volumes), err)
	}
}

// motoStopped: what somebody stopped is not gone before it is ended.
func motoStopped(t *testing.T, m *moto) {
	a := m.open(t, "stopped", nil)
	made := create(t, a, "n1")
	if _, err := a.client.StopInstances(t.Context(), &sdk.StopInstancesInput{InstanceIds: []string{made.ID}}); err != nil {
		t.Fatal(err)
	}
	for _, i := range []actuate.Instance{list(t, a)[made.ID], create(t, a, "n1")} {
		if i.ID != made.ID || i.Phase != actuate.Ending || !strings.Contains(i.Detail, "disks cost") || !strings.Contains(i.Detail, "User initiated") {
			t.Errorf("stopped it is %+v", i)
		}
	}
	if err := a.Delete(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	if i := list(t, m.open(t, "stopped", nil))[made.ID]; i.Phase != actuate.Ended || !strings.Contains(i.Detail, "Client.UserInitiatedShutdown") {
		t.Errorf("ended it is %+v", i)
	}
}

// motoTwice: of two instances with one key both are listed, and the one that was named is
// ended.
func motoTwice(t *testing.T, m *moto) {
	a := m.open(t, "twice", nil)
	first := create(t, a, "n1")
	in, err := a.o.request(actuate.Wanted{Key: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	out, err := a.client.RunInstances(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	second := aws.ToString(out.Instances[0].InstanceId)
	if second == first.ID {
		t.Skip("the server knows tokens")
	}
	if got := list(t, a); len(got) != 2 || got[first.ID].Key != "n1" || got[second].Key != "n1" {
		t.Errorf("listed %+v", got)
	}
	if err := a.Delete(t.Context(), actuate.Instance{ID: first.ID}); err != nil {
		t.Fatal(err)
	}
	if got := list(t, a); got[first.ID].Phase < actuate.Ending || got[second].Phase != actuate.Running {
		t.Errorf("the first was ended, and listed are %+v", got)
	}
	if i := create(t, m.open(t, "twice", nil), "n1"); i.ID != second {
		t.Errorf("asked for again it is %+v, want %q", i, second)
	}
}

func motoCredentials(t *testing.T, m *moto) {
	key, secret := m.user("nobody")
	there := m.open(t, "denied", nil)
	create(t, there, "n1")
	m.authenticate(t)
	for _, c := range []struct{ name, key, secret, words string }{
		{"nobody's key", "AKIANOBODY", "secret", "api error AuthFailure: AWS was not able to validate the provided access credentials"},
		{"another secret", key, "wrong", "api error AuthFailure: AWS was not able to validate the provided access credentials"},
		{"no leave", key, secret, "is not authorized to perform: ec2:"},
	} {
		a := m.open(t, "denied", func(o *Options) { o.AccessKey, o.SecretKey = c.key, c.secret })
		for call, do := range map[string]func() error{
			"create": func() error { _, err := a.Create(t.Context(), actuate.Wanted{Key: "n2"}); return err },
			"list":   func() error { _, err := a.List(t.Context()); return err },
			"delete": func() error { return a.Delete(t.Context(), actuate.Instance{Key: "n1"}) },
		} {
			err := do()
			if r := actuate.AsRefusal(err); r == nil || r.Reason != actuate.Credential || !strings.Contains(err.Error(), c.words) {
				t.Errorf("%s, %s: %v, want a refusal for the credential, %q", c.name, call, err, c.words)
			}
		}
	}
}

// motoLost: the server makes a node, and nobody hears of it.
func motoLost(t *testing.T, m *moto) {
	f := m.front(t)
	a := m.open(t, "lost", func(o *Options) { o.Endpoint = f.URL })
	f.drop("RunInstances", 1)
	_, err := a.Create(t.Context(), actuate.Wanted{Key: "n1"})
	if err == nil || actuate.AsRefusal(err) != nil || !strings.Contains(err.Error(), "EOF") {
		t.Fatalf("%v, want an unknown outcome", err)
	}
	got := list(t, a)
	if len(got) != 1 {
		t.Fatalf("listed %+v", got)
	}
	for _, again := range []*Actuator{a, m.open(t, "lost", nil)} {
		if i := create(t, again, "n1"); got[i.ID].Key != "n1" {
			t.Errorf("asked again it is %+v, want one of %+v", i, got)
		}
	}
	if made := f.count("RunInstances"); made != 1 {
		t.Errorf("it was asked for %d times", made)
	}
	f.drop("TerminateInstances", 1) // which the SDK asks for once more
	if err := a.Delete(t.Context(), actuate.Instance{Key: "n1"}); err != nil || f.count("TerminateInstances") != 2 {
		t.Errorf("%v after %d requests", err, f.count("TerminateInstances"))
	}
}

// motoAnyOrder: never two live instances of one key, whatever is asked in whatever order
// by two processes, and whichever answers are lost.
func motoAnyOrder(t *testing.T, m *moto) {
	type step struct {
		What, Key, Process int
		Lost               bool
	}
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{rapid.IntRange(0, 4).Draw(t, "what"), rapid.IntRange(0, 1).Draw(t, "key"), rapid.IntRange(0, 1).Draw(t, "process"), rapid.Bool().Draw(t, "lost")}
	}), 6, 14)
	f := m.front(t)
	for seed := range 5 {
		fleet := fmt.Sprint("order", seed)
		at := func() *Actuator { return m.open(t, fleet, func(o *Options) { o.Endpoint = f.URL }) }
		processes := [2]*Actuator{at(), at()}
		done := steps.Example(seed)
		for _, s := range done {
			a, key := processes[s.Process], fmt.Sprint("n", s.Key)
			f.drop("RunInstances", 0)
			if s.Lost {
				f.drop("RunInstances", 1)
			}
			switch s.What {
			case 0, 1:
				if _, err := a.Create(t.Context(), actuate.Wanted{Key: key}); actuate.AsRefusal(err) != nil {
					t.Errorf("%+v: %v", s, err)
				}
			case 2:
				if err := a.Delete(t.Context(), actuate.Instance{Key: key}); err != nil {
					t.Errorf("%+v: %v", s, err)
				}
			case 3:
				list(t, a)
			case 4:
				processes[s.Process] = at()
			}
			var live []string
			for _, i := range list(t, m.open(t, fleet, nil)) {
				if i.Phase < actuate.Ending {
					live = append(live, i.Key)
				}
			}
			if slices.Sort(live); len(slices.Compact(slices.Clone(live))) != len(live) {
				t.Fatalf("live are %q after %+v", live, done)
			}
		}
	}
}
