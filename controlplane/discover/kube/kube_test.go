package kube

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"warmpath/controlplane/state"
)

// TestMain turns the library's own handlers of errors off: they bring real time into
// synctest's.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	m.Run()
}

// log is a listener that writes down what it is told.
type log chan string

func (l log) Emit(nodes []state.Spec) { l <- strings.TrimSpace("nodes " + urls(nodes)) }
func (l log) Failed(err error)        { l <- "failed: " + err.Error() }

func (l log) want(t *testing.T, what string) {
	t.Helper()
	select {
	case got := <-l:
		if got != what && !(strings.HasPrefix(what, "failed: ") && strings.Contains(got, what[len("failed: "):])) {
			t.Fatalf("the source said %q, want %q", got, what)
		}
	case <-time.After(5 * time.Minute):
		t.Fatalf("the source has not said %q", what)
	}
}

// wantEventually skips what is said before.
func (l log) wantEventually(t *testing.T, what string) {
	t.Helper()
	var said []string
	for end := time.After(2 * time.Minute); ; {
		select {
		case got := <-l:
			if strings.Contains(got, what) {
				return
			}
			said = append(said, got)
		case <-end:
			t.Fatalf("the source has not said %q but %q", what, said)
		}
	}
}

// follow runs a source until the test ends.
func follow(t *testing.T, s *Source) log {
	t.Helper()
	said := make(log, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, said) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run ended with %v", err)
		}
	})
	return said
}

// bench is a fake API server whose lists and watches can fail.
type bench struct {
	t      *testing.T
	client *fake.Clientset

	mu      sync.Mutex
	listErr error                // guarded by mu
	openErr error                // guarded by mu
	watches []*watch.FakeWatcher // guarded by mu
}

func (b *bench) fails(list, open error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.listErr, b.openErr = list, open
}

// watch is the newest, nil if there is none.
func (b *bench) watch() *watch.FakeWatcher {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.watches) == 0 {
		return nil
	}
	return b.watches[len(b.watches)-1]
}

func newBench(t *testing.T, slices string) *bench {
	b := &bench{t: t, client: fake.NewClientset()}
	b.client.PrependReactor("list", "endpointslices", func(clienttesting.Action) (bool, runtime.Object, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.listErr != nil, nil, b.listErr
	})
	b.client.PrependWatchReactor("endpointslices", func(clienttesting.Action) (bool, watch.Interface, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.openErr != nil {
			return true, nil, b.openErr
		}
		w := watch.NewFake()
		b.watches = append(b.watches, w)
		return true, w, nil
	})
	for _, s := range parseAll(slices) {
		b.put(s)
	}
	return b
}

// put stores a slice and tells the watch of it.
func (b *bench) put(s *discoveryv1.EndpointSlice) {
	b.t.Helper()
	api := b.client.DiscoveryV1().EndpointSlices("ns")
	_, err := api.Update(b.t.Context(), s, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = api.Create(b.t.Context(), s, metav1.CreateOptions{})
	}
	if err != nil {
		b.t.Fatal(err)
	}
	if w := b.watch(); w != nil {
		w.Modify(s)
	}
}

func (b *bench) source() *Source {
	s, err := New(Options{Client: b.client.DiscoveryV1().EndpointSlices("ns"), Namespace: "ns", Service: "vllm"})
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// TestRun: a first set, changes, an outage with what it keeps, and its end.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "s1 http=8000 a@10.0.0.1 | s2 http=8000 b@10.0.0.2")
		other := parse("s9 http=8000 x@10.0.0.9")
		other.Labels[discoveryv1.LabelServiceName] = "another"
		b.put(other)
		said := follow(t, b.source())
		said.want(t, "nodes a=10.0.0.1:8000 b=10.0.0.2:8000")
		b.put(parse("s2 http=8000 b@10.0.0.2 c@10.0.0.3"))
		said.want(t, "nodes a=10.0.0.1:8000 b=10.0.0.2:8000 c=10.0.0.3:8000")
		b.put(parse("s2 http=8000 b@10.0.0.2! c@10.0.0.3"))
		began := time.Now()
		said.want(t, "nodes a=10.0.0.1:8000 c=10.0.0.3:8000")
		if took := time.Since(began); took != absence {
			t.Errorf("a node that was not ready left after %v", took)
		}
		b.fails(errors.New("dial tcp: no route to host"), errors.New("connection refused by nobody"))
		b.watch().Stop()
		said.want(t, "failed: follow discovery.kubernetes vllm: connection refused by nobody")
		said.want(t, "failed: no route to host")
		b.fails(nil, nil)
		said.wantEventually(t, "nodes a=10.0.0.1:8000 c=10.0.0.3:8000")
		b.put(parse("s1 http=8000 a@10.0.0.1-"))
		said.want(t, "nodes c=10.0.0.3:8000")
		synctest.Wait()
		if len(said) != 0 {
			t.Errorf("and then: %q", <-said)
		}
	})
}

// TestFirstSet: nothing is told before a whole list was had; what the list says is also
// told when a watch is forbidden.
func TestFirstSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resource := schema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"}
		b := newBench(t, "s1 http=8000 a@10.0.0.1")
		b.fails(apierrors.NewForbidden(resource, "", errors.New(`User "u" cannot list resource "endpointslices"`)), nil)
		said := follow(t, b.source())
		said.want(t, `failed: User "u" cannot list resource "endpointslices"`)
		b.fails(nil, apierrors.NewForbidden(resource, "", errors.New(`User "u" cannot watch`)))
		said.wantEventually(t, "nodes a=10.0.0.1:8000")
		said.want(t, "failed: cannot watch")
		b.put(parse("s1 http=8000 a@10.0.0.1 b@10.0.0.2"))
		said.wantEventually(t, "nodes a=10.0.0.1:8000 b=10.0.0.2:8000")
		said.want(t, "failed: cannot watch")
	})
}

// TestServiceGone: what it had stands when its last slice goes; an empty slice is an
// empty fleet.
func TestServiceGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, "")
		said := follow(t, b.source())
		said.want(t, "failed: there is no EndpointSlice of vllm in namespace ns")
		b.put(parse("s1 http=8000"))
		said.want(t, "nodes")
		b.put(parse("s1 http=8000 a@10.0.0.1"))
		said.want(t, "nodes a=10.0.0.1:8000")
		b.watch().Delete(parse("s1"))
		said.want(t, "failed: there is no EndpointSlice")
		<-time.After(time.Hour)
		synctest.Wait()
		b.watch().Add(parse("s1 http=8000 a@10.0.0.1"))
		for end := false; !end; {
			select {
			case got := <-said:
				end = got == "nodes a=10.0.0.1:8000"
				if strings.HasPrefix(got, "nodes") && !end {
					t.Errorf("the source said %q", got)
				}
			case <-time.After(time.Hour):
				t.Fatal("the Service is back, and nothing was said")
			}
		}
	})
}
