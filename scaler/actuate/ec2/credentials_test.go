package ec2

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"warmpath/scaler/actuate"
)

// signed lets those requests through that a key has signed.
type signed struct {
	*fake
	key string
}

// RoundTrip implements http.RoundTripper.
func (s signed) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.Contains(r.Header.Get("Authorization"), "Credential="+s.key+"/") {
		return failure(401, "AuthFailure", "AWS was not able to validate the provided access credentials"), nil
	}
	return s.fake.RoundTrip(r)
}

// Credentials that were missing or wrong and are right now are used without another
// actuator, and what is known of the nodes stays.
func TestCredentialsAreCorrected(t *testing.T) {
	without(t)
	file := filepath.Join(t.TempDir(), "credentials")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	profile := func(key string) string {
		return fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = secret\n", key)
	}
	f := newFake(t)
	f.lag = listsLag // nobody but the actuator knows what it made
	a := f.open(func(o *Options) {
		o.AccessKey, o.SecretKey = "", ""
		o.Client = &http.Client{Transport: signed{f, "AKIARIGHT"}}
	})
	refused := func(when, words string) {
		t.Helper()
		_, err := a.List(t.Context())
		if r := actuate.AsRefusal(err); r == nil || r.Reason != actuate.Credential || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want a refusal for the credential with %q", when, err, words)
		}
	}
	refused("no file", "no credentials")
	write(profile("AKIAWRONG"))
	refused("a wrong key", "AuthFailure")
	write("[default\n")
	refused("half written", "")
	refused("half written", "")
	write(profile("AKIARIGHT"))
	made := create(t, a, "n1")
	write(profile("AKIAWRONG"))
	if nodes, err := a.List(t.Context()); err != nil || len(nodes) != 1 {
		t.Errorf("changed, and nothing was refused: %v, %v", nodes, err)
	}
	a.signs.refused = true
	refused("revoked", "AuthFailure")
	write(profile("AKIARIGHT"))
	if nodes, err := a.List(t.Context()); err != nil || len(nodes) != 1 || nodes[0].ID != made.ID {
		t.Errorf("corrected: %v, %v, want %+v", nodes, err, made)
	}
}
