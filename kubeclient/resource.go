package kubeclient

import (
	"context"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// object is one object of the API.
type object interface {
	runtime.Object
	GetName() string
}

// Resource is the objects O of one kind in one namespace; L is a list of them.
type Resource[O object, L runtime.Object] struct {
	client     func() *rest.RESTClient // another one once a kubeconfig has changed
	name       string                  // in the URL: the plural
	namespace  string
	makeObject func() O
	makeList   func() L
}

// resource makes a Resource; O and L are structs here, and pointers to them there.
func resource[O, L any, PO interface {
	*O
	object
}, PL interface {
	*L
	runtime.Object
}](c *Client, version schema.GroupVersion, name, namespace string) Resource[PO, PL] {
	return Resource[PO, PL]{
		client: func() *rest.RESTClient { return c.group(version) }, name: name, namespace: namespace,
		makeObject: func() PO { return new(O) }, makeList: func() PL { return new(L) },
	}
}

// at points a request at the resource. The API server prefers protobuf for its own
// kinds, as it costs a fraction of JSON; a configured encoding goes first.
func (r Resource[O, L]) at(q *rest.Request) *rest.Request {
	return q.UseProtobufAsDefault().Namespace(r.namespace).Resource(r.name)
}

// object sends a request whose answer is one object.
func (r Resource[O, L]) object(ctx context.Context, q *rest.Request) (O, error) {
	o := r.makeObject()
	if err := q.Do(ctx).Into(o); err != nil {
		return *new(O), err
	}
	return o, nil
}

// Get returns one object.
func (r Resource[O, L]) Get(ctx context.Context, name string) (O, error) {
	return r.object(ctx, r.at(r.client().Get()).Name(name))
}

// Create makes an object and returns it as the server has it.
func (r Resource[O, L]) Create(ctx context.Context, o O) (O, error) {
	return r.object(ctx, r.at(r.client().Post()).Body(o))
}

// Update replaces the object of that name, of that resource version if it has one, and
// returns it as the server has it.
func (r Resource[O, L]) Update(ctx context.Context, o O) (O, error) {
	return r.object(ctx, r.at(r.client().Put()).Name(o.GetName()).Body(o))
}

// MergePatch changes of an object what a JSON merge patch says, and returns it as the
// server has it.
func (r Resource[O, L]) MergePatch(ctx context.Context, name string, patch []byte) (O, error) {
	return r.object(ctx, r.at(r.client().Patch(types.MergePatchType)).Name(name).Body(patch))
}

// Delete ends an object, if the options' preconditions hold.
func (r Resource[O, L]) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	return r.at(r.client().Delete()).Name(name).Body(&o).Do(ctx).Error()
}

// List returns the objects that the options select.
func (r Resource[O, L]) List(ctx context.Context, o metav1.ListOptions) (L, error) {
	l := r.makeList()
	if err := r.selected(&o).Do(ctx).Into(l); err != nil {
		return *new(L), err
	}
	return l, nil
}

// Watch tells of changes of the objects that the options select.
func (r Resource[O, L]) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return r.selected(&o).Watch(ctx)
}

// selected is a request for many objects.
func (r Resource[O, L]) selected(o *metav1.ListOptions) *rest.Request {
	var timeout time.Duration
	if o.TimeoutSeconds != nil {
		timeout = time.Duration(*o.TimeoutSeconds) * time.Second
	}
	return r.at(r.client().Get()).VersionedParams(o, codecOnce().options).Timeout(timeout)
}

// Workloads are a resource whose objects have replicas.
type Workloads[O object, L runtime.Object] struct{ Resource[O, L] }

// UpdateScale asks for replicas, of that UID and resource version if the scale has them,
// and returns the scale as the server has it.
func (w Workloads[O, L]) UpdateScale(ctx context.Context, name string, s *autoscalingv1.Scale) (*autoscalingv1.Scale, error) {
	to := &autoscalingv1.Scale{}
	if err := w.at(w.client().Put()).Name(name).SubResource("scale").Body(s).Do(ctx).Into(to); err != nil {
		return nil, err
	}
	return to, nil
}
