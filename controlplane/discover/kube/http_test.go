package kube

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// server is an API server for EndpointSlices: it lists and watches with versions, over
// HTTP and JSON.
type server struct {
	t *testing.T

	mu      sync.Mutex
	version int
	slices  map[string]*discoveryv1.EndpointSlice
	log     []event                              // all that happened since oldest
	oldest  int                                  // versions before it are forgotten
	refuse  func(r *http.Request) *metav1.Status // in place of an answer
	changed chan struct{}                        // closed at the next change
	cut     chan struct{}                        // closed to end all watches
	asked   []string                             // the queries
}

type event struct {
	version int
	kind    string
	slice   *discoveryv1.EndpointSlice
}

func newServer(t *testing.T) (*server, string) {
	s := &server{t: t, slices: map[string]*discoveryv1.EndpointSlice{}, changed: make(chan struct{}), cut: make(chan struct{})}
	h := httptest.NewTLSServer(s) // a client sends its token nowhere else
	t.Cleanup(func() {
		s.cutAll()
		h.Close()
	})
	config := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: u, user: {token: t0ken}}]
contexts: [{name: test, context: {cluster: c, user: u, namespace: ns}}]
current-context: test
`, h.URL, base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})))
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return s, path
}

func (s *server) put(lines string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, slice := range parseAll(lines) {
		kind := "ADDED"
		if s.slices[slice.Name] != nil {
			kind = "MODIFIED"
		}
		s.happens(kind, slice)
		s.slices[slice.Name] = slice
	}
}

func (s *server) happens(kind string, slice *discoveryv1.EndpointSlice) {
	s.version++
	slice.ResourceVersion = strconv.Itoa(s.version)
	slice.TypeMeta = metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}
	s.log = append(s.log, event{s.version, kind, slice})
	close(s.changed)
	s.changed = make(chan struct{})
}

// cutAll ends all watches.
func (s *server) cutAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.cut)
	s.cut = make(chan struct{})
}

// forget makes all versions so far too old to be watched from.
func (s *server) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.oldest, s.log = s.version, nil
}

func (s *server) refusing(status *metav1.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = func(*http.Request) *metav1.Status { return status }
}

func status(code int32, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: code, Reason: reason, Message: message}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.asked = append(s.asked, r.URL.RawQuery)
	var no *metav1.Status
	if s.refuse != nil {
		no = s.refuse(r)
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	watching := r.URL.Query().Get("watch") != ""
	switch {
	case no != nil:
	case r.URL.Path != "/apis/discovery.k8s.io/v1/namespaces/ns/endpointslices" || r.Header.Get("Authorization") != "Bearer t0ken" ||
		r.URL.Query().Get("labelSelector") != "kubernetes.io/service-name=vllm":
		no = status(http.StatusNotFound, metav1.StatusReasonNotFound, "not what is served: "+r.URL.String())
	case watching && from < s.oldest:
		no = status(http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
	}
	w.Header().Set("Content-Type", "application/json")
	if no != nil {
		s.mu.Unlock()
		w.WriteHeader(int(no.Code))
		_ = json.NewEncoder(w).Encode(no)
		return
	}
	if !watching {
		defer s.mu.Unlock()
		list := &discoveryv1.EndpointSliceList{TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}}
		list.ResourceVersion = strconv.Itoa(s.version)
		for _, slice := range s.slices {
			list.Items = append(list.Items, *slice)
		}
		_ = json.NewEncoder(w).Encode(list)
		return
	}
	s.mu.Unlock()
	s.watch(w, r, from)
}

func (s *server) watch(w http.ResponseWriter, r *http.Request, from int) {
	s.mu.Lock()
	cut := s.cut
	s.mu.Unlock()
	for {
		s.mu.Lock()
		changed := s.changed
		for _, e := range s.log {
			if e.version > from {
				from = e.version
				_ = json.NewEncoder(w).Encode(map[string]any{"type": e.kind, "object": e.slice})
			}
		}
		s.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-cut:
			return
		case <-changed:
		}
	}
}

// TestOverHTTP runs the real client against a server: changes come through the watch,
// versions that are forgotten make it list again, refusals are told in the server's
// words.
func TestOverHTTP(t *testing.T) {
	api, kubeconfig := newServer(t)
	api.put("s1 http=8000 a@10.0.0.1 | s2 http=8000 b@fd00::2")
	s, err := New(Options{Kubeconfig: kubeconfig, Service: "vllm", Port: "http"})
	if err != nil {
		t.Fatal(err)
	}
	s.backoff = &wait.Backoff{Duration: time.Millisecond, Factor: 2, Steps: 5, Cap: 20 * time.Millisecond}
	said := follow(t, s)
	said.want(t, "nodes a=10.0.0.1:8000 b=[fd00::2]:8000")
	api.put("s1 http=8000 a@10.0.0.1 c@10.0.0.3")
	said.want(t, "nodes a=10.0.0.1:8000 b=[fd00::2]:8000 c=10.0.0.3:8000")
	api.cutAll() // it goes on from where it was
	api.put("s1 http=8000 a@10.0.0.1- c@10.0.0.3")
	said.want(t, "nodes b=[fd00::2]:8000 c=10.0.0.3:8000")

	api.mu.Lock()
	api.slices["s1"] = parse("s1 http=8000 c@10.0.0.3 d@10.0.0.4") // while nobody watches
	api.mu.Unlock()
	api.forget()
	api.cutAll()
	said.want(t, "nodes b=[fd00::2]:8000 c=10.0.0.3:8000 d=10.0.0.4:8000")

	api.refusing(status(http.StatusForbidden, metav1.StatusReasonForbidden, `endpointslices is forbidden: User "u" cannot watch resource "endpointslices"`))
	api.cutAll()
	said.want(t, `failed: User "u" cannot watch resource "endpointslices"`)
	api.refusing(nil)
	said.wantEventually(t, "nodes b=[fd00::2]:8000 c=10.0.0.3:8000 d=10.0.0.4:8000")
	api.put("s3 http=8000 e@10.0.0.5")
	said.wantEventually(t, "e=10.0.0.5:8000")
}
