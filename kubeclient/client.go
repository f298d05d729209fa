package kubeclient

import (
	"fmt"
	"sync"
	"sync/atomic"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// Client reaches the kinds of objects that are used. Any goroutine may use it.
type Client struct {
	groups  atomic.Pointer[groups]
	limiter flowcontrol.RateLimiter // nil = each group has the REST client's own
	doubted atomic.Bool             // a call failed as one fails by a wrong kubeconfig
	mu      sync.Mutex              // held while a kubeconfig is read again
	file    *kubeconfig             // nil = none that could be read again; what is in it is guarded by mu
}

// groups are the clients of all groups.
type groups map[schema.GroupVersion]*rest.RESTClient

// group is the client of one group. After a failure that a kubeconfig may be to blame for,
// that is read again first, if it has changed.
func (c *Client) group(version schema.GroupVersion) *rest.RESTClient {
	if c.file != nil && c.doubted.CompareAndSwap(true, false) {
		c.again()
	}
	return (*c.groups.Load())[version]
}

// codec is how options and objects are written and read.
type codec struct {
	options runtime.ParameterCodec
	objects runtime.NegotiatedSerializer
}

// codecOnce registers the groups when the first client is made: most processes make
// none.
var codecOnce = sync.OnceValue(func() codec {
	scheme := runtime.NewScheme()
	add := runtime.NewSchemeBuilder(
		appsv1.AddToScheme, corev1.AddToScheme, discoveryv1.AddToScheme, autoscalingv2.AddToScheme,
		autoscalingv1.AddToScheme, // a Scale is of it, whatever it scales
	)
	utilruntime.Must(add.AddToScheme(scheme))
	return codec{
		options: runtime.NewParameterCodec(scheme),
		objects: rest.CodecFactoryForGeneratedClient(scheme, serializer.NewCodecFactory(scheme)).WithoutConversion(),
	}
})

// New makes a client. It contacts nobody.
func New(config *rest.Config) (*Client, error) {
	c := &Client{}
	made, err := c.connect(config)
	if err != nil {
		return nil, err
	}
	c.groups.Store(&made)
	return c, nil
}

// connect makes the clients of all groups.
func (c *Client) connect(config *rest.Config) (groups, error) {
	shared := *config
	if shared.UserAgent == "" {
		shared.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	if shared.RateLimiter == nil && shared.QPS > 0 { // one for all groups
		if shared.Burst <= 0 {
			return nil, fmt.Errorf("burst %d with %v queries per second: use 1 or more", shared.Burst, shared.QPS)
		}
		shared.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(shared.QPS, shared.Burst)
	}
	c.limiter = shared.RateLimiter
	shared.NegotiatedSerializer = codecOnce().objects
	connections, err := rest.HTTPClientFor(&shared)
	if err != nil {
		return nil, err
	}
	connections = c.noticed(connections)
	made := groups{}
	for _, version := range []schema.GroupVersion{
		appsv1.SchemeGroupVersion, corev1.SchemeGroupVersion, discoveryv1.SchemeGroupVersion, autoscalingv2.SchemeGroupVersion,
	} {
		group := shared
		group.GroupVersion, group.APIPath = &version, "/apis"
		if version.Group == "" {
			group.APIPath = "/api"
		}
		if made[version], err = rest.RESTClientForConfigAndClient(&group, connections); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// Deployments are those of a namespace.
func (c *Client) Deployments(namespace string) Workloads[*appsv1.Deployment, *appsv1.DeploymentList] {
	return Workloads[*appsv1.Deployment, *appsv1.DeploymentList]{
		resource[appsv1.Deployment, appsv1.DeploymentList](c, appsv1.SchemeGroupVersion, "deployments", namespace),
	}
}

// StatefulSets are those of a namespace.
func (c *Client) StatefulSets(namespace string) Workloads[*appsv1.StatefulSet, *appsv1.StatefulSetList] {
	return Workloads[*appsv1.StatefulSet, *appsv1.StatefulSetList]{
		resource[appsv1.StatefulSet, appsv1.StatefulSetList](c, appsv1.SchemeGroupVersion, "statefulsets", namespace),
	}
}

// ReplicaSets are those of a namespace.
func (c *Client) ReplicaSets(namespace string) Resource[*appsv1.ReplicaSet, *appsv1.ReplicaSetList] {
	return resource[appsv1.ReplicaSet, appsv1.ReplicaSetList](c, appsv1.SchemeGroupVersion, "replicasets", namespace)
}

// Pods are those of a namespace.
func (c *Client) Pods(namespace string) Resource[*corev1.Pod, *corev1.PodList] {
	return resource[corev1.Pod, corev1.PodList](c, corev1.SchemeGroupVersion, "pods", namespace)
}

// ConfigMaps are those of a namespace.
func (c *Client) ConfigMaps(namespace string) Resource[*corev1.ConfigMap, *corev1.ConfigMapList] {
	return resource[corev1.ConfigMap, corev1.ConfigMapList](c, corev1.SchemeGroupVersion, "configmaps", namespace)
}

// Events are those of a namespace.
func (c *Client) Events(namespace string) Resource[*corev1.Event, *corev1.EventList] {
	return resource[corev1.Event, corev1.EventList](c, corev1.SchemeGroupVersion, "events", namespace)
}

// HorizontalPodAutoscalers are those of a namespace.
func (c *Client) HorizontalPodAutoscalers(namespace string) Resource[*autoscalingv2.HorizontalPodAutoscaler, *autoscalingv2.HorizontalPodAutoscalerList] {
	return resource[autoscalingv2.HorizontalPodAutoscaler, autoscalingv2.HorizontalPodAutoscalerList](c, autoscalingv2.SchemeGroupVersion, "horizontalpodautoscalers", namespace)
}

// EndpointSlices are those of a namespace.
func (c *Client) EndpointSlices(namespace string) Resource[*discoveryv1.EndpointSlice, *discoveryv1.EndpointSliceList] {
	return resource[discoveryv1.EndpointSlice, discoveryv1.EndpointSliceList](c, discoveryv1.SchemeGroupVersion, "endpointslices", namespace)
}
