package ec2

import (
	"bufio"
	"bytes"
	"context"
	"io"
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
)

// motoImage is one that the server has from its start.
const motoImage = "ami-12c6146b"

// moto is moto's server, which speaks EC2's language: run by the test, on loopback.
type moto struct {
	t   *testing.T
	url string
}

// startMoto runs the server until the test ends. Without it the test is skipped; in
// continuous integration, where everything is set up, that is a failure.
func startMoto(t *testing.T) *moto {
	t.Helper()
	program, err := filepath.Abs("../../../.cache/venv/bin/moto_server")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--host", "127.0.0.1", "--port", "0")
	environ := cmd.Environ()
	if _, err := os.Stat(program); err != nil {
		if slices.Contains(environ, "CI=true") {
			t.Fatal("missing on this host: moto's server; scripts/moto.sh installs it")
		}
		t.Skip("missing on this host: moto's server; scripts/moto.sh installs it")
	}
	// What is there for the SDK is not for the server.
	environ = slices.DeleteFunc(environ, func(line string) bool { return strings.HasPrefix(line, "AWS_") })
	cmd.Env = append(environ, "MOTO_ENABLE_AMI_VALIDATION=1", "MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION=1", "PYTHONUNBUFFERED=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // nothing outlives an aborted test
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	listens := make(chan string, 1)
	read := make(chan struct{})
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
		return &moto{t, at}
	case <-read:
		t.Fatal("moto's server ended at once")
	case <-time.After(time.Minute):
		t.Fatal("moto's server does not listen after a minute")
	}
	return nil
}

// post sends a form to the server, signed by nobody, and returns the answer.
func (m *moto) post(path, service string, form url.Values) string {
	m.t.Helper()
	body := form.Encode()
	if service == "" {
		body = form.Get("body")
	}
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, m.url+path, strings.NewReader(body))
	if err != nil {
		m.t.Fatal(err)
	}
	if service != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/"+service+"/aws4_request, SignedHeaders=host, Signature=none")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		m.t.Fatal(err)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		m.t.Fatalf("%s: status %s, %s, %v", path, resp.Status, said, err)
	}
	return string(said)
}

// authenticate has the server check who asks, until the test ends.
func (m *moto) authenticate(t *testing.T) {
	m.post("/moto-api/reset-auth", "", url.Values{"body": {"0"}})
	t.Cleanup(func() { m.post("/moto-api/reset-auth", "", url.Values{"body": {"inf"}}) })
}

// user makes a user who may do nothing, and returns his access key and secret.
func (m *moto) user(name string) (key, secret string) {
	m.t.Helper()
	m.post("/", "iam", url.Values{"Action": {"CreateUser"}, "UserName": {name}, "Version": {"2010-05-08"}})
	said := m.post("/", "iam", url.Values{"Action": {"CreateAccessKey"}, "UserName": {name}, "Version": {"2010-05-08"}})
	found := regexp.MustCompile(`(?s)<AccessKeyId>(.*?)</AccessKeyId>.*<SecretAccessKey>(.*?)</SecretAccessKey>`).FindStringSubmatch(said)
	if found == nil {
		m.t.Fatalf("no access key in %s", said)
	}
	return found[1], found[2]
}

// options are those of a fleet at the server.
func (m *moto) options(fleet string) Options {
	return Options{
		Region: "us-east-1", Endpoint: m.url, Fleet: fleet, AccessKey: "test", SecretKey: "test",
		Image: motoImage, InstanceType: "g5.xlarge", Port: 8000, Timeout: time.Minute,
	}
}

func (m *moto) open(t testing.TB, fleet string, change func(*Options)) *Actuator {
	t.Helper()
	o := m.options(fleet)
	if change != nil {
		change(&o)
	}
	return open(t, o)
}

// front is a proxy before the server, which may drop answers.
type front struct {
	*httptest.Server
	mu      sync.Mutex
	drops   map[string]int // action → answers to drop; guarded by mu
	counted map[string]int // action → requests that reached the server; guarded by mu
}

func (m *moto) front(t *testing.T) *front {
	f := &front{drops: map[string]int{}, counted: map[string]int{}}
	f.Server = httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		form, _ := url.ParseQuery(string(body))
		f.pass(t, m.url, form.Get("Action"), out, r, body)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *front) pass(t *testing.T, to, action string, out http.ResponseWriter, r *http.Request, body []byte) {
	req, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, to+r.URL.Path, bytes.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	req.Header = r.Header.Clone()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
		return
	}
	f.mu.Lock()
	f.counted[action]++
	drop := f.drops[action] > 0
	if drop {
		f.drops[action]--
	}
	f.mu.Unlock()
	if drop {
		panic(http.ErrAbortHandler) // ends the connection, and nothing is said
	}
	out.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
	out.WriteHeader(resp.StatusCode)
	_, _ = out.Write(said)
}

// drop drops the next answers to an action.
func (f *front) drop(action string, answers int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drops[action] = answers
}

func (f *front) count(action string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counted[action]
}
