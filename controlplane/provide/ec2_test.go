package provide_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"warmpath/controlplane/config"
	"warmpath/controlplane/controltest"
	"warmpath/controlplane/provide"
	"warmpath/scaler"
	"warmpath/scaler/actuate"
)

// credentials are all that the SDK finds.
func credentials(t *testing.T, key, secret string) {
	t.Helper()
	nowhere := filepath.Join(t.TempDir(), "none")
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "", "AWS_ENDPOINT_URL": "", "AWS_ENDPOINT_URL_EC2": "",
		"AWS_CONFIG_FILE": nowhere, "AWS_SHARED_CREDENTIALS_FILE": nowhere, "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
}

// ec2Server speaks enough of EC2's language to make one instance, and keeps what it was
// asked.
type ec2Server struct {
	*httptest.Server
	mu    sync.Mutex
	forms []url.Values
}

func startEC2(t *testing.T) *ec2Server {
	s := &ec2Server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		s.forms = append(s.forms, r.PostForm)
		s.mu.Unlock()
		action, said := r.PostForm.Get("Action"), ""
		if action == "RunInstances" {
			said = "<instancesSet><item><instanceId>i-1</instanceId><instanceState><name>running</name></instanceState>" +
				"<privateIpAddress>10.0.0.7</privateIpAddress><ipAddress>198.51.100.7</ipAddress></item></instancesSet>"
		}
		_, _ = fmt.Fprintf(w, "<%[1]sResponse>%[2]s</%[1]sResponse>", action, said)
	}))
	t.Cleanup(s.Close)
	return s
}

// Each key of an offer reaches the request that makes a node.
func TestEC2Offer(t *testing.T) {
	credentials(t, "key", "secret")
	s := startEC2(t)
	data := filepath.Join(t.TempDir(), "user-data")
	a := provide.New(offers(t, fmt.Sprintf(`{name: cloud, provider: ec2, quota: 1, ec2: {region: eu-south-1, endpoint: %q, launch_template: "lt-0abc:3", image: ami-1,
		instance_type: g6.xlarge, subnet: subnet-1, security_groups: [sg-1, sg-2], key_name: ops, instance_profile: vllm-node, user_data_file: %q,
		spot: true, max_price: "1.20", address: public, port: 8123}}`, s.URL, data)), provide.Options{Log: slog.New(slog.DiscardHandler)})
	defer a.Close()
	one := a.ByOffer["cloud"]
	if _, err := one.List(t.Context()); actuate.AsRefusal(err) == nil || !strings.Contains(err.Error(), "read ec2.user_data_file: open "+data) {
		t.Errorf("without its user data: %v", err)
	}
	write(t, data, "serve {key} of {fleet}")
	made, err := one.Create(t.Context(), actuate.Wanted{Key: "cloud-1"})
	if want := (actuate.Instance{Key: "cloud-1", ID: "i-1", Phase: actuate.Running, URL: "http://198.51.100.7:8123"}); err != nil || made != want {
		t.Fatalf("made %+v, %v, want %+v", made, err, want)
	}
	form := s.forms[len(s.forms)-1]
	for name, want := range map[string]string{
		"Action": "RunInstances", "LaunchTemplate.LaunchTemplateId": "lt-0abc", "LaunchTemplate.Version": "3", "ImageId": "ami-1", "InstanceType": "g6.xlarge",
		"SubnetId": "subnet-1", "SecurityGroupId.1": "sg-1", "SecurityGroupId.2": "sg-2", "KeyName": "ops", "IamInstanceProfile.Name": "vllm-node",
		"UserData":                         "c2VydmUgY2xvdWQtMSBvZiB3YXJtcGF0aC1jbG91ZA==", // serve cloud-1 of warmpath-cloud
		"InstanceMarketOptions.MarketType": "spot", "InstanceMarketOptions.SpotOptions.MaxPrice": "1.20",
		"TagSpecification.1.Tag.2.Key": "warmpath:fleet", "TagSpecification.1.Tag.2.Value": "warmpath-cloud",
	} {
		if got := form.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if _, err := one.Create(t.Context(), actuate.Wanted{Key: "cloud-2"}); actuate.AsRefusal(err) == nil || actuate.AsRefusal(err).Reason != actuate.Quota {
		t.Errorf("beyond its quota: %v", err)
	}
}

// startMoto runs moto's server, which checks who asks as AWS does, until the test ends,
// and returns its URL. Where it is not installed the test is skipped; in continuous
// integration, where everything is set up, that is a failure.
func startMoto(t *testing.T) string {
	t.Helper()
	program, err := filepath.Abs("../../.cache/venv/bin/moto_server")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		if slices.Contains(config.Environ(), "CI=true") {
			t.Fatal("missing on this host: moto's server; scripts/moto.sh installs it")
		}
		t.Skip("missing on this host: moto's server; scripts/moto.sh installs it")
	}
	cmd := exec.Command(program, "--host", "127.0.0.1", "--port", "0")
	cmd.Env = append(slices.DeleteFunc(cmd.Environ(), func(line string) bool { return strings.HasPrefix(line, "AWS_") }), "PYTHONUNBUFFERED=1", "INITIAL_NO_AUTH_ACTION_COUNT=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // nothing outlives an aborted test
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	listens, read := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(read)
		first := regexp.MustCompile(`Running on (http://127\.0\.0\.1:[0-9]+)`)
		lines := bufio.NewScanner(said)
		for lines.Scan() {
			if found := first.FindStringSubmatch(lines.Text()); found != nil {
				listens <- found[1]
			}
		}
		_, _ = io.Copy(io.Discard, said) // a line too long ends the scanner
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
	})
	select {
	case at := <-listens:
		return at
	case <-read:
		t.Fatal("moto's server ended at once")
	case <-time.After(time.Minute):
		t.Fatal("moto's server does not listen after a minute")
	}
	return ""
}

