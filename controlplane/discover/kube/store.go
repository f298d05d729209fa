package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// listWithin bounds one list; a watch ends by itself.
const listWithin = 30 * time.Second

// EndpointSlices are those of one namespace.
type EndpointSlices interface {
	List(context.Context, metav1.ListOptions) (*discoveryv1.EndpointSliceList, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// store keeps the slices as the API server tells of them, and how the telling goes. It
// implements cache.ReflectorStore.
type store struct {
	changed chan struct{} // holds at most one: changes while the reader is busy are one change

	mu     sync.Mutex
	slices map[string]*discoveryv1.EndpointSlice // by name; guarded by mu
	listed bool                                  // all of them, once; guarded by mu
	fault  error                                 // why nothing newer is told; guarded by mu
}

func newStore() *store {
	return &store{changed: make(chan struct{}, 1), slices: map[string]*discoveryv1.EndpointSlice{}}
}

// load returns the slices by name, whether they are all, and why they may be old.
func (s *store) load() (all []*discoveryv1.EndpointSlice, listed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(s.slices)) {
		all = append(all, s.slices[name])
	}
	return all, s.listed, s.fault
}

// tell says that there is something new.
func (s *store) tell() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// goes notes how the last request went.
func (s *store) goes(err error) {
	s.mu.Lock()
	s.fault = err
	s.mu.Unlock()
	s.tell()
}

// Add implements cache.ReflectorStore.
func (s *store) Add(object any) error { return s.Update(object) }

// Update implements cache.ReflectorStore.
func (s *store) Update(object any) error {
	e, err := slice(object)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.slices[e.Name] = e
	s.mu.Unlock()
	s.tell()
	return nil
}

// Delete implements cache.ReflectorStore.
func (s *store) Delete(object any) error {
	e, err := slice(object)
	if err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.slices, e.Name)
	s.mu.Unlock()
	s.tell()
	return nil
}

// Replace implements cache.ReflectorStore. It tells nobody: a watch follows, and how that
// goes is told.
func (s *store) Replace(objects []any, _ string) error {
	all := make(map[string]*discoveryv1.EndpointSlice, len(objects))
	for _, object := range objects {
		e, err := slice(object)
		if err != nil {
			return err
		}
		all[e.Name] = e
	}
	s.mu.Lock()
	s.slices, s.listed = all, true
	s.mu.Unlock()
	return nil
}

// Resync implements cache.ReflectorStore.
func (s *store) Resync() error { return nil }

func slice(object any) (*discoveryv1.EndpointSlice, error) {
	e, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return nil, fmt.Errorf("the API server sent a %T, not an EndpointSlice", object)
	}
	return e, nil
}

// source lists and watches, and says how that goes: a reflector tries again and tells
// nobody.
type source struct {
	client   EndpointSlices
	selector string
	to       *store
}

// ListWithContext implements cache.ListerWithContext.
func (s *source) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	o.LabelSelector = s.selector
	if o.ResourceVersion == "0" { // any cache's; a first set must not be older than a former process's last
		o.ResourceVersion = ""
	}
	all, err := s.client.List(ctx, o)
	if err != nil {
		s.to.goes(err)
		return nil, err
	}
	return all, nil
}

// WatchWithContext implements cache.WatcherWithContext.
func (s *source) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.LabelSelector = s.selector
	w, err := s.client.Watch(ctx, o)
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) { // then it lists again, which is no fault
		s.to.goes(err)
	}
	return w, err
}

// List implements cache.Lister.
func (s *source) List(o metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), o)
}

// Watch implements cache.Watcher.
func (s *source) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), o)
}

// IsWatchListSemanticsUnSupported makes the reflector list before it watches, so that a
// first set is whole when it is told.
func (s *source) IsWatchListSemanticsUnSupported() bool { return true }
