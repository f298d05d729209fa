package kubeclient

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func writeKubeconfig(t *testing.T, file, server, token string) {
	t.Helper()
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
		clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}], users: [{name: u, user: {token: %s}}]}`, server, token)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestKubeconfigIsCorrected: what was wrong in a kubeconfig and is right now counts without
// another client, also for those who had their Resource before.
func TestKubeconfigIsCorrected(t *testing.T) {
	asked := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Authorization") != "Bearer right" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`)
			return
		}
		_, _ = fmt.Fprint(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"}}`)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	writeKubeconfig(t, file, server.URL, "wrong")
	c, _, err := Open(Options{Kubeconfig: file, Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	pods := c.Pods(namespace)
	get := func() error {
		_, err := pods.Get(t.Context(), "x")
		return err
	}
	check := func(when string, err error, refused bool) {
		t.Helper()
		if (err != nil) != refused || refused && !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: %v", when, err)
		}
	}
	check("a wrong token", get(), true)
	if err := os.WriteFile(file, []byte("half of it: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	check("half written", get(), true)
	check("half written", get(), true)
	before := c.groups.Load()
	writeKubeconfig(t, file, server.URL, "wrong")
	check("written again, as it was", get(), true)
	if c.groups.Load() != before {
		t.Error("another client of the same kubeconfig")
	}
	writeKubeconfig(t, file, server.URL, "right")
	check("corrected", get(), false)
	writeKubeconfig(t, file, "https://127.0.0.1:1", "right")
	check("changed, and nothing failed", get(), false)
	if asked != 6 {
		t.Errorf("%d calls came, want 6", asked)
	}
}

// TestServerIsCorrected: so does a server that nobody could reach.
func TestServerIsCorrected(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"}}`)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	writeKubeconfig(t, file, "https://127.0.0.1:1", "t")
	c, _, err := Open(Options{Kubeconfig: file, Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Pods(namespace).Get(t.Context(), "x"); err == nil {
		t.Error("somebody is there")
	}
	writeKubeconfig(t, file, server.URL, "t")
	if _, err := c.Pods(namespace).Get(t.Context(), "x"); err != nil {
		t.Error(err)
	}
}