// Of an offer whose credentials AWS does not take, the scaler shows AWS's own words.
func TestEC2WrongCredentials(t *testing.T) {
	server := startMoto(t)
	credentials(t, "AKIANOBODY", "secret")
	c := offers(t, fmt.Sprintf(`{name: cloud, provider: ec2, ec2: {region: us-east-1, endpoint: %q, image: ami-12c6146b, instance_type: g5.xlarge}}`, server))
	c.Min = 1
	var log bytes.Buffer
	opt := provide.Options{Log: slog.New(slog.NewTextHandler(&log, nil))}
	a := provide.New(c, opt)
	defer a.Close()
	const words = "refused for credential: operation error EC2: DescribeInstances, https response error StatusCode: 401, " +
		"api error AuthFailure: AWS was not able to validate the provided access credentials"
	one := a.ByOffer["cloud"]
	_, created := one.Create(t.Context(), actuate.Wanted{Key: "cloud-1"})
	_, listed := one.List(t.Context())
	for _, err := range []error{created, listed, one.Delete(t.Context(), actuate.Instance{Key: "cloud-1"})} {
		if r := actuate.AsRefusal(err); r == nil || r.Reason != actuate.Credential || !strings.HasSuffix(err.Error(), words) {
			t.Errorf("%v\nwant a refusal for the credential, %s", err, words)
		}
	}
	loop := scaler.NewLoop(scaler.LoopOptions{Config: provide.Config(c), Book: provide.Book(c, 0), Actuators: a.ByOffer, Routers: &routers{}, Log: opt.Log})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { loop.Run(ctx) })
	const want = `list the nodes of fleet "warmpath-cloud" in us-east-1: ` + words
	controltest.Eventually(t, want, func() bool {
		s := loop.Status()
		return s != nil && len(s.Offers) == 1 && s.Offers[0].Withheld == want
	})
	cancel()
	running.Wait()
	if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "api error AuthFailure") {
		t.Errorf("the log lacks it: %s", log.String())
	}
}
